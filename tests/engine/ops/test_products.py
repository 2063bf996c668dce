"""``mul`` and ``matmul``: shapes and errors."""

import numpy as np
import pytest

import dpexec.engine.ops
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec

assert dpexec.engine.ops  # registers the operators


def infer(type, x, y, **attrs):
    specs = {"X": [Spec(x)], "Y": [Spec(y)]}
    return opdef.get(type).infer_specs(specs, attrs)["Out"][0].shape


@pytest.mark.parametrize(
    ("x", "y", "attrs", "out"),
    [
        ((-1, 13), (13, 1), {}, (-1, 1)),
        ((-1, 3, 4), (12, 5), {}, (-1, 5)),
        ((-1, -1, 4), (4, 5), {"x_num_col_dims": 2}, (-1, -1, 5)),
        ((2, 3, 4), (3, 4, 2, 1), {"y_num_col_dims": 2}, (2, 2, 1)),
    ],
)
def test_mul_shape(x, y, attrs, out):
    assert infer("mul", x, y, **attrs) == out


def test_mul_names_what_does_not_fit():
    with pytest.raises(InvalidOp, match=r"float32\[2, 3, 4\] has 12 columns .*\[4, 5\] has 4 rows"):
        infer("mul", (2, 3, 4), (4, 5))
    with pytest.raises(InvalidOp, match="x_num_col_dims=1"):
        infer("mul", (2,), (4, 5))
    with pytest.raises(InvalidOp, match="y_num_col_dims=2"):
        infer("mul", (2, 4), (4, 5), y_num_col_dims=2)


@pytest.mark.parametrize(
    ("x", "y", "attrs", "out"),
    [
        ((3,), (3,), {}, (1,)),
        ((2, 3), (3,), {}, (2,)),
        ((3,), (3, 2), {}, (2,)),
        ((3,), (4, 3, 2), {}, (4, 2)),
        ((3,), (2,), {"transpose_X": True, "transpose_Y": True}, (3, 2)),
        ((-1, 2, 3), (-1, 3, 5), {}, (-1, 2, 5)),
        ((-1, 2, 3), (3, 5), {}, (-1, 2, 5)),
    ],
)
def test_matmul_shape(x, y, attrs, out):
    assert infer("matmul", x, y, **attrs) == out


@pytest.mark.parametrize(
    ("x", "y", "attrs"),
    [
        ((2, 3), (2, 3), {}),
        ((3,), (3,), {"transpose_X": True}),
        ((1, 2, 3), (4, 3, 5), {}),
        ((2, 4, 2, 3), (4, 3, 2), {}),
    ],
)
def test_matmul_names_shapes_that_do_not_fit(x, y, attrs):
    with pytest.raises(InvalidOp) as refused:
        infer("matmul", x, y, **attrs)
    assert str(list(x)) in str(refused.value)
    assert str(list(y)) in str(refused.value)


def test_only_the_gradient_that_is_needed_is_computed():
    x, y, d_out = np.ones((2, 3)), np.ones((3, 4)), np.ones((2, 4))
    for type in ("mul_grad", "matmul_grad"):
        d_x, d_y = opdef.get(type)(np, x, y, d_out, needs=(False, True))
        assert d_x is None
        assert d_y.shape == (3, 4)
