"""Multi-device graphs have as many nodes of each kind as the real Paddle's.

Read from the files of BuildStrategy.debug_graphviz_path, which keep the original's names and
labels.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import dpexec as fluid
from tests.fixtures import graph_programs

RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "graphs.json").read_text())


def _graph_counts(row, folder):
    """Counts of the graphs that a run of ``row`` makes."""
    path = str(folder / row)
    graph_programs.write_graphs(fluid, row, path)
    return graph_programs.counts(path)


@pytest.mark.parametrize("row", graph_programs.ROWS)
def test_graph_has_recorded_counts(row, tmp_path):
    found = _graph_counts(row, tmp_path)
    recorded = RECORDED[row]
    assert found["op_handles"] == recorded["op_handles"]
    assert found["owners"] == recorded["owners"]
    assert found == recorded


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz's program dot is not installed")
@pytest.mark.parametrize("row", ["allreduce_2_lenet_adam", "reduce_2_word2vec_sgd"])
def test_files_are_what_graphviz_reads(row, tmp_path):
    graph_programs.write_graphs(fluid, row, str(tmp_path / row))
    files = sorted(tmp_path.iterdir())
    assert [file.name.removeprefix(row) for file in files] == [
        "_fused_graph", "_multi_devices_graph", "_original_graph",
    ]  # fmt: skip
    for file in files:
        read = subprocess.run(["dot", "-Tcanon", file], capture_output=True, text=True, check=True)
        assert read.stderr == ""
        assert read.stdout.startswith("digraph G {")
