"""Bits of integers, places of elements, and parts: what exporters write now and then."""

import numpy as np
import pytest

import dpexec as fluid

pytest.importorskip("onnx")
from onnx import TensorProto, helper

from dpexec.onnx import UnsupportedError, load
from tests.onnx.loading.test_other_writers import compare, model, normal

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def of_integers(nodes, dtype, weights=()):
    proto = model(nodes, {"x": ["n", 4]}, {"z": FLOAT}, weights, opset=18)
    for info in (proto.graph.input[0], proto.graph.output[0]):
        info.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return proto


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_bits_of_integers(dtype):
    limits = np.iinfo(dtype)
    x = np.array([[limits.min, limits.max, 1, 100], [7, limits.max // 3, 0, 2]], dtype)
    y = np.array([5, limits.max - 2, 3, limits.max // 5], dtype)
    nodes = [
        helper.make_node("BitwiseOr", ["x", "y"], ["a"]),
        helper.make_node("BitwiseXor", ["a", "x"], ["b"]),
        helper.make_node("BitwiseNot", ["b"], ["c"]),
        helper.make_node("BitwiseAnd", ["c", "y"], ["d"]),
        helper.make_node("BitwiseAnd", ["d", "low"], ["z"]),
    ]
    compare(of_integers(nodes, dtype, {"y": y, "low": np.array(63, dtype)}), {"x": x})


def test_bytes_are_shifted():
    nodes = [
        helper.make_node("BitShift", ["x", "n"], ["y"], direction="LEFT"),
        helper.make_node("BitShift", ["y", "one"], ["z"], direction="RIGHT"),
    ]
    weights = {"n": np.array([0, 1, 7, 3], np.uint8), "one": np.array(1, np.uint8)}
    x = np.array([[255, 255, 255, 17], [1, 128, 3, 200]], np.uint8)
    compare(of_integers(nodes, "uint8", weights), {"x": x})


def test_operators_without_a_mapping_may_be_computed_while_loading():
    """``MelWeightMatrix`` has none; of constants it is a matrix."""
    numbers = {"bins": 2, "length": 6, "rate": 8000, "low": 0.0, "high": 4000.0}
    constants = [
        helper.make_node("Constant", [], [name], **{f"value_{type(v).__name__}": v})
        for name, v in numbers.items()
    ]
    nodes = [
        helper.make_node("MelWeightMatrix", list(numbers), ["m"]),
        helper.make_node("MatMul", ["x", "m"], ["z"]),
    ]
    compare(model([*constants, *nodes], {"x": ["n", 4]}, {"z": FLOAT}), {"x": normal(2, 4)})
    varying = [helper.make_node("StringSplit", ["x"], ["z", "counts"])]
    with pytest.raises(UnsupportedError, match="StringSplit: z"):
        load(model(varying, {"x": [2, 2]}, {"z": FLOAT}))


def test_the_largest_of_a_row_is_a_tensor_of_one_number():
    node = helper.make_node("ArgMax", ["x"], ["z"], axis=0, keepdims=0)
    proto = model([node], {"x": [4]}, {"z": INT64})
    program, feeds, fetches = load(proto)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(
        program, {feeds[0]: np.array([1, 3, 2, 0], "float32")}, fetches
    )
    assert found.tolist() == [1]


@pytest.mark.parametrize(
    ("size", "scale", "where", "rounding"),
    [
        (8, 0.6, "asymmetric", "floor"),  # element 3 is at 5, in doubles below it
        (25, 1.8, "half_pixel", "round_prefer_floor"),  # 45 elements, in doubles 44
        (5, 1.1, "asymmetric", "floor"),  # as many elements, but not the same
        (29, 1.9, "pytorch_half_pixel", "round_prefer_ceil"),
    ],
)
def test_nearest_elements_of_scaled_images(size, scale, where, rounding):
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["y"], mode="nearest",
        coordinate_transformation_mode=where, nearest_mode=rounding,
    )  # fmt: skip
    scales = {"scales": np.array([1, 1, 2, scale], np.float32)}
    compare(model([node], {"x": [1, 2, size, size]}, {"y": FLOAT}, scales), {
        "x": normal(1, 2, size, size)
    })  # fmt: skip


def parts(position):
    """Three parts of 2 columns, and one of none."""
    nodes = [
        helper.make_node("SplitToSequence", ["x", "sizes"], ["s"], axis=1),
        helper.make_node("ConcatFromSequence", ["s"], ["all"], axis=1),
        helper.make_node("SequenceAt", ["s", "position"], ["one"]),
        helper.make_node("Concat", ["all", "one"], ["y"], axis=1),
    ]
    weights = {"sizes": np.array([2, 2, 2, 0]), "position": np.array(position)}
    return model(nodes, {"x": ["n", 6]}, {"y": FLOAT}, weights)


def test_sequences_may_have_empty_parts_that_nobody_reads():
    """As PyTorch's chunk writes them."""
    compare(parts(1), {"x": normal(3, 6)})
    with pytest.raises(UnsupportedError, match="SequenceAt 'one': it reads an empty part"):
        load(parts(3))
