"""Operators that only rearrange elements: shapes, views, errors."""

import numpy as np
import pytest

import dpexec.engine.ops
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec

assert dpexec.engine.ops  # registers the operators


def infer(type, x, attrs, output="Out", slot="X"):
    specs = opdef.get(type).infer_specs({slot: [Spec(x)]}, attrs)[output]
    return [spec.shape for spec in specs] if len(specs) > 1 else specs[0].shape


@pytest.mark.parametrize(
    ("x", "shape", "out"),
    [
        ((2, 3, 4), [0, -1], (2, 12)),
        ((2, 3, 4), [2, 3, 0], (2, 3, 4)),
        ((-1, 784), [-1, 1, 28, 28], (-1, 1, 28, 28)),
        ((-1, 3, 4), [0, -1], (-1, 12)),
        ((-1, 3, 4), [0, 4, 3], (-1, 4, 3)),
        ((-1, 3, 4), [-1, 6], (-1, 6)),
        ((-1, -1, 4), [0, 0, 2, 2], (-1, -1, 2, 2)),
        ((-1, 4), [2, 2], (2, 2)),
    ],
)
def test_reshape(x, shape, out):
    assert infer("reshape2", x, {"shape": shape}) == out
    assert infer("reshape2", x, {"shape": shape}, "XShape") == (0, *x)


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ([5, 5], "not as many elements"),
        ([4, 0], "not as many elements"),
        ([5, -1], "no multiple"),
        ([-1, -1], "only one dimension may be -1"),
        ([2, 3, 4, 0], "0 only where"),
        ([-2, 12], "positive numbers"),
    ],
)
def test_reshape_refuses(shape, problem):
    with pytest.raises(InvalidOp, match=problem) as refused:
        infer("reshape2", (2, 3, 4), {"shape": shape})
    assert "[2, 3, 4]" in str(refused.value)


@pytest.mark.parametrize(
    ("type", "attrs"),
    [
        ("reshape2", {"shape": [4, 6]}),
        ("flatten2", {"axis": 2}),
        ("squeeze2", {"axes": [1]}),
        ("unsqueeze2", {"axes": [0]}),
        ("transpose2", {"axis": [3, 2, 1, 0]}),
    ],
)
def test_nothing_is_copied(type, attrs):
    definition, x = opdef.get(type), np.ones((2, 1, 3, 4))
    extra = [[] if slot.many else None for slot in definition.inputs[1:]]
    out, xshape = definition(np, x, *extra, **definition.kernel_attrs(attrs))
    assert np.shares_memory(out, x)
    assert xshape.shape == (0, 2, 1, 3, 4)


def test_squeeze_and_unsqueeze_refuse():
    with pytest.raises(InvalidOp, match=r"dimension 0 .* not 1"):
        infer("squeeze2", (2, 1), {"axes": [0]})
    with pytest.raises(InvalidOp, match="4 lies outside"):
        infer("unsqueeze2", (2, 3), {"axes": [4]})
    assert infer("unsqueeze2", (-1, 3), {"axes": [2, 0]}) == (1, -1, 3, 1)
    assert infer("squeeze2", (-1, 1, 3), {"axes": []}) == (-1, 3)


def test_transpose_needs_every_dimension_once():
    with pytest.raises(InvalidOp, match=r"\[0, 0\]"):
        infer("transpose2", (2, 3), {"axis": [0, 0]})


def test_split_shapes():
    assert infer("split", (-1, 6), {"axis": 1, "num": 2}) == [(-1, 3), (-1, 3)]
    assert infer("split", (4, -1), {"axis": 0, "sections": [1, -1]}) == [(1, -1), (3, -1)]
    assert infer("split", (-1, 2), {"num": 2}) == [(-1, 2), (-1, 2)]


@pytest.mark.parametrize(
    ("attrs", "problem"),
    [
        ({"axis": 1, "num": 4}, "cannot be divided into 4"),
        ({"axis": 1, "sections": [1, 2]}, "do not add up"),
        ({"axis": 1, "sections": [9, -1]}, "do not add up"),
        ({"axis": 1, "sections": [-1, -1]}, "only one may be -1"),
        ({"axis": 2, "num": 1}, "axis is 2"),
        ({"axis": 0}, "num or sections"),
    ],
)
def test_split_refuses(attrs, problem):
    with pytest.raises(InvalidOp, match=problem):
        infer("split", (2, 6), attrs)


def test_stack_refuses_different_shapes():
    with pytest.raises(InvalidOp, match=r"\[2\], float32\[3\]"):
        opdef.get("stack").infer_specs({"X": [Spec((2,)), Spec((3,))]}, {})


def test_unstack_checks_num():
    with pytest.raises(InvalidOp, match="num is 2"):
        infer("unstack", (2, 3), {"axis": 1, "num": 2}, "Y")
    assert infer("unstack", (2, -1), {"axis": 0, "num": 2}, "Y") == [(-1,), (-1,)]


def test_slice_shapes():
    cut = {"axes": [0, 1], "starts": [1, -2], "ends": [3, 99]}
    assert infer("slice", (-1, 5), cut, slot="Input") == (-1, 2)
    picked = {"axes": [0], "starts": [0], "ends": [1], "decrease_axis": [0]}
    assert infer("slice", (4, 5), picked, slot="Input") == (5,)
    assert infer("slice", (4,), picked, slot="Input") == (1,)


def test_slice_that_leaves_nothing_is_refused():
    cut = {"axes": [0], "starts": [5], "ends": [9]}
    with pytest.raises(InvalidOp, match=r"nothing is left of dimension 0 .*start 5 and end 9"):
        infer("slice", (3,), cut, slot="Input")


def test_strided_slice_backwards_reaches_the_first_element():
    x = np.arange(6)
    attrs = {"axes": [0], "starts": [-1], "ends": [-7], "strides": [-1]}
    definition = opdef.get("strided_slice")
    out = definition(np, x, None, None, None, [], [], [], **definition.kernel_attrs(attrs))
    np.testing.assert_array_equal(out, x[::-1])


def test_expand_needs_a_number_per_dimension():
    with pytest.raises(InvalidOp, match=r"expand_times is \[2\]"):
        infer("expand", (2, 3), {"expand_times": [2]})
    assert infer("expand", (-1, 3), {"expand_times": [2, 2]}) == (-1, 6)


def test_pad_needs_two_numbers_per_dimension():
    with pytest.raises(InvalidOp, match="two numbers"):
        infer("pad", (2, 3), {"paddings": [1, 1]})
    assert infer("pad", (-1, 3), {"paddings": [0, 0, 1, 2]}) == (-1, 6)
    with pytest.raises(InvalidOp, match="too small to be reflected"):
        infer("pad2d", (1, 1, 2, 2), {"paddings": [2, 0, 0, 0], "mode": "reflect"})
