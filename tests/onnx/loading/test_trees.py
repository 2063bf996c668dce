"""Ensembles of trees as programs: random ones, compared with onnxruntime, and what users load."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import dpexec as fluid
from dpexec.onnx import load
from dpexec.onnx.exporter import model_of

FEATURES = 3
KINDS = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


class Trees:
    """Attributes of random trees, some of them a single leaf."""

    def __init__(self, rng, prefix, columns, kinds, tracks):
        self.rng, self.prefix, self.columns, self.kinds = rng, prefix, columns, kinds
        names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids",
                 "falsenodeids", "missing_value_tracks_true")  # fmt: skip
        self.attrs = {f"nodes_{name}": [] for name in names}
        names = ("treeids", "nodeids", "ids", "weights")
        self.attrs |= {f"{prefix}_{name}": [] for name in names}
        self.tracks = tracks

    def row(self, tree, number, mode, true=0, false=0):
        value = float(self.rng.integers(-2, 3)) / 2
        track = int(self.tracks and self.rng.integers(2))
        row = (tree, number, int(self.rng.integers(FEATURES)), mode, value, true, false, track)
        for name, each in zip(list(self.attrs)[:8], row, strict=True):
            self.attrs[name].append(each)

    def grow(self, tree, depth):
        """A tree, its root first; the others are not listed in the order of their numbers."""
        count, rows = [0], []

        def node(left):
            number = count[0]
            count[0] += 1
            if left == 0 or self.rng.random() < 0.2:
                rows.append((number, "LEAF"))
                for column in self.columns:
                    entry = (tree, number, column, float(self.rng.normal()))
                    for name, each in zip(list(self.attrs)[8:], entry, strict=True):
                        self.attrs[name].append(each)
                return number
            true, false = node(left - 1), node(left - 1)
            rows.append((number, str(self.rng.choice(self.kinds)), true, false))
            return number

        node(depth)
        for row in (rows[-1], *rows[:-1]):
            self.row(tree, *row)


def model(op_type, attrs, outputs):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])
    node = helper.make_node(op_type, ["x"], [o.name for o in outputs], domain="ai.onnx.ml", **attrs)
    graph = helper.make_graph([node], "trees", [x], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def compare(made, x):
    session = onnxruntime.InferenceSession(made.SerializeToString())
    expected = session.run(None, {"x": x})
    program, feeds, fetches = load(made)
    assert feeds == ["x"]
    exe = fluid.Executor(fluid.CPUPlace())
    two = fluid.CompiledProgram(program).with_data_parallel(places=fluid.cpu_places(2))
    again = onnxruntime.InferenceSession(model_of(program, feeds, fetches).SerializeToString()).run(
        None, {"x": x}
    )
    for found in (exe.run(program, {"x": x}, fetches), exe.run(two, {"x": x}, fetches), again):
        for value, wanted in zip(found, expected, strict=True):
            assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-5)


def samples(rng, tracks):
    x = (rng.integers(-4, 5, (8, FEATURES)) / 4).astype(np.float32)
    if tracks:
        x[::3, 1] = np.nan
    return x


@pytest.mark.parametrize("seed", range(12))
def test_regression(seed):
    rng = np.random.default_rng(seed)
    kinds, tracks = (KINDS if seed % 3 == 2 else KINDS[seed % 2 : seed % 2 + 1]), seed % 4 == 1
    targets = int(rng.integers(1, 3))
    trees = Trees(rng, "target", range(targets), kinds, tracks)
    for tree in range(4):
        trees.grow(tree, int(rng.integers(0, 6)))
    attrs = {"n_targets": targets, **trees.attrs}
    attrs["aggregate_function"] = ["SUM", "AVERAGE", "MIN", "MAX"][seed % 4]
    if seed % 2:
        attrs["base_values"] = rng.normal(size=targets).tolist()
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", targets])]
    compare(model("TreeEnsembleRegressor", attrs, out), samples(rng, tracks))


@pytest.mark.parametrize("seed", range(12))
def test_classification(seed):
    rng = np.random.default_rng(seed)
    classes = 2 + seed % 3 * (seed % 2)
    one = classes == 2  # the leaves speak of one class, as converters write them
    trees = Trees(rng, "class", [0] if one else range(classes), KINDS[:1], False)
    for tree in range(3):
        trees.grow(tree, 4)
    if seed % 3 == 0 or (classes == 2 and not one):  # probabilities
        weights = trees.attrs["class_weights"] = rng.uniform(
            0, 1 / 3, len(trees.attrs["class_ids"])
        )
        if classes == 2 and not one:
            weights[1::2] = 1 / 3 - weights[::2]
    attrs = {**trees.attrs, "classlabels_int64s": [0, 1] if one else [5, 3, 8, 9][:classes]}
    attrs["post_transform"] = (
        "NONE" if one and seed % 3 == 0 else ["LOGISTIC", "SOFTMAX"][classes > 2]
    )
    out = [
        helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", classes]),
    ]
    compare(model("TreeEnsembleClassifier", attrs, out), samples(rng, False))


def test_words_as_labels_become_their_numbers():
    trees = Trees(np.random.default_rng(0), "class", range(3), KINDS[:1], False)
    trees.grow(0, 3)
    out = [
        helper.make_tensor_value_info("label", TensorProto.STRING, ["n"]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3]),
    ]
    proto = model(
        "TreeEnsembleClassifier", {**trees.attrs, "classlabels_strings": ["c", "a", "b"]}, out
    )
    x = samples(np.random.default_rng(1), False)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    [words] = session.run(["label"], {"x": x})
    program, feeds, fetches = load(proto)
    made = fluid.Executor(fluid.CPUPlace()).run(program, {feeds[0]: x}, fetches)[0]
    assert np.array(["c", "a", "b"])[made].tolist() == words.tolist()


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_labels_are_encoded(dtype):
    name = {np.int64: "int64s", np.float32: "floats"}[dtype]
    default = {np.int64: {"default_int64": 7}, np.float32: {"default_float": 0.25}}[dtype]
    attrs = {"keys_int64s": [4, -1, 3], f"values_{name}": list(map(dtype, (1, 2, 5))), **default}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **attrs)],
        "labels",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["n", 2])],
        [helper.make_tensor_value_info("y", kind, ["n", 2])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(made)
    compare(made, np.array([[4, 3], [-1, 0]]))
