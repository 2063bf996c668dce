"""Open sizes that are 1 in a run, and other uses of operators that exporters rarely write."""

import numpy as np
import pytest

import dpexec as fluid

pytest.importorskip("onnx")
from onnx import TensorProto, helper

from dpexec.onnx import UnsupportedError, load
from tests.onnx.loading.test_other_writers import compare, model, normal

FLOAT = TensorProto.FLOAT


def one(op_type, feed, sizes, weights=(), opset=17, **attrs):
    """Compare one node on inputs, and then weights."""
    weights = dict(weights)
    node = helper.make_node(op_type, [*feed, *weights], ["y"], **attrs)
    return compare(model([node], sizes, {"y": FLOAT}, weights, opset), feed)


@pytest.mark.parametrize("rows", [1, 3])
def test_an_open_size_of_1_is_expanded(rows):
    one("Expand", {"x": normal(rows, 2)}, {"x": ["n", 2]}, {"shape": np.array([4, 3, 1])})


@pytest.mark.parametrize("rows", [1, 3])
def test_an_open_size_of_1_is_expanded_to_that_of_another_tensor(rows):
    nodes = [
        helper.make_node("Shape", ["like"], ["shape"]),
        helper.make_node("Expand", ["x", "shape"], ["y"]),
    ]
    proto = model(nodes, {"x": ["n", 2], "like": ["m", 2]}, {"y": FLOAT})
    compare(proto, {"x": normal(rows, 2), "like": normal(3, 2)})
    compare(proto, {"x": normal(rows, 2), "like": normal(1, 2)})


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_shares_of_several_open_axes(op_type):
    one(op_type, {"x": normal(2, 3, 4)}, {"x": ["a", "b", "c"]}, opset=11, axis=-2)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_vectors_become_matrices(axis):
    one("Flatten", {"x": normal(5)}, {"x": ["n"]}, axis=axis)


@pytest.mark.parametrize("scale", [(1,), (5,), (3, 5)])
@pytest.mark.parametrize("bias", [(1,), (5,), (3, 5)])
def test_scales_and_biases_of_layers_are_broadcast(scale, bias):
    weights = {"scale": normal(*scale), "bias": normal(*bias)}
    one("LayerNormalization", {"x": normal(2, 3, 5)}, {"x": ["n", 3, 5]}, weights, axis=1)


def test_grids_of_open_sizes():
    feed = {"x": normal(2, 1, 4, 3), "grid": normal(2, 2, 3, 2)}
    one("GridSample", feed, {"x": [2, 1, 4, 3], "grid": ["n", "h", "w", 2]}, align_corners=1)


@pytest.mark.parametrize("point", [np.int8(13), np.array([11, 2, -18], np.int8)])
def test_bytes_with_a_zero_point(point):
    weights = {"scale": np.full(point.shape, 0.1, np.float32), "point": point}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "point"], ["y"]),
    ]
    compare(model(nodes, {"x": ["n", 3]}, {"y": FLOAT}, weights), {"x": normal(4, 3)})


def test_functions_of_newer_models_read_weights():
    """RMSNormalization, RotaryEmbedding and Attention, as decoders have them."""
    x = normal(2, 3, 4, 6)
    sizes = {"x": ["n", 3, 4, 6]}
    one("RMSNormalization", {"x": x}, sizes, {"scale": normal(6)}, opset=23)
    angles = {"cos": normal(2, 4, 3), "sin": normal(2, 4, 3)}
    one("RotaryEmbedding", {"x": x}, {"x": [2, 3, 4, 6]}, angles, opset=23)
    nodes = [helper.make_node("Attention", ["x", "x", "x", "mask"], ["y"], is_causal=1)]
    mask = {"mask": normal(4, 4)}
    compare(model(nodes, {"x": [2, 3, 4, 6]}, {"y": FLOAT}, mask, opset=23), {"x": x})


def test_an_open_number_of_coordinates_is_refused():
    node = helper.make_node("GatherND", ["x", "places"], ["y"])
    proto = model([node], {"x": [3, 4], "places": ["n", "k"]}, {"y": FLOAT})
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(UnsupportedError, match=r"GatherND 'y': the number of coordinates"):
        load(proto)


def test_ratios_of_open_sizes_are_refused():
    attrs = {"mode": "linear", "keep_aspect_ratio_policy": "not_larger"}
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attrs)
    sizes = {"sizes": np.array([1, 1, 4, 4])}
    with pytest.raises(UnsupportedError, match=r"Resize 'y': sizes of axes \[2, 3\] must be known"):
        load(model([node], {"x": [1, 1, "h", "w"]}, {"y": FLOAT}, sizes, opset=18))


@pytest.mark.parametrize("sizes", [(1, 4), (4, 1), (4, 4)])
def test_gradients_where_an_open_size_of_a_condition_may_be_1(sizes):
    """Masks of attention have one head, and only a run tells it."""
    nodes = [
        helper.make_node("Greater", ["c", "zero"], ["chosen"]),
        helper.make_node("Mul", ["x", "w"], ["scaled"]),
        helper.make_node("Where", ["chosen", "scaled", "least"], ["y"]),
    ]
    weights = {"zero": np.float32(0), "least": np.float32(-9), "w": np.ones(3, np.float32)}
    proto = model(nodes, {"c": ["n", "h", 3], "x": ["m", "k", 3]}, {"y": FLOAT}, weights)
    feed = {"c": normal(2, sizes[0], 3), "x": normal(2, sizes[1], 3)}
    compare(proto, feed)
    program, _, [y] = load(proto)
    with fluid.program_guard(program, fluid.Program()):
        [(_, slope)] = fluid.backward.append_backward(fluid.layers.reduce_sum(y))
    [made] = fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=[slope])
    chosen, x = np.broadcast_arrays(feed["c"] > 0, feed["x"])
    np.testing.assert_allclose(made, (chosen * x).sum(axis=(0, 1)), rtol=1e-4, atol=1e-5)


def test_a_number_modulo_an_open_size():
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Mod", ["five", "n"], ["rest"]),
        helper.make_node("Slice", ["x", "rest", "n", "axis"], ["y"]),
    ]
    weights = {"five": np.array([5]), "axis": np.array([1])}
    proto = model(nodes, {"x": ["batch", "n"]}, {"y": FLOAT}, weights)
    compare(proto, {"x": normal(2, 4)})
    compare(proto, {"x": normal(1, 3)})


@pytest.mark.parametrize(
    "equation", ["bii->bi", "ibi->b", "bii,bi->b", "iib,bb->ib", "...ii->...i"]
)
def test_diagonals_of_sums_of_products(equation):
    known = {"i": 3, "b": "n"}
    terms = [term.replace("...", "b") for term in equation.split("->")[0].split(",")]
    if "bb" in equation:
        known["b"] = 2
    nodes = [helper.make_node("Einsum", [*"xw"[: len(terms)]], ["y"], equation=equation)]
    sizes = {n: [known[c] for c in t] for n, t in zip("xw", terms, strict=False)}
    feed = {n: normal(*({"n": 2}.get(s, s) for s in sizes[n])) for n in sizes}
    compare(model(nodes, sizes, {"y": FLOAT}), feed)


def test_the_largest_elements_of_regions():
    regions = np.array([[1, 0, 1, 4, 5], [0, 2, 0, 5, 3], [1, 3, 3, 3, 3]], np.float32)
    node = helper.make_node(
        "MaxRoiPool", ["x", "regions"], ["y"], pooled_shape=[2, 3], spatial_scale=0.5
    )
    sizes = {"x": ["n", 2, 6, 7], "regions": ["k", 5]}
    compare(model([node], sizes, {"y": FLOAT}), {"x": normal(2, 2, 6, 7), "regions": regions})
