"""``GRU`` as one operator, random numbers, and nodes without what ONNX demands."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dpexec as fluid
from dpexec.onnx import LoadError, load
from dpexec.onnx.loading.operators import fused_gru

FLOAT = TensorProto.FLOAT
info = helper.make_tensor_value_info
BATCH, WIDTH, SIZE = 3, 4, 5


def model(nodes, inputs, outputs, arrays=None):
    constants = [numpy_helper.from_array(value, name) for name, value in (arrays or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def gru(direction, lengths, initial, activations=None):
    rng = np.random.default_rng(0)
    ways = 2 if direction == "bidirectional" else 1
    shapes = {"W": (ways, 3 * SIZE, WIDTH), "R": (ways, 3 * SIZE, SIZE), "B": (ways, 6 * SIZE)}
    shapes |= {"H": (ways, BATCH, SIZE)} if initial else {}
    arrays = {name: rng.normal(size=s).astype("float32") / 2 for name, s in shapes.items()}
    inputs = ["x", "W", "R", "B", "lengths" if lengths else "", "H" if initial else ""]
    kinds = {"activations": activations * ways} if activations else {}
    node = helper.make_node(
        "GRU", inputs, ["y", "last"], hidden_size=SIZE, direction=direction, **kinds
    )
    ports = [info("x", FLOAT, ["steps", BATCH, WIDTH])]
    ports += [info("lengths", TensorProto.INT32, [BATCH])] if lengths else []
    return model([node], ports, [info("y", FLOAT, None), info("last", FLOAT, None)], arrays)


CASES = [
    ("forward", False, False, None),
    ("reverse", False, True, ["Relu", "Sigmoid"]),
    ("bidirectional", False, True, None),
    ("bidirectional", True, True, None),
    ("reverse", True, False, None),
]


def slopes(made, feed):
    """The gradients of all weights."""
    program, _, fetches = load(made)
    with fluid.program_guard(program):
        total = sum(fluid.layers.reduce_sum(fluid.layers.square(each)) for each in fetches)
        pairs = fluid.backward.append_backward(total)
    exe = fluid.Executor(fluid.CPUPlace())
    found = exe.run(program, feed, [grad for _, grad in pairs])
    return dict(zip((weight.name for weight, _ in pairs), found, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_gru_is_one_operator(case, monkeypatch):
    made = gru(*case)
    feed = {"x": np.random.default_rng(1).normal(size=(6, BATCH, WIDTH)).astype("float32")}
    if case[1]:
        feed["lengths"] = np.array([6, 2, 4], "int32")
    program, _, fetches = load(made)
    kinds = {op.type for op in program.global_block().ops}
    assert "gru" in kinds
    assert "recurrent" not in kinds
    found = fluid.Executor(fluid.CPUPlace()).run(program, feed, fetches)
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feed)
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)
    fused = slopes(made, feed)
    monkeypatch.setattr(fused_gru, "fuses", lambda node, number: False)
    for name, value in slopes(made, feed).items():
        np.testing.assert_allclose(fused[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("op_type", "attrs", "mean", "deviation"),
    [
        ("RandomNormalLike", {"mean": 3.0, "scale": 0.5}, 3.0, 0.5),
        ("RandomUniformLike", {"low": -1.0, "high": 3.0}, 1.0, 4 / 12**0.5),
    ],
)
def test_random_numbers_in_an_open_shape(op_type, attrs, mean, deviation):
    node = helper.make_node(op_type, ["x"], ["y"], **attrs)
    made = model([node], [info("x", FLOAT, ["n", 100])], [info("y", FLOAT, ["n", 100])])
    program, _, fetches = load(made)
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.zeros((50, 100), "float32")}
    one, two = (exe.run(program, feed, fetches)[0] for _ in range(2))
    assert one.shape == (50, 100)
    assert not np.array_equal(one, two)
    np.testing.assert_allclose([one.mean(), one.std()], [mean, deviation], rtol=0.1)


def test_a_seed_of_a_node_gives_the_same_numbers():
    node = helper.make_node("RandomNormal", [], ["y"], shape=[4, 3], seed=2.5)
    made = model([node], [], [info("y", FLOAT, [4, 3])])
    runs = []
    for _ in range(2):
        program, _, fetches = load(made)
        runs.append(fluid.Executor(fluid.CPUPlace()).run(program, {}, fetches)[0])
    np.testing.assert_array_equal(*runs)


def test_chances():
    node = helper.make_node("Bernoulli", ["x"], ["y"], dtype=TensorProto.INT64)
    made = model([node], [info("x", FLOAT, ["n"])], [info("y", TensorProto.INT64, ["n"])])
    program, _, fetches = load(made)
    chances = np.repeat(np.array([0, 1, 0.25], "float32"), 1000)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(program, {"x": chances}, fetches)
    assert found.dtype == np.int64
    np.testing.assert_allclose(found.reshape(3, -1).mean(axis=1), [0, 1, 0.25], atol=0.05)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "problem"),
    [
        ("Add", ["x"], ["y"], r"Add 'y' has 1 inputs, but must have 2"),
        ("Add", ["x", ""], ["y"], r"Add 'y' lacks input 1, B"),
        ("Relu", ["x"], ["y", "z"], r"Relu 'y, z' has 2 outputs, not 1"),
        ("Sum", [], ["y"], r"Sum 'y' has 0 inputs, but must have 1 or more"),
        ("Clip", ["x", "x", "x", "x"], ["y"], r"Clip 'y' has 4 inputs, but must have 1 to 3"),
    ],
)
def test_nodes_without_what_onnx_demands(op_type, inputs, outputs, problem):
    node = helper.make_node(op_type, inputs, outputs)
    made = model([node], [info("x", FLOAT, [2])], [info("y", FLOAT, [2])])
    with pytest.raises(LoadError, match=problem):
        load(made)


def test_parts_without_elements_are_left_out_of_a_concatenation():
    arrays = {"none": np.zeros((2, 0), "float32"), "end": np.array([3]), "one": np.array([1])}
    nodes = [
        helper.make_node("Slice", ["x", "end", "end", "one"], ["rest"]),
        helper.make_node("Neg", ["rest"], ["turned"]),
        helper.make_node("Concat", ["none", "x", "turned"], ["y"], axis=1),
    ]
    made = model(nodes, [info("x", FLOAT, ["n", 3])], [info("y", FLOAT, ["n", 3])], arrays)
    program, _, fetches = load(made)
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(
        fluid.Executor(fluid.CPUPlace()).run(program, {"x": x}, fetches)[0], x
    )
