"""Quantized models compute with integers: nodes between DequantizeLinear and QuantizeLinear."""

import numpy as np
import pytest

import dpexec as fluid

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

from dpexec.onnx import load
from tests.onnx.loading.test_other_writers import by_onnxruntime, normal

KINDS = {"uint8": np.uint8, "int8": np.int8}
node = helper.make_node


class Net:
    """A chain of nodes on levels, each followed by its rounding; ``kind``: of the levels."""

    def __init__(self, kind, shape, scale=0.05, point=None):
        self.kind, self.shape = KINDS[kind], shape
        self.nodes, self.weights, self.count = [], {}, 0
        self.scale = scale
        self.at = self.levels("x", scale, point)

    def add(self, name, array):
        self.weights[name] = np.asarray(array)
        return name

    def levels(self, name, scale, point):
        """Round a value, and make real numbers of it again."""
        self.count += 1
        unit = self.add(f"s{self.count}", np.float32(scale))
        zero = self.add(f"z{self.count}", self.kind(0 if point is None else point))
        self.nodes.append(node("QuantizeLinear", [name, unit, zero], [f"{name}.q"]))
        self.nodes.append(node("DequantizeLinear", [f"{name}.q", unit, zero], [f"{name}.d"]))
        return f"{name}.d"

    def weight(self, shape, axis, trained=False):
        """Levels of weights with a scale for each channel; ``trained``: real ones, rounded."""
        self.count += 1
        count = shape[axis]
        units = np.geomspace(0.0202, 0.0414, count).astype(np.float32)
        whole = np.random.default_rng(self.count).integers(-63, 64, shape).astype(np.int8)
        unit, zero = (
            self.add(f"u{self.count}", units),
            self.add(f"p{self.count}", [np.int8(0)] * count),
        )
        self.weights[zero] = np.zeros(count, np.int8)
        name = f"w{self.count}"
        if trained:
            lengths = [-1 if a == axis else 1 for a in range(len(shape))]
            self.add(f"{name}.real", (whole * units.reshape(lengths)).astype(np.float32))
            self.nodes.append(
                node("QuantizeLinear", [f"{name}.real", unit, zero], [name], axis=axis)
            )
        else:
            self.add(name, whole)
        self.nodes.append(node("DequantizeLinear", [name, unit, zero], [f"{name}.d"], axis=axis))
        return f"{name}.d", units

    def bias(self, units, scale):
        """A bias of integers."""
        whole = np.arange(-len(units), len(units), 2).astype(np.int32) * 50
        name = self.add(f"b{self.count}", whole)
        unit = self.add(f"bu{self.count}", (units * np.float32(scale)).astype(np.float32))
        zero = self.add(f"bz{self.count}", np.zeros(len(units), np.int32))
        self.nodes.append(node("DequantizeLinear", [name, unit, zero], [f"{name}.d"], axis=0))
        return f"{name}.d"

    def then(self, op_type, inputs, scale, point, relu=False, **attrs):
        """A node, an optional relu, and the rounding of what it gives."""
        self.count += 1
        name = f"{op_type}{self.count}"
        self.nodes.append(node(op_type, [self.at, *inputs], [name], **attrs))
        if relu:
            self.nodes.append(node("Relu", [name], [f"{name}.relu"]))
            name = f"{name}.relu"
        self.at = self.levels(name, scale, point) if scale else name
        self.scale = scale

    def model(self):
        """The model, whose result is the last value."""
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(self.at, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def computed(proto, x):
    """What both compute, and the program's operators.

    Weights are below 64: onnxruntime adds two products in 16 bits on processors without VNNI.
    """
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = load(proto)
        [made] = fluid.Executor(fluid.CPUPlace()).run(program, feed={"x": x}, fetch_list=fetches)
    return made, by_onnxruntime(proto, {"x": x})[0], program.global_block().ops


def integer_products(ops):
    return [op for op in ops if op.attrs.get("use_mkldnn") and "Scale_in" in op.attrs]


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [("uint8", 120, 0), ("uint8", 0, 100), ("int8", 0, 0), ("int8", 5, -128), ("int8", -128, 30)],
)
@pytest.mark.parametrize(("trained", "groups"), [(False, 1), (True, 2)])
def test_convolutions_compute_with_levels(kind, first, second, trained, groups):
    net = Net(kind, ["n", 4, 7, 7], 0.0313, first)
    weight, units = net.weight((6, 4 // groups, 3, 3), 0, trained)
    attrs = {"pads": [1, 1, 1, 1], "strides": [3 - groups] * 2, "group": groups}
    inputs = [weight, net.bias(units, net.scale)]
    net.then("Conv", inputs, 0.4137, second, relu=second in (0, -128), **attrs)
    x = np.random.default_rng(0).standard_normal((2, 4, 7, 7)).astype(np.float32)
    made, wanted, ops = computed(net.model(), x)
    assert len(integer_products(ops)) == 1
    assert "cast" not in [op.type for op in ops]
    assert np.abs(made - wanted).max() < 0.414  # a level where a number lies between two
    assert (np.abs(made - wanted) > 1e-3).mean() < 0.02 and len(np.unique(wanted)) > 20


@pytest.mark.parametrize("last", ["levels", "real numbers"])
@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
def test_products_compute_with_levels(op_type, last):
    net = Net("uint8", ["n", 8], 0.0213, 110)
    for size, out in ((8, 6), (6, 5)):
        turned = op_type == "Gemm"
        weight, units = net.weight((out, size) if turned else (size, out), 0 if turned else 1)
        inputs = [weight, net.bias(units, net.scale)] if turned else [weight]
        end = last == "real numbers" and out == 5
        attrs = {"transB": 1} if turned else {}
        net.then(op_type, inputs, 0 if end else 0.1137, 130, **attrs)
    made, wanted, ops = computed(
        net.model(), np.random.default_rng(0).standard_normal((4, 8), np.float32)
    )
    assert len(integer_products(ops)) == 2
    np.testing.assert_allclose(made, wanted, atol=1e-4)


def test_levels_with_sign_are_numbers_for_other_operators():
    """What reads them besides products gets integers."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("q", TensorProto.INT8, None),
        ],
        [numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(np.int8(-3), "z")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x = np.array([[0.25, 0.75, -1.25], [900, -900, -0.25]], np.float32)  # ties, and ends
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = load(proto)
        made = fluid.Executor(fluid.CPUPlace()).run(program, feed={"x": x}, fetch_list=fetches)
    for got, wanted in zip(made, by_onnxruntime(proto, {"x": x}), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


def test_a_bias_with_another_scale_is_added_as_real_numbers():
    net = Net("uint8", ["n", 2, 4, 4], 0.02, 0)
    weight, units = net.weight((3, 2, 1, 1), 0)
    net.then("Conv", [weight, net.bias(units, 1.0)], 40.0, 128)
    made, wanted, ops = computed(net.model(), normal(2, 2, 4, 4))
    assert not integer_products(ops)
    np.testing.assert_allclose(made, wanted, atol=1e-4)


def test_products_of_what_each_batch_rounds():
    """quantize_dynamic writes it: the zero point of the left side is a run's."""
    rng = np.random.default_rng(0)
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z", "p"], ["i"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["s", "u"], ["su"]),
        node("Mul", ["f", "su"], ["y"]),
    ]
    weights = {
        "w": rng.integers(-60, 60, (6, 5)).astype(np.int8),
        "p": np.int8(3),
        "u": np.float32(0.02),
    }
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    made, wanted, ops = computed(proto, normal(4, 6))
    assert len(integer_products(ops)) == 1
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op_type", ["MatMul", "Conv"])
def test_sums_beyond_16_bits_are_exact(op_type):
    """Without VNNI oneDNN adds two products in 16 bits, which saturates: NumPy adds them up."""
    shape = {"MatMul": (8, 3), "Conv": (3, 8, 1, 1)}[op_type]
    x = np.full((2, 8) if op_type == "MatMul" else (2, 8, 2, 2), 255, np.float32)
    nodes = [
        node("Cast", ["x"], ["q"], to=TensorProto.UINT8),
        node("DequantizeLinear", ["q", "one", "zx"], ["d"]),
        node("DequantizeLinear", ["w", "one", "zw"], ["wd"]),
        node(op_type, ["d", "wd"], ["y"]),
    ]
    weights = {"one": np.float32(1), "zx": np.uint8(0), "zw": np.int8(0)}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *x.shape[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(array, name)
            for name, array in (weights | {"w": np.full(shape, 127, np.int8)}).items()
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = load(proto)
        [made] = fluid.Executor(fluid.CPUPlace()).run(program, feed={"x": x}, fetch_list=fetches)
        assert len(integer_products(program.global_block().ops)) == 1
    assert np.all(made == 255 * 127 * 8)
