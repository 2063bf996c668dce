"""The machine code of an operator's kernels."""

import pytest

from dpexec import viz
from dpexec.engine.trace import Trace
from tests.engine.run.nets import batches, classifier, train


@pytest.fixture(scope="module")
def run():
    return train(classifier(), batches(3), devices=2, trace=True).compiled


def test_an_operator_has_source_llvm_and_assembly(run):
    node = next(node for node in run.trace.graph["nodes"] if node["name"] == "sgd")
    by_type, by_number = viz.machine_code(run, "sgd"), viz.machine_code(run.trace, node["id"])
    assert {one.name for one in by_number} <= {one.name for one in by_type}
    one = by_number[0]
    assert "def " in one.python and one.takes.endswith("-> int64")
    assert "define " in one.llvm and ".globl" in one.assembly
    assert one.name in str(by_type) and one.assembly.rstrip() in str(by_type)


def test_what_there_is_none_of_says_so(run):
    with pytest.raises(ValueError, match=r"no operator 'nothing'; there are .*mul_grad"):
        viz.machine_code(run, "nothing")
    graph = {**run.trace.graph, "listings": [], "nodes": [{"id": 0, "name": "relu"}]}
    with pytest.raises(ValueError, match="did the work of 'relu', but nothing that was recorded"):
        viz.machine_code(Trace(run.trace.events, run.trace.meta, graph), "relu")
