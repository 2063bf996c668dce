"""Fused AllReduce, sequential execution, and the record of what passes changed."""

import itertools

import pytest

import dpexec as fluid
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph
from dpexec.engine.graph.operators import Operators
from dpexec.engine.passes import FuseAllReduce, PassManager, RemoveIdentities, SequentialExecution
from tests.engine.run.nets import classifier


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


@pytest.mark.parametrize(
    ("megabytes", "parameters", "number"),
    [(-1, 1, 5), (-1, 3, 5), (0.05, 1, 3), (0.1, 1, 2), (0.2, 1, 1), (1, 2, 3), (1, 3, 3)],
)
def test_layers_go_together_as_in_paddle(megabytes, parameters, number):
    """The numbers are those that Paddle 1.8.5 logs for this net and the two flags."""
    net = classifier(sizes=(64, 128, 256, 64, 32, 3))
    graph = build_ssa_graph(net.main, [fluid.CPUPlace()] * 2, ReplicationOptions())
    FuseAllReduce(megabytes, parameters).apply(graph)
    counts = graph.counts()["ops"]
    assert counts["fused_all_reduce"] == number and "all_reduce" not in counts


def test_element_types_do_not_go_together():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        losses = []
        for dtype in ("float32", "float64", "float32"):
            x = fluid.data(f"x{len(losses)}", [None, 4], dtype)
            losses.append(fluid.layers.cast(fluid.layers.fc(x, 2), "float32"))
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.sum(losses)))
    graph = build_ssa_graph(main, [fluid.CPUPlace()] * 2, ReplicationOptions())
    FuseAllReduce(1.0, 1).apply(graph)
    fused = [node for node in graph.ops if node.kind == "all_reduce"]
    variables = main.global_block().vars
    types = [{variables[var.name].dtype for var in node.inputs} for node in fused]
    assert sorted(len(found) for found in types) == [1, 1]


def test_sequential_execution_orders_each_device(graph):
    assert SequentialExecution().apply(graph)
    for device in range(2):
        line = [node for node in graph.ops if node.device == device]
        for first, second in itertools.pairwise(line):
            if "scale_loss_grad" not in (first.kind, second.kind):
                assert first in {var.writer for var in second.inputs}


def test_manager_records_what_changed(graph):
    manager = PassManager([FuseAllReduce(), FuseAllReduce()])
    before = len(graph.ops)
    manager.run(graph)
    first, second = manager.records
    assert first.modified and (first.ops_before, first.ops_after) == (before, before - 3)
    assert not second.modified
    assert "all_reduce -> fc_0.b_0@GRAD on all devices" in first.removed
    assert [text.partition(" ")[0] for text in first.added] == ["fused_all_reduce"] * 3
    assert len(first.removed) - len(first.added) == before - first.ops_after
    assert (second.added, second.removed, second.changed) == ((), (), ())
    assert first.to_json()["removed"] == list(first.removed)


def test_manager_records_what_waits_for_more(graph):
    manager = PassManager([SequentialExecution()])
    manager.run(graph)
    (record,) = manager.records
    assert not record.added and not record.removed
    assert "mul -> fc_0.tmp_0 on device 1" in record.changed


def test_manager_records_operators_that_read_others():
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        fluid.layers.relu(fluid.layers.assign(fluid.data("x", [None, 3])))
    manager = PassManager([], [RemoveIdentities()])
    manager.rewrite(Operators(main))
    (record,) = manager.records
    assert record.removed == ("assign -> assign_0.tmp_0",)
    assert record.changed == ("relu -> relu_0.tmp_0",) and not record.added


def test_failing_pass_names_those_before_it(graph):
    class Broken:
        name = "broken"

        def apply(self, graph):
            raise KeyError("x")

    with pytest.raises(RuntimeError, match="broken failed; passes before it: fuse_all_reduce_ops"):
        PassManager([FuseAllReduce(), Broken()]).run(graph)
