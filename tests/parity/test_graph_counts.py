"""Multi-device graphs have as many nodes of each kind as the real Paddle's.

Read from the files of BuildStrategy.debug_graphviz_path, which keep the original's names and
labels.
"""

import json
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


FUSED_ACTIVATION = "allreduce_2_sgd_fused_activation"


@pytest.mark.parametrize("row", [row for row in graph_programs.ROWS if row != FUSED_ACTIVATION])
def test_graph_has_recorded_counts(row, tmp_path):
    found = _graph_counts(row, tmp_path)
    recorded = RECORDED[row]
    assert found["op_handles"] == recorded["op_handles"]
    assert found["owners"] == recorded["owners"]
    assert found == recorded


@pytest.mark.filterwarnings("ignore:BuildStrategy.fuse_elewise_add_act_ops:UserWarning")
def test_graph_with_fused_activations_is_the_plain_one(tmp_path):
    # a deviation: dpexec accepts the option, says that it has no effect yet, and fuses nothing
    assert _graph_counts(FUSED_ACTIVATION, tmp_path) == RECORDED["allreduce_2_sgd"]
