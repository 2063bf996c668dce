"""The editable list of passes: ``BuildStrategy._finalize_strategy_and_create_passes``."""

import pickle

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.passes.graph_viz import GraphViz


def names(builder):
    return [step.type() for step in builder.all_passes()]


def strategy_with(**fields):
    strategy = fluid.BuildStrategy()
    for name, value in fields.items():
        setattr(strategy, name, value)
    return strategy


def train(strategy):
    x = fluid.data("x", [None, 3])
    loss = fluid.layers.mean(fluid.layers.fc(x, 2, act="relu"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, strategy, places=fluid.cpu_places(2)
    )
    exe.run(program, {"x": np.ones((4, 3), "float32")}, [loss])
    return program


def test_list_has_what_is_on_and_writes_the_graph(tmp_path):
    strategy = strategy_with(fuse_elewise_add_act_ops=True)
    builder = strategy._finalize_strategy_and_create_passes()
    assert "fuse_elewise_add_act_pass" in names(builder)
    count = len(names(builder))
    drawn = builder.append_pass("graph_viz_pass")
    builder.insert_pass(count + 1, "graph_viz_pass")
    assert len(names(builder)) == count + 2
    builder.remove_pass(count + 1)
    assert names(builder)[count:] == ["graph_viz_pass"]
    drawn.set("graph_viz_path", str(tmp_path / "graph.dot"))
    train(strategy)
    written = (tmp_path / "graph.dot").read_text()
    assert written.startswith("digraph G {")
    assert "fused_elemwise_activation" in written
    assert "fused_all_reduce" in written
    with pytest.raises(EnforceNotMet, match="its list of passes cannot be configured again"):
        builder.remove_pass(0)


def test_built_in_passes_are_switched():
    strategy = fluid.BuildStrategy()
    builder = strategy._finalize_strategy_and_create_passes()
    builder.append_pass("fuse_bn_act_pass")
    assert strategy.fuse_bn_act_ops
    builder.remove_pass(names(builder).index("fuse_bn_act_pass"))
    builder.remove_pass(names(builder).index("fuse_all_reduce_op_pass"))
    assert not (strategy.fuse_bn_act_ops or strategy.fuse_all_reduce_ops)
    records = train(strategy)._engine.pass_records
    assert [record.name for record in records] == ["fuse_broadcast_ops"]


def test_mistakes_are_named():
    strategy = fluid.BuildStrategy()
    builder = strategy._finalize_strategy_and_create_passes()
    for mistake, message in (
        (lambda: builder.append_pass("graph_vis_pass"), "registered; similar: graph_viz_pass"),
        (lambda: builder.insert_pass(0, "graph_viz_pass"), "insert it at 2, behind all"),
        (lambda: builder.remove_pass(9), "no pass 9, only 2"),
        (lambda: builder.all_passes()[0].set("a", 1), "fuse_all_reduce_op_pass has no attribute"),
        (lambda: setattr(strategy, "fuse_bn_act_ops", True), "fuse_bn_act_ops cannot"),
    ):
        with pytest.raises(EnforceNotMet, match=message):
            mistake()
    drawn = builder.append_pass("graph_viz_pass")
    with pytest.raises(RuntimeError, match="graph_viz_pass failed") as caught:
        train(strategy)
    assert "needs its attribute graph_viz_path" in str(caught.value.__cause__)
    drawn.set("graph_viz_path", "a")
    with pytest.raises(EnforceNotMet, match="graph_viz_path of graph_viz_pass is set already"):
        drawn.set("graph_viz_path", "b")


def test_workers_of_a_cluster_write_nothing(tmp_path):
    drawn = GraphViz()
    drawn.set("graph_viz_path", str(tmp_path / "no folder" / "graph.dot"))
    there = pickle.loads(pickle.dumps(drawn))
    assert there.has("graph_viz_path")
    assert there.apply(None) is False
