"""What onnxruntime's optimizer and quantizers write, compared with what onnxruntime computes."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dpexec as fluid
from dpexec.onnx import load
from tests.onnx.loading.test_other_writers import by_onnxruntime, compare, model, normal

FLOAT = TensorProto.FLOAT
MASKS = {
    "lengths": np.array([3, 5], np.int32),
    "places": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
    "queries": np.tril(np.ones((2, 5, 5), np.int32)),
}


def microsoft(op_type, inputs, outputs, weights, shape, domain="com.microsoft", **attrs):
    """A model of one of onnxruntime's operators, with an open number of samples."""
    made = helper.make_node(op_type, inputs, outputs, domain=domain, **attrs)
    found = dict.fromkeys(filter(None, outputs), FLOAT)
    proto = model([made], {"x": ["batch", *shape[1:]]}, found, weights)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto, {"x": normal(*shape)}


NUMBERS = {"b": normal(6), "s": normal(6), "z": normal(2, 3, 6), "w": normal(6, 4), "c": normal(4)}
CASES = {
    "Gelu": (["x"], {}),
    "BiasGelu": (["x", "b"], {}),
    "FastGelu": (["x", "b"], {}),
    "QuickGelu": (["x"], {}),
    "SimplifiedLayerNormalization": (["x", "s"], {"axis": -1, "epsilon": 1e-5}),
    "SkipLayerNormalization": (["x", "z", "s", "b", "b"], {"epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": (["x", "z", "s", "b"], {"epsilon": 1e-5}),
    "FusedMatMul": (["x", "z"], {"transB": 1, "alpha": 0.3}),
    "FusedMatMul ": (["x", "z"], {"transA": 1, "transBatchB": 1, "transBatchA": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_fused_functions_and_sums(name):
    inputs, attrs = CASES[name]
    weights = {n: array for n, array in NUMBERS.items() if n in inputs}
    domain = "" if name.startswith("Simp") else "com.microsoft"
    compare(*microsoft(name.strip(), inputs, ["y"], weights, (2, 3, 6), domain, **attrs))


def test_the_sum_before_a_normalization_is_an_output():
    weights = {n: NUMBERS[n] for n in "zsb"}
    compare(
        *microsoft(
            "SkipLayerNormalization", ["x", "z", "s", "b"], ["y", "", "", "sum"], weights, (2, 3, 6)
        )
    )


@pytest.mark.parametrize(
    ("kind", "numbers"), [("Relu", None), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.3, 0.4])]
)
def test_convolutions_and_products_with_activations(kind, numbers):
    weights = {"w": normal(4, 3, 3, 3), "b": normal(4), "z": normal(2, 4, 5, 5)}
    params = {"activation": kind, **({"activation_params": numbers} if numbers else {})}
    inputs = ["x", "w", "b", "z"]
    compare(
        *microsoft(
            "FusedConv",
            inputs,
            ["y"],
            weights,
            (2, 3, 5, 5),
            pads=[1] * 4,
            **params,
        )
    )
    if kind != "HardSigmoid":
        params = {"activation": kind, **({"activation_alpha": numbers[0]} if numbers else {})}
        weights = {"w": NUMBERS["w"], "c": NUMBERS["c"]}
        compare(*microsoft("FusedGemm", ["x", "w", "c"], ["y"], weights, (2, 6), **params))


@pytest.mark.parametrize("mask", [None, *MASKS])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask, causal):
    weights = {"w": normal(8, 24), "b": normal(24), **({"mask": MASKS[mask]} if mask else {})}
    inputs = ["x", "w", "b", *(["mask"] if mask else [])]
    compare(
        *microsoft(
            "Attention", inputs, ["y"], weights, (2, 5, 8), num_heads=2, unidirectional=causal
        )
    )


def test_attention_to_earlier_calls():
    weights = {"w": normal(8, 24), "b": normal(24), "past": normal(2, 2, 2, 3, 4)}
    inputs = ["x", "w", "b", "", "past"]
    compare(
        *microsoft(
            "Attention", inputs, ["y", "now"], weights, (2, 4, 8), num_heads=2, unidirectional=1
        )
    )
    weights = {"k": normal(2, 4, 8), "v": normal(2, 4, 8), "b": normal(24), "e": normal(1, 2, 5, 7)}
    weights |= {"p": normal(2, 2, 3, 4), "q": normal(2, 2, 3, 4)}
    inputs = ["x", "k", "v", "b", "", "e", "p", "q"]
    compare(
        *microsoft(
            "MultiHeadAttention", inputs, ["y", "keys", "values"], weights, (2, 5, 8), num_heads=2
        )
    )


def test_attention_of_onnx_to_earlier_calls():
    """Its function leaves out an input between others."""
    nodes = [
        helper.make_node("Relu", ["x"], ["q"]),
        helper.make_node(
            "Attention", ["q", "k", "v", "", "p", "w"], ["y", "keys", "values"], is_causal=1
        ),
    ]
    weights = {n: normal(2, 2, 3, 4) for n in "kv"} | {n: normal(2, 2, 5, 4) for n in "pw"}
    outputs = dict.fromkeys(("y", "keys", "values"), FLOAT)
    proto = model(nodes, {"x": ["batch", 2, 3, 4]}, outputs, weights, opset=23)
    proto.ir_version = 10
    compare(proto, {"x": normal(2, 2, 3, 4)})


# ---- attention of language models


GROUPED = {
    "first call": {},
    "one tensor": {"packed": True},
    "turned": {"do_rotary": 1},
    "turned in pairs": {"do_rotary": 1, "rotary_interleaved": 1, "packed": True},
    "window": {"local_window_size": 2},
    "soft limit": {"softcap": 1.5, "scale": 0.3},
    "later call": {"past": 4, "do_rotary": 1},
    "later call in a window": {"past": 4, "local_window_size": 3},
    "samples of other lengths": {"past": 4, "lengths": [3, 5], "do_rotary": 1},
    "samples of other lengths at first": {"lengths": [4, 5]},
    "bias": {"bias": True},
}


@pytest.mark.parametrize("name", GROUPED)
def test_queries_that_share_keys(name):
    attrs = dict(GROUPED[name])
    past, packed = attrs.pop("past", 0), attrs.pop("packed", False)
    steps, bias = 1 if past else 5, attrs.pop("bias", False)
    total = past + steps
    lengths = np.array(attrs.pop("lengths", [total] * 2), np.int32)
    angles = normal(9, 8)
    weights = {"n": lengths - 1, "t": np.array([total], np.int32)}
    weights |= {"k": normal(2, steps, 32), "v": normal(2, steps, 32)}
    weights |= {"pk": normal(2, 2, past, 16), "pv": normal(2, 2, past, 16)}
    weights |= {"cos": np.cos(angles), "sin": np.sin(angles), "bias": normal(2, 4, steps, total)}
    inputs = ["x", *(["", ""] if packed else ["k", "v"]), *(["pk", "pv"] if past else ["", ""])]
    inputs += ["n", "t", *(["cos", "sin"] if attrs.get("do_rotary") else ["", ""])]
    inputs += ["", "bias"] if bias else []
    proto, feed = microsoft(
        "GroupQueryAttention",
        inputs,
        ["y", "keys", "values"],
        {name: array for name, array in weights.items() if name in inputs},
        (2, steps, 128 if packed else 64),
        num_heads=4,
        kv_num_heads=2,
        **attrs,
    )
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = load(proto)
        made = fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=fetches)
    for k, (got, wanted) in enumerate(zip(made, by_onnxruntime(proto, feed), strict=True)):
        assert got.shape == wanted.shape
        for sample, length in enumerate(lengths):  # what lies behind is undefined
            rows = (sample, slice(None), slice(int(length))) if k else (sample, slice(int(length)))
            np.testing.assert_allclose(got[rows], wanted[rows], rtol=1e-4, atol=1e-5)


def test_a_text_is_continued_from_nothing():
    """A first call has no earlier keys; each later one gets those of the call before."""
    inputs = ["x", "", "", "pk", "pv", "n", "t", "cos", "sin"]
    attrs = {"domain": "com.microsoft", "num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    outputs = ["y", "keys", "values"]
    angles = normal(16, 8)
    sizes = {"x": ["b", "s", 128], "pk": ["b", 2, "p", 16], "pv": ["b", 2, "p", 16]}
    node = helper.make_node("GroupQueryAttention", inputs, outputs, **attrs)
    proto = model(
        [node], sizes, dict.fromkeys(outputs, FLOAT), {"cos": np.cos(angles), "sin": np.sin(angles)}
    )
    whole = TensorProto.INT32
    proto.graph.input.append(helper.make_tensor_value_info("n", whole, ["b"]))
    proto.graph.input.append(helper.make_tensor_value_info("t", whole, [1]))
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    keys = values = np.zeros((2, 2, 0, 16), np.float32)
    total = 0
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = load(proto)
        for steps in (5, 1, 1):
            total += steps
            feed = {"x": normal(2, steps, 128), "pk": keys, "pv": values}
            feed |= {"n": np.full(2, total - 1, np.int32), "t": np.array([total], np.int32)}
            made = fluid.Executor(fluid.CPUPlace()).run(program, feed, fetches)
            wanted = by_onnxruntime(proto, feed)
            for got, each in zip(made, wanted, strict=True):
                np.testing.assert_allclose(got, each, rtol=1e-4, atol=1e-5)
            _, keys, values = wanted


def test_heads_in_one_tensor_or_in_two():
    turn = helper.make_node("Reshape", ["x", "shape"], ["q"])
    heads = {"num_heads": 2, "domain": "com.microsoft"}
    for shape, inputs in (([0, 0, 2, 3, 4], ["q"]), ([0, 0, 8], ["q", "kv"])):
        fused = helper.make_node("MultiHeadAttention", inputs, ["y"], **heads)
        weights = {"shape": np.array(shape), "kv": normal(2, 6, 2, 2, 4)}
        width = 24 if len(inputs) == 1 else 8
        proto = model([turn, fused], {"x": ["batch", 5, width]}, {"y": FLOAT}, weights)
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        x = normal(2, 5, width)
        [made] = _run(proto, x)
        q, k, v = (
            np.moveaxis(x.reshape(2, 5, 2, 3, 4), 3, 0)
            if len(inputs) == 1
            else (x.reshape(2, 5, 2, 4), *np.moveaxis(weights["kv"], 3, 0))
        )
        scores = np.einsum("bqhd,bkhd->bhqk", q, k) / 2
        shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        wanted = np.einsum("bhqk,bkhd->bqhd", shares, v).reshape(2, 5, 8)
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def _run(proto, x):
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = load(proto)
        return fluid.Executor(fluid.CPUPlace()).run(program, {feeds[0]: x}, fetches)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_turned_pairs(interleaved):
    places = np.array([[0, 1, 2], [3, 4, 5]])
    angles = normal(9, 4)
    weights = {"places": places, "cos": np.cos(angles), "sin": np.sin(angles)}
    inputs = ["x", "places", "cos", "sin"]
    compare(*microsoft("RotaryEmbedding", inputs, ["y"], weights, (2, 3, 16),
                       interleaved=interleaved))  # fmt: skip


def test_embeddings_of_words_places_and_segments():
    weights = {"words": normal(9, 6), "places": normal(5, 6), "kinds": normal(2, 6)}
    weights |= {"s": NUMBERS["s"], "b": NUMBERS["b"], "mask": MASKS["places"]}
    weights["segments"] = np.array([[0, 0, 1, 1, 1]] * 2, np.int32)
    cast = helper.make_node("Cast", ["x"], ["ids"], to=TensorProto.INT32)
    inputs = ["ids", "segments", "words", "places", "kinds", "s", "b", "mask"]
    outputs = {"y": FLOAT, "lengths": TensorProto.INT32, "sum": FLOAT}
    fused = helper.make_node(
        "EmbedLayerNormalization", inputs, list(outputs), domain="com.microsoft"
    )
    proto = model([cast, fused], {"x": ["batch", 5]}, outputs, weights)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    compare(proto, {"x": np.array([[1, 2, 3, 4, 5], [8, 7, 6, 5, 0]], np.float32)})


# ---- few bits


@pytest.mark.parametrize("zeros", [False, True])
def test_weights_of_four_bits(zeros):
    random = np.random.default_rng(0)
    weights = {
        "w": random.integers(0, 256, (5, 2, 8), np.uint8),
        "s": np.abs(normal(5 * 2)),
        **({"z": random.integers(0, 256, 5, np.uint8)} if zeros else {}),
    }
    inputs = ["x", "w", "s", *(["z"] if zeros else [])]
    proto, feed = microsoft(
        "MatMulNBits", inputs, ["y"], weights, (2, 3, 24), N=5, K=24, bits=4, block_size=16
    )
    compare(proto, feed, atol=1e-4)


@pytest.mark.parametrize("kind", ["UINT16", "INT16", "UINT4", "INT4"])
def test_levels_of_other_numbers_of_bits(kind):
    element = getattr(TensorProto, kind)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "t", "v"], ["m"], axis=0, block_size=2),
        helper.make_node("MatMul", ["real", "m"], ["y"]),
    ]
    scales = {"s": np.array(0.2, np.float32), "t": np.abs(normal(2, 3))}
    proto = model(nodes, {"x": ["batch", 4]}, {"y": FLOAT}, scales, opset=21)
    proto.ir_version = 10
    for name, dims, numbers in (
        ("z", [], [3]),
        ("v", [2, 3], range(1, 7)),
        ("w", [4, 3], [0, 7, 2, 5, 1, 6, 4, 3, 0, 7, 1, 2]),
    ):
        proto.graph.initializer.append(helper.make_tensor(name, element, dims, list(numbers)))
    x = normal(3, 4)
    x[0, 0], x[1, 1] = np.inf, -9000
    compare(proto, {"x": x})


QLINEAR = {
    "QLinearAveragePool": (["q", "s", "z", "t", "v"], {"kernel_shape": [2, 2], "strides": [1, 2]}),
    "QLinearSoftmax": (["q", "s", "z", "t", "v"], {"axis": -1, "opset": 13}),
    "QLinearWhere": (["c", "q", "s", "z", "q", "t", "v", "t", "v"], {}),
}


@pytest.mark.parametrize("name", QLINEAR)
def test_operators_on_levels_with_sign(name):
    inputs, attrs = QLINEAR[name]
    weights = {"s": np.array(0.03, np.float32), "z": np.array(-20, np.int8)}
    weights |= {"t": np.array(0.02, np.float32), "v": np.array(9, np.int8)}
    weights["c"] = normal(2, 3, 4, 4) > 0
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node(name, inputs, ["y"], domain="com.microsoft", **attrs),
    ]
    used = {each for node in nodes for each in node.input}
    weights = {key: value for key, value in weights.items() if key in used}
    proto = model(nodes, {"x": ["batch", 3, 4, 4]}, {"y": TensorProto.INT8}, weights)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    compare(proto, {"x": normal(2, 3, 4, 4)}, atol=1)


def test_products_that_round_their_left_side():
    random = np.random.default_rng(0)
    weights = {
        "w": random.integers(-63, 64, (6, 4), np.int8),
        "s": np.array(0.01, np.float32),
        "z": np.array(2, np.int8),
        "b": NUMBERS["c"],
    }
    inputs = ["x", "w", "s", "z", "b"]
    proto, feed = microsoft("DynamicQuantizeMatMul", inputs, ["y"], weights, (2, 3, 6))
    compare(proto, feed)
    compare(proto, {"x": feed["x"] * 0})


def test_attention_of_levels(tmp_path):
    from onnxruntime import quantization

    weights = {"w": normal(8, 24), "b": normal(24)}
    proto, feed = microsoft("Attention", ["x", "w", "b"], ["y"], weights, (2, 5, 8), num_heads=2)
    onnx.save(proto, tmp_path / "net.onnx")
    # Weights of 7 bits: without VNNI onnxruntime adds two products in 16 bits.
    files = tmp_path / "net.onnx", tmp_path / "small.onnx"
    quantization.quantize_dynamic(*files, reduce_range=True)
    small = onnx.load(tmp_path / "small.onnx")
    assert "QAttention" in {node.op_type for node in small.graph.node}
    compare(small, feed)


# ---- files


def test_nodes_in_any_order():
    nodes = [
        helper.make_node("Add", ["b", "a"], ["y"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Neg", ["x"], ["a"]),
    ]
    compare(model(nodes, {"x": ["batch", 3]}, {"y": FLOAT}), {"x": normal(2, 3)})


def test_half_precision_of_eight_bits_is_held_in_single():
    kind = TensorProto.BFLOAT16
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=kind),
        helper.make_node("MatMul", ["h", "w"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=FLOAT),
    ]
    proto = model(nodes, {"x": ["batch", 2]}, {"y": FLOAT})
    numbers = [1.0, 0.5, -2.0, 0.25]
    proto.graph.initializer.append(helper.make_tensor("w", kind, [2, 2], numbers))
    x = normal(3, 2)
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = load(proto)
        assert [p.name for p in program.all_parameters() if p.trainable] == ["w"]
        [made] = fluid.Executor(fluid.CPUPlace()).run(program, {feeds[0]: x}, fetches)
    np.testing.assert_allclose(made, x @ np.reshape(numbers, (2, 2)), rtol=1e-5)
