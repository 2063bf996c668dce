"""``IrGraph``: programs to graphs and back, with the counts of Paddle 1.8.5."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.framework import IrGraph, IrNode, IrOpNode, IrVarNode

PARAMETERS = [f"{layer}_0.{name}" for layer in ("conv2d", "fc") for name in ("b_0", "w_0")]


@pytest.fixture
def trained():
    """A program that trains a small net, and its loss."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image = fluid.data("img", [None, 1, 12, 12])
        label = fluid.data("lab", [None, 1], "int64")
        hidden = fluid.nets.simple_img_conv_pool(image, 4, 3, 2, 2, act="relu")
        hidden = fluid.layers.batch_norm(hidden)
        prediction = fluid.layers.fc(hidden, 10, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return main, startup, loss


def graph_of(program, **kwargs):
    return IrGraph(fluid.core.Graph(program.desc), **kwargs)


def types(program):
    return [op.type for op in program.global_block().ops]


def find(nodes, name):
    return next(node for node in sorted(nodes, key=IrNode.id) if node.name() == name)


def test_nodes_are_operators_and_versions_of_variables(trained):
    graph = graph_of(trained[0])
    nodes = sorted(graph.all_nodes(), key=IrNode.id)
    assert [node.name() for node in nodes[:5]] == [
        "conv2d", "conv2d_0.w_0", "img", "conv2d_0.tmp_0", "elementwise_add"
    ]  # fmt: skip
    assert len(nodes) == 94
    assert len(graph.all_op_nodes()) == 27
    assert len(graph.all_var_nodes()) == 67
    kept = sorted(node.name() for node in graph.all_persistable_nodes())
    assert len(kept) == 29
    assert [name for name in kept if name in PARAMETERS] == sorted(2 * PARAMETERS)
    assert sum(node.is_ctrl_var() for node in graph.all_var_nodes()) == 6
    first, then = (n for n in nodes if n.name() == "batch_norm_0.b_0")
    assert [(len(n.inputs), len(n.outputs)) for n in (first, then)] == [(0, 3), (1, 0)]


def test_a_node_is_one_object(trained):
    graph = graph_of(trained[0])
    conv = find(graph.all_op_nodes(), "conv2d")
    weight = conv.inputs[0]
    assert weight.outputs[0] is conv and weight.node is weight
    assert isinstance(conv, IrOpNode) and conv.is_op() and not conv.is_var()
    assert isinstance(weight, IrVarNode) and weight.is_var() and not weight.is_op()
    assert conv.node_type() == IrNode.Type.Operation != weight.node_type()
    assert (weight.var().name(), weight.op(), conv.var()) == ("conv2d_0.w_0", None, None)
    assert (weight.shape(), weight.persistable()) == ([4, 1, 3, 3], True)
    assert repr(conv) == "<IrOpNode conv2d (0)>"


def test_a_graph_becomes_its_program_again(trained):
    main = trained[0]
    graph = graph_of(main)
    made = graph.to_program()
    assert types(made) == types(main) == [node.name() for node in graph.topology_sort()]
    assert set(made.global_block().vars) == set(main.global_block().vars)
    assert [p.name for p in made.all_parameters()] == [p.name for p in main.all_parameters()]
    assert types(graph.clone().to_program()) == types(main)


def test_operators_that_need_each_other_are_a_circle(trained):
    graph = graph_of(trained[0])
    assert not graph.has_circle()
    adjacent = {a.name(): {b.name() for b in bs} for a, bs in graph.build_adjacency_list().items()}
    assert adjacent["batch_norm_grad"] == {"batch_norm", "mul_grad", "pool2d"}
    relu, conv = (find(graph.all_op_nodes(), name) for name in ("relu", "conv2d"))
    graph.link_to(relu.outputs[0], conv)
    assert graph.has_circle()
    with pytest.raises(ValueError, match="circle through"):
        graph.topology_sort()


def test_a_clone_is_apart(trained):
    graph = graph_of(trained[0], for_test=True)
    twin = graph.clone()
    assert twin.is_test()
    find(twin.all_op_nodes(), "conv2d").set_attr("groups", 7)
    twin.safe_remove_nodes(find(twin.all_op_nodes(), "mean"))
    assert find(graph.all_op_nodes(), "conv2d").op().attr("groups") == 1
    assert (len(graph.all_op_nodes()), len(twin.all_op_nodes())) == (27, 26)


def test_graphs_are_counted():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        for name in ("a", "b"):
            fluid.layers.relu(fluid.data(name, [None, 4]))
    assert graph_of(main).graph_num() == 2


def test_an_operator_is_put_between(trained):
    """A rewritten graph runs as the program that it stands for, on two devices too."""
    main, startup, loss = trained
    graph = graph_of(main)
    relu = find(graph.all_op_nodes(), "relu")
    read = relu.inputs[0]
    scaled = graph.create_var_node("scaled", read.type(), read.shape(), read.dtype())
    forward = fluid.core.op_proto_and_checker_maker.OpRole.Forward
    scale = graph.create_op_node(
        "scale", {"scale": 0.0, "op_role": forward}, {"X": read}, {"Out": [scaled]}
    )
    graph.link_to(read, scale)
    graph.link_to(scale, scaled)
    graph.update_input_link(read, scaled, relu)
    graph.resolve_hazard()
    assert types(graph.to_program())[:4] == ["conv2d", "elementwise_add", "scale", "relu"]

    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    feed = {"img": np.ones([4, 1, 12, 12], np.float32), "lab": np.zeros([4, 1], np.int64)}
    compiled = fluid.CompiledProgram(graph.graph)
    compiled.with_data_parallel(loss.name, places=[fluid.CPUPlace()] * 2)
    found, losses = exe.run(compiled, feed, [relu.output("Out")[0], loss.name], scope=scope)
    assert not found.any()
    np.testing.assert_allclose(losses, np.log(10), rtol=1e-6)


def test_a_loop_keeps_its_body():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        i, n = (fluid.layers.fill_constant([1], "int64", value) for value in (0, 5))
        going = fluid.layers.less_than(i, n)
        with fluid.layers.While(going).block():
            fluid.layers.increment(i)
            fluid.layers.less_than(i, n, cond=going)
    made = graph_of(main).clone().to_program()
    exe = fluid.Executor(fluid.CPUPlace())
    assert exe.run(made, fetch_list=[i.name])[0].tolist() == [5]


def test_outputs_can_be_given_to_other_variables():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        y = fluid.layers.relu(fluid.data("x", [None, 4]))
    graph = graph_of(main)
    relu, old = (find(graph.all_nodes(), name) for name in ("relu", y.name))
    new = graph.create_var_node_from_desc(old.var())
    other = graph.create_persistable_node("kept", old.type(), [2, 4], old.dtype())
    graph.update_output_link(old, other, relu)
    graph.safe_remove_nodes({old, new})
    assert (relu.output("Out"), relu.outputs, other.inputs) == (["kept"], [other], [relu])
    assert other.persistable()
    graph.create_op_node_from_desc(relu.op())
    assert types(graph.to_program()) == ["relu", "relu"]


def test_what_is_not_in_the_graph_is_refused(trained):
    graph, other = graph_of(trained[0]), graph_of(fluid.Program())
    stranger = other.create_control_dep_var()
    conv = find(graph.all_op_nodes(), "conv2d")
    with pytest.raises(AssertionError, match="must be in the graph nodes"):
        graph.link_to(stranger, conv)
    with pytest.raises(AssertionError, match="Cannot find the target node in the giving set"):
        graph._find_node_by_name(graph.all_op_nodes(), "nothing")
    with pytest.raises(AssertionError, match="graph must be the instance of"):
        IrGraph(trained[0])
    with pytest.raises(TypeError, match=r"Graph takes program\.desc"):
        fluid.core.Graph(trained[0])


def test_drawings_are_files_for_graphviz(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    graph = graph_of(trained[0])
    mean = find(graph.all_op_nodes(), "mean")
    graph.draw(str(tmp_path / "drawn"), "net", marked_nodes=mean)
    text = (tmp_path / "drawn" / "net.dot").read_text()
    assert text.count("[label=") == 88 and "control_var" not in text
    line = next(line for line in text.splitlines() if "label=mean " in line)
    assert "fillcolor=yellow" in line
    assert "Total ops num = 27." in capsys.readouterr().out
