"""Passes: what they change, and that the manager tells about it."""

import itertools

import pytest

import dpexec as fluid
from dpexec.graph.build import ReplicationOptions, build_ssa_graph
from dpexec.passes import FuseAllReduce, PassManager, SequentialExecution
from tests.runtime.nets import classifier


@pytest.fixture
def graph():
    net = classifier(sizes=(4, 5, 6, 3))
    return build_ssa_graph(net.main, [fluid.CPUPlace()] * 2, ReplicationOptions())


def test_all_reduces_of_a_layer_are_fused(graph):
    assert graph.counts()["ops"]["all_reduce"] == 6
    assert FuseAllReduce().apply(graph)
    counts = graph.counts()["ops"]
    assert counts["fused_all_reduce"] == 3 and "all_reduce" not in counts
    assert [node.id for node in graph.ops] == list(range(len(graph.ops)))
    fused = next(node for node in graph.ops if node.kind == "all_reduce")
    assert [(var.name, var.device) for var in fused.inputs][:2] == [
        ("fc_2.b_0@GRAD", 0),
        ("fc_2.b_0@GRAD", 1),
    ]


def test_sequential_execution_orders_each_device(graph):
    assert SequentialExecution().apply(graph)
    for device in range(2):
        line = [node for node in graph.ops if node.device == device]
        for first, second in itertools.pairwise(line):
            if "scale_loss_grad" not in (first.kind, second.kind):
                assert first in set(graph.predecessors(second))


def test_manager_records_what_changed(graph):
    manager = PassManager([FuseAllReduce(), FuseAllReduce()])
    before = len(graph.ops)
    manager.run(graph)
    first, second = manager.records
    assert first.modified and (first.ops_before, first.ops_after) == (before, before - 3)
    assert not second.modified


def test_failing_pass_names_those_before_it(graph):
    class Broken:
        name = "broken"

        def apply(self, graph):
            raise KeyError("x")

    with pytest.raises(RuntimeError, match="broken failed; passes before it: fuse_all_reduce_ops"):
        PassManager([FuseAllReduce(), Broken()]).run(graph)
