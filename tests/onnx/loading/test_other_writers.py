"""Models as other tools write them: quantized ones, those with open sizes, recurrent ones."""

import numpy as np
import pytest

import dpexec as fluid

pytest.importorskip("onnx")
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from dpexec.onnx import UnsupportedError, load

R = np.random.default_rng(0)


def normal(*shape, scale=1.0):
    return (R.standard_normal(shape) * scale).astype(np.float32)


def model(nodes, inputs, outputs, weights=(), opset=17):
    """A model; inputs are shapes by name, with words for open sizes."""
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in dict(weights).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def by_onnxruntime(proto, feed):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    # Without it, sums of integers are not exact on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feed)


def compare(proto, feed, atol=1e-5):
    """Compare what both compute; returns the types of the program's operators."""
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = load(proto)
        made = fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=fetches)
        for got, wanted in zip(made, by_onnxruntime(proto, feed), strict=True):
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=atol)
        return [op.type for op in program.global_block().ops]


# ---- recurrent nets


def recurrent(size=4, directions=1, lengths=None, outputs=("y", "h"), **attrs):
    weights = {
        "w": normal(directions, 4 * size, 3),
        "r": normal(directions, 4 * size, size),
        "b": normal(directions, 8 * size),
        "p": normal(directions, 3 * size),
        "h0": normal(directions, 5, size),
    }
    inputs = ["x", "w", "r", "b", "" if lengths is None else "n", "h0", "", "p"]
    if lengths is not None:
        weights["n"] = np.array(lengths, np.int32)
    kind = {1: "forward", 2: "bidirectional"}[directions]
    node = helper.make_node(
        "LSTM", inputs, list(outputs), hidden_size=size, **{"direction": kind, **attrs}
    )
    found = dict.fromkeys((name for name in outputs if name), TensorProto.FLOAT)
    return model([node], {"x": ["time", 5, 3]}, found, weights)


@pytest.mark.parametrize("lengths", [None, [1, 6, 3, 6, 2]])
@pytest.mark.parametrize("directions", [1, 2])
def test_an_lstm_is_one_operator_for_all_steps(directions, lengths):
    proto = recurrent(directions=directions, lengths=lengths)
    types = compare(proto, {"x": normal(6, 5, 3)})
    assert types.count("lstm") == directions and "recurrent" not in types


def test_an_lstm_backwards_with_other_activations():
    kinds = ["Sigmoid", "Relu", "Tanh"]
    types = compare(recurrent(direction="reverse", activations=kinds), {"x": normal(6, 5, 3)})
    assert "lstm" in types


def test_an_lstm_whose_cells_are_read_has_gradients_by_them():
    assert "recurrent" in compare(recurrent(outputs=("y", "h", "c")), {"x": normal(6, 5, 3)})


def test_gradients_of_an_lstm_are_those_of_its_steps():
    gradients = []
    for outputs in (("y", "h"), ("y", "h", "c")):
        R.bit_generator.state = np.random.default_rng(1).bit_generator.state
        proto, x = recurrent(outputs=outputs), normal(6, 5, 3)
        with fluid.scope_guard(fluid.Scope()):
            program, _, fetches = load(proto)
            with fluid.program_guard(program, fluid.Program()):
                loss = fluid.layers.reduce_sum(fluid.layers.square(fetches[0]))
                pairs = fluid.backward.append_backward(loss)
            wanted = [gradient for _, gradient in sorted(pairs, key=lambda pair: pair[0].name)]
            exe = fluid.Executor(fluid.CPUPlace())
            gradients.append(exe.run(program, feed={"x": x}, fetch_list=wanted))
    assert len(gradients[0]) == 5
    for fused, stepwise in zip(*gradients, strict=True):
        np.testing.assert_allclose(fused, stepwise, rtol=1e-4, atol=1e-4)


# ---- open sizes


TENSORFLOW = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
"""What tf2onnx writes for tf.image.resize(method="nearest")."""


@pytest.mark.parametrize("sizes", [(3, 4), (13, 20)])
@pytest.mark.parametrize("shape", [[1, 1, 7, 9], [1, 1, "h", "w"]])
def test_nearest_elements_are_those_of_tensorflow(sizes, shape):
    weights = {"sizes": np.array([1, 1, *sizes]), "none": np.zeros(0, np.float32)}
    inputs = ["x", "none", "none", "sizes"]
    node = helper.make_node("Resize", inputs, ["y"], mode="nearest", **TENSORFLOW)
    proto = model([node], {"x": shape}, {"y": TensorProto.FLOAT}, weights, opset=12)
    compare(proto, {"x": normal(1, 1, 7, 9)}, atol=0)


@pytest.mark.parametrize("name", ["coordinate_transformation_mode", "nearest_mode"])
def test_unknown_settings_of_resizing_are_refused(name):
    scales = {"scales": np.array([1.0, 1.0, 0.5, 0.5], np.float32)}
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest", **{name: "other"})
    with pytest.raises(
        UnsupportedError, match=rf"Resize 'y': {name} 'other' is unknown; .*half|floor"
    ):
        load(model([node], {"x": [1, 1, 8, 8]}, {"y": TensorProto.FLOAT}, scales))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("where", ["half_pixel", "pytorch_half_pixel", "align_corners"])
@pytest.mark.parametrize("size", [(5, 9), (1, 4)])
def test_images_get_the_size_of_others(mode, where, size):
    nodes = [
        helper.make_node("Shape", ["like"], ["shape"]),
        helper.make_node("Slice", ["shape", "two", "four"], ["size"]),
        helper.make_node("Concat", ["channels", "size"], ["sizes"], axis=0),
        helper.make_node(
            "Resize", ["x", "", "", "sizes"], ["y"], mode=mode,
            coordinate_transformation_mode=where,
        ),
    ]  # fmt: skip
    weights = {
        "two": np.array([2]),
        "four": np.array([4]),
        "channels": np.array([2, 3]),
    }
    inputs = {"x": [2, 3, "h", "w"], "like": [1, 1, "height", "width"]}
    feed = {"x": normal(2, 3, 4, 6), "like": normal(1, 1, *size)}
    compare(model(nodes, inputs, {"y": TensorProto.FLOAT}, weights), feed)


@pytest.mark.parametrize(
    ("mode", "attrs"),
    [
        ("nearest", {}),
        ("nearest", {"nearest_mode": "ceil"}),
        ("nearest", {"nearest_mode": "floor"}),
        ("nearest", TENSORFLOW),
        ("linear", {}),
        ("cubic", {}),
        ("cubic", {"cubic_coeff_a": -0.5}),
        ("cubic", {"exclude_outside": 1}),
        ("cubic", {"coordinate_transformation_mode": "asymmetric"}),
    ],
)
@pytest.mark.parametrize("shape", [(1, 2, 3), (1, 2, 3, 5)])
def test_images_grow_by_a_factor(mode, attrs, shape):
    if mode == "cubic" and len(shape) == 3:
        shape = (1, 2, 1, 3)  # onnxruntime needs two axes
    scales = np.array([1.0, 1.0] + [2.0] * (len(shape) - 2), np.float32)
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode, **attrs)
    inputs = {"x": [1, 2, *"hw"[: len(shape) - 2]]}
    proto = model([node], inputs, {"y": TensorProto.FLOAT}, {"scales": scales})
    compare(proto, {"x": normal(*shape)})


def test_sizes_that_are_fractions_of_open_ones_are_refused():
    scales = np.array([1.0, 1.0, 0.5, 0.5], np.float32)
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    proto = model([node], {"x": [1, 2, "h", "w"]}, {"y": 1}, {"scales": scales})
    with pytest.raises(UnsupportedError, match=r"axis 2 is open; its scale must be an integer"):
        load(proto)


def test_what_is_refused_inside_a_branch_is_named():
    scales = numpy_helper.from_array(np.array([1.0, 1.0, 0.5, 0.5], np.float32), "scales")
    branches = {}
    for kind in ("then_branch", "else_branch"):
        nodes = [
            helper.make_node("Relu", ["x"], [f"{kind}.a"]),
            helper.make_node("Resize", [f"{kind}.a", "", "scales"], [f"{kind}.b"], mode="linear"),
        ]
        outputs = [helper.make_tensor_value_info(f"{kind}.b", TensorProto.FLOAT, None)]
        branches[kind] = helper.make_graph(nodes, kind, [], outputs, [scales])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "sum"], ["more"]),
        helper.make_node("If", ["more"], ["y"], **branches),
    ]
    with pytest.raises(UnsupportedError, match=r"Resize 'then_branch.b': axis 2 is open"):
        load(model(nodes, {"x": [1, 2, "h", "w"]}, {"y": TensorProto.FLOAT}))


def test_known_numbers_are_cut_at_an_open_size():
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"], axis=0),
        helper.make_node("Slice", ["places", "zero", "length", "one"], ["used"]),
        helper.make_node("Gather", ["table", "used"], ["rows"]),
        helper.make_node("Add", ["x", "rows"], ["y"]),
    ]
    weights = {
        "one": np.array([1]),
        "zero": np.array([0]),
        "places": np.arange(7)[None],
        "table": normal(7, 3),
    }
    proto = model(nodes, {"x": ["batch", "time", 3]}, {"y": TensorProto.FLOAT}, weights)
    compare(proto, {"x": normal(2, 4, 3)})


# ---- 8 bits


def images(opset=17):
    """Convolutions and a product of matrices, whose weights fill their range."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "v"], ["e"], group=2),
        helper.make_node("Add", ["e", "e"], ["f"]),
        helper.make_node("GlobalAveragePool", ["f"], ["g"]),
        helper.make_node("Flatten", ["g"], ["h"]),
        helper.make_node("MatMul", ["h", "m"], ["y"]),
    ]
    weights = {"w": normal(4, 3, 3, 3), "b": normal(4), "v": normal(6, 2, 1, 1), "m": normal(6, 5)}
    return model(nodes, {"x": ["batch", 3, 8, 8]}, {"y": TensorProto.FLOAT}, weights, opset)


class Batches:
    """What onnxruntime's tool calibrates with."""

    def __init__(self):
        self.left = [{"x": normal(4, 3, 8, 8)} for _ in range(3)]

    def get_next(self):
        return self.left.pop() if self.left else None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["dynamic", "QOperator", "QDQ"])
def test_models_that_onnxruntime_quantized(kind, tmp_path, caplog):
    from onnxruntime import quantization as q

    # Weights of 7 bits: without VNNI onnxruntime adds two products in 16 bits.
    source, target = tmp_path / "net.onnx", tmp_path / "small.onnx"
    onnx.save(images(), source)
    if kind == "dynamic":
        q.quantize_dynamic(
            source, target, op_types_to_quantize=["Conv", "MatMul"], reduce_range=True
        )
    else:
        q.quantize_static(
            source, target, Batches(), quant_format=getattr(q.QuantFormat, kind),
            per_channel=True, activation_type=q.QuantType.QUInt8, reduce_range=True,
        )  # fmt: skip
    proto = onnx.load(target)
    kinds = {node.op_type for node in proto.graph.node}
    expected = {
        "dynamic": {"ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"},
        "QOperator": {"QLinearConv", "QLinearMatMul", "QLinearAdd"},
        "QDQ": {"QuantizeLinear", "DequantizeLinear"},
    }
    assert expected[kind] <= kinds
    x = normal(3, 3, 8, 8)
    step = np.abs(by_onnxruntime(proto, {"x": x})[0]).max() / 100
    compare(proto, {"x": x}, atol=1e-4 if kind == "dynamic" else step)


def test_sums_of_products_of_integers_are_exact():
    """onnxruntime's saturate on processors that have AVX2 but no VNNI."""
    rows = 400  # 255 * 127 * 400 is beyond 2**24
    nodes = [helper.make_node("MatMulInteger", ["i", "w", "", "z"], ["y"])]
    weights = {
        "w": np.full((rows, 2), -128, np.int8),
        "z": np.array(127, np.int8),
    }
    cast = helper.make_node("Cast", ["x"], ["i"], to=TensorProto.UINT8)
    proto = model([cast, *nodes], {"x": ["n", rows]}, {"y": TensorProto.INT32}, weights)
    x = np.full((1, rows), 255, np.float32)
    x[0, 0] = 254
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = load(proto)
        [made] = fluid.Executor(fluid.CPUPlace()).run(program, feed={"x": x}, fetch_list=fetches)
    exact = x.astype(int) @ (weights["w"].astype(int) - 127)
    np.testing.assert_array_equal(made, exact)


SCALES = {"s": np.array(0.03, np.float32), "z": np.array(120, np.uint8)}
OPERATORS = {
    "QLinearSigmoid": (["q", "s", "z", "t", "z"], {}),
    "QLinearLeakyRelu": (["q", "s", "z", "t", "z"], {"alpha": 0.1}),
    "QLinearMul": (["q", "s", "z", "q", "s", "z", "t", "z"], {}),
    "QLinearConcat": (["t", "z", "q", "s", "z", "q", "s", "z"], {"axis": 1}),
    "QGemm": (["q", "s", "z", "w", "v", "n", "c", "t", "z"], {"transB": 1, "alpha": 0.5}),
    "MatMulIntegerToFloat": (["q", "m", "s", "v", "z", "n"], {}),
}
"""Inputs and attributes of operators that onnxruntime's tools write."""


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_onnxruntime(name):
    inputs, attrs = OPERATORS[name]
    weights = SCALES | {
        "t": np.array(0.05, np.float32),
        "v": np.array([0.02, 0.05, 0.01], np.float32),
        "n": np.array([3, -4, 0], np.int8),
        "w": R.integers(-128, 128, (3, 6), np.int8),
        "m": R.integers(-128, 128, (6, 3), np.int8),
        "c": R.integers(-900, 900, 3, np.int32),
    }
    kind = TensorProto.FLOAT if name == "MatMulIntegerToFloat" else TensorProto.UINT8
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node(name, inputs, ["y"], domain="com.microsoft", **attrs),
    ]
    used = {each for node in nodes for each in node.input}
    weights = {key: value for key, value in weights.items() if key in used}
    proto = model(nodes, {"x": ["batch", 6]}, {"y": kind}, weights)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    compare(proto, {"x": normal(4, 6)}, atol=1 if kind == TensorProto.UINT8 else 1e-4)


# ---- regions


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("where", ["half_pixel", "output_half_pixel"])
def test_regions_in_any_order_of_their_images(where, ratio):
    node = helper.make_node(
        "RoiAlign", ["x", "regions", "images"], ["y"], output_height=2, output_width=3,
        sampling_ratio=ratio, spatial_scale=0.5, coordinate_transformation_mode=where,
    )  # fmt: skip
    regions = [[2, 1, 9, 11], [0, 0, 0.5, 0.4], [3, 2, 20, 15], [1, 1, 6, 5]]
    weights = {
        "regions": np.array(regions, np.float32),
        "images": np.array([2, 0, 2, 0]),
    }
    proto = model([node], {"x": ["batch", 2, 6, 7]}, {"y": TensorProto.FLOAT}, weights)
    compare(proto, {"x": normal(3, 2, 6, 7)})


def test_what_a_pool_took_goes_back_to_its_place():
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["small", "places"], **window),
        helper.make_node("MaxUnpool", ["small", "places"], ["y"], **window),
    ]
    outputs = {"y": TensorProto.FLOAT, "places": TensorProto.INT64}
    compare(model(nodes, {"x": ["batch", 3, 4, 6]}, outputs), {"x": normal(2, 3, 4, 6)})
