"""Errors of ``dpexec.onnx.load``, and its treatment of names, constants and open sizes."""

import numpy as np
import pytest

import dpexec as fluid

pytest.importorskip("onnx")
import onnx
from onnx import helper, numpy_helper

from dpexec.onnx import LoadError, NotConstantError, UnsupportedError, from_torch, load


def model(nodes, inputs, outputs=("y",), weights=None, opset=17):
    """A model; inputs are shapes by name, weights arrays by name."""
    ports = [helper.make_tensor_value_info(n, 1, shape) for n, shape in inputs.items()]
    made = [helper.make_tensor_value_info(n, 0, None) for n in outputs]
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "test", ports, made, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def run(made, **feed):
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = load(made)
        exe = fluid.Executor(fluid.CPUPlace())
        return exe.run(program, feed=feed, fetch_list=fetches)[0], program


def test_all_unsupported_operators_are_listed_before_the_scope_changes():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("BitCast", ["h"], ["d"], name="first"),
        helper.make_node("BitCast", ["h"], ["e"], name="second"),
        helper.make_node("StringSplit", ["x"], ["y", "z"], name="third"),
    ]
    made = model(nodes, {"x": [2, 2]}, weights={"w": np.ones((2, 2), np.float32)})
    scope = fluid.Scope()
    with fluid.scope_guard(scope), pytest.raises(UnsupportedError) as caught:
        load(made)
    text = str(caught.value)
    assert "BitCast: first, second" in text and "StringSplit: third" in text
    assert scope.find_var("w") is None


def test_what_fails_later_changes_no_scope_either():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MaxPool", ["h"], ["y"], kernel_shape=[2], dilations=[2], name="pool"),
    ]
    made = model(nodes, {"x": [2, 2, 2]}, weights={"w": np.ones((2, 2), np.float32)})
    scope = fluid.Scope()
    with fluid.scope_guard(scope), pytest.raises(UnsupportedError, match="MaxPool 'pool' cannot"):
        load(made)
    assert scope.find_var("w") is None


@pytest.mark.parametrize(
    ("source", "complaint"), [("nowhere.onnx", "cannot read"), (b"text", "no ONNX model")]
)
def test_what_is_no_model_is_refused(source, complaint):
    with pytest.raises(LoadError, match=complaint):
        load(source)


def test_an_input_that_must_be_known_can_be_fixed():
    made = model([helper.make_node("Squeeze", ["x", "axes"], ["y"])], {"x": [2, 1]})
    made.graph.input.append(helper.make_tensor_value_info("axes", onnx.TensorProto.INT64, [1]))
    with pytest.raises(NotConstantError, match=r"axes.*must be known") as caught:
        load(made)
    assert caught.value.name == "axes"
    _, feeds, fetches = load(made, constants={"axes": [1]})
    assert feeds == ["x"] and fetches[0].shape == (2,)
    with pytest.raises(LoadError, match="'axis'"):
        load(made, constants={"axis": [1]})


def test_shapes_with_open_sizes_cost_no_operators():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axis"], ["m"]),
        helper.make_node("Concat", ["m", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    weights = {"zero": np.int64(0), "axis": np.array([0]), "rest": np.array([3, 2])}
    made = model(nodes, {"x": ["n", 6]}, weights=weights)
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    result, program = run(made, x=x)
    np.testing.assert_array_equal(result, x.reshape(4, 3, 2))
    assert [op.type for op in program.global_block().ops] == ["reshape2"]


def test_two_open_sizes_that_change_places_are_told_by_operators():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "turned"], ["shape"]),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    made = model(nodes, {"x": ["n", "m"]}, weights={"turned": np.array([1, 0])})
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(run(made, x=x)[0], x.reshape(3, 4))


def test_a_length_that_is_noted_wrong_stays_open():
    """PyTorch's exporter notes the length of its example for what a ``GRU`` gives."""
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Gather", ["h", "last"], ["y"], axis=1),
    ]
    made = model(nodes, {"x": ["n", "t"]}, weights={"last": np.array(-1)})
    made.graph.value_info.append(helper.make_tensor_value_info("h", 1, ["n", 3]))
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    assert run(made, x=x)[0].tolist() == [4, 9]
    assert [info.name for info in made.graph.output] == ["y"]


def test_a_number_without_dimensions_has_one_in_a_program():
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Unsqueeze", ["s", "axis"], ["y"]),
    ]
    made = model(nodes, {"x": ["n", 2]}, ("s", "y"), {"axis": np.array([0])})
    result, _ = run(made, x=np.ones((3, 2), np.float32))
    assert result.shape == (1,) and result[0] == 6


@pytest.mark.parametrize("size", range(1, 6))
def test_determinants_of_some_rows(size):
    made = model([helper.make_node("Det", ["x"], ["y"])], {"x": ["n", size, size]})
    x = np.random.default_rng(0).normal(size=(3, size, size)).astype(np.float32)
    np.testing.assert_allclose(run(made, x=x)[0], np.linalg.det(x), rtol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_products_of_all_elements_before(size, reverse, exclusive):
    node = helper.make_node(
        "CumProd", ["x", "axis"], ["y"], reverse=int(reverse), exclusive=int(exclusive)
    )
    made = model([node], {"x": ["n", size]}, weights={"axis": np.array(-1)}, opset=26)
    x = np.random.default_rng(0).normal(size=(3, size)).astype(np.float32)
    wanted = x[:, ::-1] if reverse else x
    if exclusive:
        wanted = np.concatenate([np.ones_like(x[:, :1]), wanted[:, :-1]], 1)
    wanted = np.cumprod(wanted, 1)
    wanted = wanted[:, ::-1] if reverse else wanted
    np.testing.assert_allclose(run(made, x=x)[0], wanted, rtol=1e-5)


def test_masks_and_single_numbers_are_no_parameters():
    weights = {
        "mask": np.array([0, -np.inf], np.float32),
        "scale": np.float32(3),
        "bias": np.ones(2, np.float32),
    }
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["a"]),
        helper.make_node("Add", ["a", "bias"], ["b"]),
        helper.make_node("Add", ["b", "mask"], ["y"]),
    ]
    made = model(nodes, {"x": ["n", 2]}, weights=weights)
    with fluid.scope_guard(fluid.Scope()):
        assert [p.name for p in load(made)[0].all_parameters()] == ["bias"]
        chosen = load(made, trainable=["scale"])[0].all_parameters()
        assert [p.name for p in chosen] == ["scale"]
    with pytest.raises(LoadError, match="no initializers"):
        load(made, trainable=["weight"])


def test_names_of_parameters_are_names_of_files(tmp_path):
    made = model(
        [helper.make_node("Add", ["x", "/layer/../bias"], ["y"])],
        {"x": ["n", 2]},
        weights={"/layer/../bias": np.ones(2, np.float32)},
    )
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = load(made)
        exe = fluid.Executor(fluid.CPUPlace())
        fluid.io.save_inference_model(str(tmp_path / "saved"), feeds, fetches, exe, program)
    assert (tmp_path / "saved" / "layer" / "bias").is_file()


def test_operators_are_grouped_by_the_paths_of_their_nodes():
    node = helper.make_node("Relu", ["x"], ["y"], name="/encoder/layer1/Relu")
    program = load(model([node], {"x": ["n", 2]}))[0]
    assert program.global_block().ops[0].attr("op_namescope") == "/encoder/layer1/"


def test_a_loop_whose_rounds_a_run_counts():
    body = helper.make_graph(
        [
            helper.make_node("Add", ["h", "x"], ["h_out"]),
            helper.make_node("Identity", ["going"], ["going_out"]),
            helper.make_node("Identity", ["h_out"], ["left"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in
         (("i", 7, []), ("going", 9, []), ("h", 1, [2]))],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in
         (("going_out", 9, []), ("h_out", 1, [2]), ("left", 1, [2]))],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["h_last", "all"], body=body)]
    made = model(nodes, {"x": [2]}, ("h_last", "all"))
    made.graph.input.append(helper.make_tensor_value_info("count", onnx.TensorProto.INT64, []))
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = load(made)
        feed = {"x": np.array([1, 2], np.float32), "count": np.array([3])}
        last, left = fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=fetches)
    np.testing.assert_array_equal(last, [4, 8])
    np.testing.assert_array_equal(left, [[2, 4], [3, 6], [4, 8]])


def test_without_pytorch_there_is_a_clear_error(monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for call in (from_torch, fluid.from_torch):
        with pytest.raises(ImportError, match=r"from_torch needs PyTorch"):
            call(None, None)


def test_the_best_boxes_of_each_class_and_image():
    nodes = [helper.make_node("NonMaxSuppression", ["b", "s", "most", "iou", "least"], ["y"])]
    weights = {"most": np.array([2]), "iou": np.float32(0.5), "least": np.float32(0.1)}
    made = model(nodes, {"b": ["n", 3, 4], "s": ["n", 2, 3]}, weights=weights)
    boxes = np.array([[0, 0, 1, 1], [1, 1.1, 0, 0], [5, 5, 6, 6]], np.float32)
    scores = np.array([[0.2, 0.9, 0.8], [0.05, 0.05, 0.7]], np.float32)
    result, _ = run(made, b=np.stack([boxes, boxes]), s=np.stack([scores, scores * 0.1]))
    np.testing.assert_array_equal(result, [[0, 0, 1], [0, 0, 2], [0, 1, 2]])
