"""Damaged models and unusual ones: an error that names the node, never one of Python's."""

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import dpexec as fluid
from dpexec.onnx import LoadError, UnsupportedError, load

FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64
info = helper.make_tensor_value_info
node = helper.make_node


def model(nodes, inputs, outputs, arrays=None, opset=17, functions=()):
    constants = [numpy_helper.from_array(value, name) for name, value in (arrays or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid("own", 1) for _ in functions)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)


def net():
    """A small net with a branch, a loop, and arithmetic on shapes."""
    branch = [
        helper.make_graph([node(kind, ["r"], [kind])], kind, [], [info(kind, FLOAT, ["n", 4])])
        for kind in ("Tanh", "Exp")
    ]
    body = helper.make_graph(
        [node("Add", ["state", "bias"], ["next"]), node("Identity", ["going"], ["again"])],
        "body",
        [info("i", LONG, []), info("going", TensorProto.BOOL, []), info("state", FLOAT, None)],
        [info("again", TensorProto.BOOL, []), info("next", FLOAT, None)],
    )
    nodes = [
        node("MatMul", ["x", "weight"], ["m"], name="product"),
        node("Relu", ["m"], ["r"]),
        node("If", ["yes"], ["b"], then_branch=branch[0], else_branch=branch[1]),
        node("Loop", ["rounds", "", "b"], ["l"], body=body),
        node("Shape", ["l"], ["s"]),
        node("Slice", ["s", "one", "two"], ["w"]),
        node("Concat", ["minus", "w"], ["t"], axis=0),
        node("Reshape", ["l", "t"], ["y"]),
    ]
    arrays = {
        "weight": np.ones((3, 4), "float32"), "bias": np.ones(4, "float32"),
        "rounds": np.array(3), "one": np.array([1]), "two": np.array([2]),
        "minus": np.array([-1]),
    }  # fmt: skip
    inputs = [info("x", FLOAT, ["n", 3]), info("yes", TensorProto.BOOL, [1])]
    return model(nodes, inputs, [info("y", FLOAT, None)], arrays)


WHOLE = net().SerializeToString()
PLACES = st.integers(0, len(WHOLE) - 1)
DAMAGES = st.lists(st.tuples(PLACES, st.binary(max_size=4), st.integers(0, 9)), max_size=5)


def loads_or_says_why(given):
    try:
        program, _, fetches = load(given)
    except LoadError as error:
        why = str(error)
    else:
        why = "it can be loaded"
        assert all(program.global_block().has_var(var.name) for var in fetches)
    assert len(why) > 15


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(DAMAGES)
def test_damaged_bytes(damages):
    data = bytearray(WHOLE)
    for place, new, count in damages:
        data[place : place + count] = new
    loads_or_says_why(bytes(data))


NAMES = st.sampled_from(["x", "m", "b", "t", "y", "", "nothing", "weight", "ä/ö ü", "a\nb"])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_other_edges(data):
    made = net()
    for _ in range(data.draw(st.integers(1, 3))):
        chosen = made.graph.node[data.draw(st.integers(0, len(made.graph.node) - 1))]
        kind = data.draw(st.sampled_from(["input", "output", "type", "gone", "attribute"]))
        if kind == "gone" and len(made.graph.node) > 1:
            made.graph.node.remove(chosen)
        elif kind == "type":
            chosen.op_type = data.draw(st.sampled_from(["Add", "Conv", "Loop", "LSTM", "Foo"]))
        elif kind == "attribute":
            del chosen.attribute[:]
        elif kind in ("input", "output") and getattr(chosen, kind):
            names = getattr(chosen, kind)
            names[data.draw(st.integers(0, len(names) - 1))] = data.draw(NAMES)
    loads_or_says_why(made)


def test_the_whole_net():
    program, _, fetches = load(WHOLE)
    feed = {"x": np.ones((2, 3), "float32"), "yes": np.array([True])}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(program, feed, fetches)
    expected = onnxruntime.InferenceSession(WHOLE).run(None, feed)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


X, Y = [info("x", FLOAT, ["n", 2])], [info("y", FLOAT, ["n", 2])]


@pytest.mark.parametrize(
    ("nodes", "arrays", "problem"),
    [
        ([node("Add", ["x", "z"], ["y"])], {}, "Add 'y' reads 'z', which no input"),
        ([node("Cast", ["x"], ["y"])], {}, "Cast 'y' lacks the attribute to"),
        ([node("Relu", ["x"], ["z"])], {}, "output y"),
    ],
)
def test_what_is_missing(nodes, arrays, problem):
    with pytest.raises(LoadError, match=problem):
        load(model(nodes, X, Y, arrays))


def test_two_nodes_with_one_output():
    nodes = [node("Relu", ["x"], ["y"]), node("Exp", ["x"], ["y"])]
    with pytest.raises(LoadError, match="Exp 'y' makes 'y', which the graph has already"):
        load(model(nodes, X, Y))


def test_sizes_beyond_any_memory_and_attributes_without_a_type():
    """The inference of onnx would compute with the first for minutes."""
    made = net()
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2**62
    with pytest.raises(LoadError, match="x has the size 4,611"):
        load(made)
    made = net()
    made.graph.node[2].attribute[0].type = 0
    with pytest.raises(LoadError, match="_branch of 'b' has no type"):
        load(made)


def test_a_file_of_more_than_two_gigabytes(tmp_path):
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.truncate(2**31 + 5)  # no blocks on the disk
    with pytest.raises(LoadError, match=r"has 2,147,483,653 bytes, but .* external data"):
        load(path)


def test_numbers_that_do_not_fit_their_shape():
    made = model([node("Add", ["x", "w"], ["y"])], X, Y, {"w": np.ones(2, "float32")})
    made.graph.initializer[0].raw_data = b"123"
    with pytest.raises(LoadError, match="the numbers of initializer w cannot be read"):
        load(made)


def test_external_data(tmp_path):
    made = model([node("Add", ["x", "w"], ["y"])], X, Y, {"w": np.ones(2, "float32")})
    path = tmp_path / "net.onnx"
    onnx.save_model(made, path, save_as_external_data=True, location="net.data", size_threshold=0)
    feed = {"x": np.zeros((1, 2), "float32")}
    program, _, fetches = load(path)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(program, feed, fetches)
    np.testing.assert_array_equal(found, [[1, 1]])
    (tmp_path / "net.data").unlink()
    with pytest.raises(LoadError, match=r"numbers of initializer w cannot be read: .*net\.data"):
        load(path)


def test_initializers_that_are_inputs_have_their_values():
    inputs = [*X, info("w", FLOAT, [2])]
    made = model([node("Mul", ["x", "w"], ["y"])], inputs, Y, {"w": np.array([2, 3], "float32")})
    program, feeds, fetches = load(made)
    assert feeds == ["x"]
    x = np.ones((1, 2), "float32")
    (found,) = fluid.Executor(fluid.CPUPlace()).run(program, {"x": x}, fetches)
    np.testing.assert_array_equal(found, [[2, 3]])


@pytest.mark.parametrize("name", ["ä/ö", "a b", "x:0", "/m/0.weight", "名前", "../up", "q\"'"])
def test_names_with_odd_characters(name, tmp_path):
    arrays = {f"{name}.w": np.array([2, 3], "float32")}
    nodes = [node("Mul", [name, f"{name}.w"], [f"{name}.m"]), node("Relu", [f"{name}.m"], ["y"])]
    program, feeds, fetches = load(model(nodes, [info(name, FLOAT, ["n", 2])], Y, arrays))
    exe, feed = fluid.Executor(fluid.CPUPlace()), {name: np.ones((1, 2), "float32")}
    np.testing.assert_array_equal(exe.run(program, feed, fetches)[0], [[2, 3]])
    fluid.io.save_inference_model(str(tmp_path / "m"), feeds, fetches, exe, program)
    with fluid.scope_guard(fluid.Scope()):
        again, _, fetches = fluid.io.load_inference_model(str(tmp_path / "m"), exe)
        np.testing.assert_array_equal(exe.run(again, feed, fetches)[0], [[2, 3]])


def test_functions_of_the_model_and_names_of_outer_graphs():
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    branch = helper.make_graph(
        [node("Twice", ["r"], ["z"], domain="own")], "inner", [], [info("z", FLOAT, ["n", 2])]
    )
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch),
    ]
    inputs = [*X, info("yes", TensorProto.BOOL, [1])]
    program, _, fetches = load(model(nodes, inputs, Y, functions=[twice]))
    feed = {"x": np.array([[1, -1]], "float32"), "yes": np.array([False])}
    np.testing.assert_array_equal(
        fluid.Executor(fluid.CPUPlace()).run(program, feed, fetches)[0], [[2, 0]]
    )


@pytest.mark.parametrize("opset", range(7, 13))
def test_older_versions(opset):
    nodes = [
        node("Unsqueeze", ["x"], ["u"], axes=[1]),
        node("Squeeze", ["u"], ["s"], axes=[1]),
        node("Softmax", ["s"], ["p"], axis=1),
        node("ReduceSum", ["p"], ["t"], axes=[1], keepdims=1),
        node("Div", ["p", "t"], ["y"]),
    ]
    made = model(nodes, X, Y, opset=opset)
    program, _, fetches = load(made)
    feed = {"x": np.random.default_rng(0).normal(size=(3, 2)).astype("float32")}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(program, feed, fetches)
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feed)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_versions_that_are_too_old_or_too_new():
    for opset in (6, 99):
        with pytest.raises(UnsupportedError, match=f"version {opset} of ONNX's operators; 7 to"):
            load(model([node("Relu", ["x"], ["y"])], X, Y, opset=opset))


def test_empty_graphs():
    with pytest.raises(LoadError, match="holds no ONNX model"):
        load(b"")
    with pytest.raises(LoadError):
        load(model([], [], []))
    program, feeds, fetches = load(model([], X, [info("x", FLOAT, ["n", 2])]))
    x = np.ones((1, 2), "float32")
    (found,) = fluid.Executor(fluid.CPUPlace()).run(program, {"x": x}, fetches)
    np.testing.assert_array_equal(found, x)
    assert feeds == ["x"]


@pytest.mark.parametrize(
    "feed",
    [
        {"x": np.ones((1, 3), "float32")},
        {"x": np.ones((1, 2), "int64")},
        {"x": np.ones(2, "float32")},
        {"z": np.ones((1, 2), "float32")},
        {},
    ],
)
def test_wrong_feeds(feed):
    program, _, fetches = load(model([node("Relu", ["x"], ["y"])], X, Y))
    with pytest.raises((fluid.core.EnforceNotMet, ValueError, KeyError), match="x"):
        fluid.Executor(fluid.CPUPlace()).run(program, feed, fetches)
