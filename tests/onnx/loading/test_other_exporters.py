"""Operators of models that exporters write: sampling, spectra, open padding, reductions."""

import numpy as np
import pytest

import dpexec as fluid

pytest.importorskip("onnx")
import onnxruntime
from onnx import TensorProto, helper

from dpexec.onnx import export, load
from tests.onnx.loading.test_other_writers import by_onnxruntime, compare, model, normal

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@pytest.mark.parametrize(
    ("mode", "padding", "corners"),
    [
        ("nearest", "zeros", 1),
        ("bilinear", "zeros", 0),
        ("bilinear", "border", 0),
        ("bilinear", "reflection", 1),
        ("bicubic", "reflection", 0),
    ],
)
def test_images_are_sampled_at_any_places(mode, padding, corners):
    node = helper.make_node(
        "GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=corners
    )
    proto = model([node], {"x": ["n", 3, "h", "w"], "grid": ["n", "a", "b", 2]}, {"y": FLOAT})
    places = np.random.default_rng(0).uniform(-2.1, 2.1, (2, 3, 7, 2)).astype(np.float32)
    compare(proto, {"x": normal(2, 3, 5, 4), "grid": places}, atol=1e-4)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_edges_of_open_sizes_are_padded(mode):
    node = helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)
    pads = {"pads": np.array([0, 0, 2, 1, 0, 0, 1, 3])}
    proto = model([node], {"x": ["n", 2, "h", "w"]}, {"y": FLOAT}, pads, opset=19)
    compare(proto, {"x": normal(2, 2, 4, 5)})


def test_a_run_tells_how_much_is_padded():
    """Up to a multiple of 4, as windows of attention want it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Neg", ["n"], ["m"]),
        helper.make_node("Mod", ["m", "four"], ["more"]),
        helper.make_node("Concat", ["zero", "zero", "zero", "more"], ["pads"], axis=0),
        helper.make_node("Pad", ["x", "pads", "value"], ["y"]),
    ]
    weights = {"four": np.array([4]), "zero": np.array([0]), "value": np.array(2, np.float32)}
    proto = model(nodes, {"x": ["batch", "n"]}, {"y": FLOAT}, weights)
    for length in (5, 8):
        compare(proto, {"x": normal(3, length)})


def test_spectra_of_sound():
    nodes = [
        helper.make_node("STFT", ["x", "step", "window"], ["s"]),
        helper.make_node("ReduceSumSquare", ["s", "last"], ["y"], keepdims=0),
    ]
    weights = {
        "step": np.array(4), "window": np.hanning(12).astype(np.float32), "last": np.array([3])
    }  # fmt: skip
    proto = model(nodes, {"x": ["batch", "time", 1]}, {"y": FLOAT}, weights, opset=18)
    compare(proto, {"x": normal(2, 40, 1)}, atol=1e-4)


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_extremes_are_scattered(reduction):
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=0, reduction=reduction)
    index = np.random.default_rng(1).integers(-4, 4, (9, 3))
    proto = model([node], {"x": ["n", 3], "u": [9, 3]}, {"y": FLOAT}, {"i": index}, opset=18)
    compare(proto, {"x": normal(4, 3, scale=0.5), "u": normal(9, 3)})


def test_windows_with_overhang_count_what_lies_on_the_padded_image():
    for kernel, pads in ((5, [0, 0, 0, 0]), (3, [1, 0, 1, 1])):
        node = helper.make_node(
            "AveragePool", ["x"], ["y"], kernel_shape=[kernel] * 2, strides=[2, 2], pads=pads,
            ceil_mode=1, count_include_pad=1,
        )  # fmt: skip
        proto = model([node], {"x": ["n", 3, 5, 5]}, {"y": FLOAT}, opset=19)
        compare(proto, {"x": normal(2, 3, 5, 5)})


def test_losses_of_labels_that_are_ignored():
    node = helper.make_node(
        "SoftmaxCrossEntropyLoss", ["x", "labels", "w"], ["loss"], ignore_index=2, reduction="mean"
    )
    row = helper.make_node("Reshape", ["loss", "one"], ["y"])
    weights = {"labels": np.array([[0, 2], [3, 1]]), "w": np.float32([1, 2, 3, 0.5])}
    weights["one"] = np.array([1])
    compare(model([node, row], {"x": ["n", 4, 2]}, {"y": FLOAT}, weights), {"x": normal(2, 4, 2)})


@pytest.mark.parametrize("attrs", [{}, {"sorted": 0}, {"axis": 0}, {"axis": -1}])
def test_different_elements_and_where_they_come_first(attrs):
    outputs = ["y", "first", "inverse", "counts"]
    node = helper.make_node("Unique", ["x"], outputs, **attrs)
    proto = model([node], {"x": ["n"]}, {"y": FLOAT, **dict.fromkeys(outputs[1:], INT64)})
    compare(proto, {"x": np.float32([3, 1, 3, 2, 1, 3])})


def test_no_gradient_flows_through_truths():
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["above"]),
        helper.make_node("Not", ["above"], ["below"]),
        *(
            helper.make_node("Cast", [a], [b], to=FLOAT)
            for a, b in (("above", "f"), ("below", "g"))
        ),
        helper.make_node("Add", ["f", "g"], ["s"]),
        helper.make_node("Cast", ["above"], ["h"], to=FLOAT),
        helper.make_node("Sum", ["s", "h", "x"], ["t"]),
        helper.make_node("Mul", ["t", "w"], ["y"]),
    ]
    weights = {"zero": np.float32([0]), "w": normal(4)}
    with fluid.scope_guard(fluid.Scope()):
        proto = model(nodes, {"x": ["n", 4]}, {"y": FLOAT}, weights)
        program, _, fetches = load(proto)
        startup, exe, x = fluid.Program(), fluid.Executor(fluid.CPUPlace()), normal(3, 4)
        with fluid.program_guard(program, startup):
            fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fetches[0]))
        exe.run(startup)
        exe.run(program, {"x": x})
        flow = 0.1 * ((1 + (x > 0) + x) / x.size).sum(0)
        made = np.array(fluid.global_scope().find_var("w").get_tensor())
        np.testing.assert_allclose(made, weights["w"] - flow, rtol=1e-5)


def test_the_gradient_of_the_norm_of_nothing_is_nothing():
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["m"]),
        helper.make_node("ReduceL2", ["m"], ["norm"], axes=[1], keepdims=1),
        helper.make_node("Clip", ["norm", "least"], ["large"]),
        helper.make_node("Div", ["m", "large"], ["y"]),
    ]
    weights = {"w": normal(4), "least": np.array(1e-12, np.float32)}
    proto, x = model(nodes, {"x": ["n", 4]}, {"y": FLOAT}, weights), normal(3, 4)
    x[1] = 0
    compare(proto, {"x": x})
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = load(proto)
        startup, exe = fluid.Program(), fluid.Executor(fluid.CPUPlace())
        with fluid.program_guard(program, startup):
            fluid.optimizer.SGD(0.1).minimize(fluid.layers.reduce_sum(fetches[0]))
        exe.run(startup)
        exe.run(program, {"x": x})
        assert np.isfinite(np.array(fluid.global_scope().find_var("w").get_tensor())).all()


def test_a_question_for_nan_stays_one(tmp_path):
    """Onnxruntime 1.32 refuses a model in which the opposite of an equality has several readers."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"]),
        helper.make_node("IsNaN", ["s"], ["lost"]),
        helper.make_node("Where", ["lost", "zero", "s"], ["y"]),
    ]
    proto = model(nodes, {"x": ["a", "b"]}, {"y": FLOAT}, {"zero": np.array(0, np.float32)})
    feed = {"x": np.float32([[1, 2], [-np.inf, -np.inf]])}
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = load(proto)
        made = export(program, tmp_path / "model.onnx", feeds, fetches)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    np.testing.assert_allclose(session.run(None, feed), by_onnxruntime(proto, feed))


# ---- scikit-learn, as skl2onnx writes it


def of_scikit_learn(nodes, outputs, weights=()):
    proto = model(nodes, {"x": ["n", 3]}, outputs, weights)
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return proto


def ml(kind, inputs, outputs, **attrs):
    return helper.make_node(kind, inputs, outputs, domain="ai.onnx.ml", **attrs)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_scalers_of_scikit_learn(norm):
    nodes = [
        ml(
            "Imputer",
            ["x"],
            ["a"],
            imputed_value_floats=[1.0, 2.0, 3.0],
            replaced_value_float=np.nan,
        ),
        ml("Scaler", ["a"], ["b"], offset=[0.5, 0.0, 1.0], scale=[2.0, 3.0, 0.25]),
        ml("Normalizer", ["b"], ["c"], norm=norm),
        ml("Binarizer", ["c"], ["y"], threshold=0.1),
    ]
    x = normal(5, 3)
    x[1, 2], x[2] = np.nan, [0.5, 0, 1]
    compare(of_scikit_learn(nodes, {"c": FLOAT, "y": FLOAT}), {"x": x})


@pytest.mark.parametrize("kind", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_linear_models_and_labels_of_scikit_learn(kind):
    given = {"coefficients": normal(9).tolist(), "intercepts": [0.1, 0.2, -0.3]}
    nodes = [
        ml("LinearRegressor", ["x"], ["r"], targets=3, **given),
        ml("LinearClassifier", ["x"], ["label", "s"], classlabels_ints=[4, 7, 9],
           post_transform=kind, **given),
        helper.make_node("ArgMax", ["r"], ["best"], axis=1, keepdims=0),
        ml("ArrayFeatureExtractor", ["classes", "best"], ["named"]),
    ]  # fmt: skip
    outputs = {"r": FLOAT, "label": INT64, "s": FLOAT, "named": INT64}
    compare(of_scikit_learn(nodes, outputs, {"classes": np.array([4, 7, 9])}), {"x": normal(5, 3)})


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kind):
    given = {"n_supports": 4, "support_vectors": normal(12).tolist(), "rho": [0.2]}
    given |= {"kernel_type": kind, "kernel_params": [0.3, 0.1, 3.0]}
    nodes = [
        ml("SVMRegressor", ["x"], ["y"], coefficients=normal(4).tolist(), **given),
        ml("SVMRegressor", ["x"], ["z"], coefficients=normal(4).tolist(), one_class=1, **given),
    ]
    compare(of_scikit_learn(nodes, {"y": FLOAT, "z": FLOAT}), {"x": normal(5, 3)})


@pytest.mark.parametrize("counts", [[3, 2], [2, 1, 2, 3]])
def test_votes_of_support_vectors(counts):
    many, every = len(counts), sum(counts)
    node = ml(
        "SVMClassifier", ["x"], ["label", "s"], classlabels_ints=[4, 7, 9, 11][:many],
        coefficients=normal(every * (many - 1)).tolist(), kernel_params=[0.3, 0.1, 3.0],
        kernel_type="RBF", rho=normal(many * (many - 1) // 2).tolist(), vectors_per_class=counts,
        support_vectors=normal(3 * every).tolist(),
    )  # fmt: skip
    compare(of_scikit_learn([node], {"label": INT64, "s": FLOAT}), {"x": normal(9, 3)})


@pytest.mark.parametrize("counts", [[3, 2], [2, 1, 2, 3]])
def test_probabilities_of_support_vectors(counts):
    """Those of pairs are coupled as in libsvm, with its coarse limit."""
    many, every = len(counts), sum(counts)
    pairs = many * (many - 1) // 2
    node = ml(
        "SVMClassifier", ["x"], ["label", "p"], classlabels_ints=[4, 7, 9, 11][:many],
        coefficients=normal(every * (many - 1)).tolist(), kernel_params=[0.3, 0.1, 3.0],
        kernel_type="RBF", rho=normal(pairs).tolist(), vectors_per_class=counts,
        support_vectors=normal(3 * every).tolist(), prob_a=normal(pairs).tolist(),
        prob_b=normal(pairs).tolist(),
    )  # fmt: skip
    compare(of_scikit_learn([node], {"label": INT64, "p": FLOAT}), {"x": normal(9, 3)})


def test_categories_of_scikit_learn_become_columns():
    nodes = [ml("OneHotEncoder", ["x"], ["y"], cats_int64s=[3, 1, 2], zeros=1)]
    compare(
        of_scikit_learn(nodes, {"y": FLOAT}), {"x": np.array([[1, 2, 9], [3, 9.0, 1]], np.float32)}
    )


# ---- loops whose rounds a run counts


def growing(grow, start):
    """A loop over the rows of x that changes its state by the nodes ``grow``."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"]), *grow],
        "body",
        [helper.make_tensor_value_info(*info, []) for info in (("i", INT64), ("on", 9))]
        + [helper.make_empty_tensor_value_info("state")],
        [helper.make_tensor_value_info("still", 9, []), helper.make_empty_tensor_value_info("new")],
    )
    return [
        helper.make_node("Shape", ["x"], ["size"], start=0, end=1),
        helper.make_node("Squeeze", ["size"], ["rounds"]),
        *start,
        helper.make_node("Loop", ["rounds", "", "state0"], ["y"], body=body),
    ]


def test_a_state_that_is_empty_at_first_grows():
    """As the masks of Mask R-CNN do."""
    grow = [
        helper.make_node("Gather", ["x", "i"], ["part"], axis=0),
        helper.make_node("Unsqueeze", ["part", "zero"], ["row"]),
        helper.make_node("Concat", ["state", "row"], ["new"], axis=0),
    ]
    weights = {"state0": np.zeros((0, 3), np.float32), "zero": np.array([0])}
    proto = model(growing(grow, []), {"x": ["n", 3]}, {"y": FLOAT}, weights)
    compare(proto, {"x": normal(4, 3)})


def test_a_loop_that_appends_to_a_sequence():
    grow = [helper.make_node("SequenceInsert", ["state", "x"], ["new"])]
    start = [helper.make_node("SequenceEmpty", [], ["state0"])]
    nodes = [
        *growing(grow, start),
        helper.make_node("ConcatFromSequence", ["y"], ["z"], axis=0),
    ]
    compare(model(nodes, {"x": ["n", 3]}, {"z": FLOAT}), {"x": normal(4, 3)})
