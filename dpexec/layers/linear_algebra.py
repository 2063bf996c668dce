"""Products, diagonals and distances of vectors and matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.checks import NO_HALF, NUMBERS, SINGLE_DOUBLE, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, document
from dpexec.layers.tensor import assign

__all__ = [
    "bilinear_tensor_product",
    "diag_embed",
    "dist",
    "fsp_matrix",
    "t",
    "trace",
    "tril",
    "triu",
]


# ---- products


def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Variable:
    """``out[:, k] = x W_k y + b_k`` with trainable matrices ``W_k``.

    Args:
        x: ``(N, M)``.
        y: ``(N, L)``.
        size: number of matrices.
        act: name of an activation.
        name: prefix of names.
        param_attr: attributes of the weight ``(size, M, L)``.
        bias_attr: attributes of the bias ``(1, size)``; False for none.

    Returns:
        ``(N, size)``. Source: Paddle op ``bilinear_tensor_product``.

    Raises:
        EnforceNotMet: ``x`` or ``y`` is no matrix, or they have different types.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 5])
        ...     y = fluid.data("y", [None, 4])
        ...     fluid.layers.bilinear_tensor_product(x, y, size=6).shape
        (-1, 6)
    """
    helper = LayerHelper(
        "bilinear_tensor_product",
        x=x,
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
        name=name,
    )
    dtype = helper.input_dtype("x")
    shape = [size, x.shape[1], y.shape[1]]
    inputs = {"X": x, "Y": y}
    inputs["Weight"] = helper.create_parameter(helper.param_attr, shape, dtype)
    out = helper.create_variable_for_type_inference(dtype)
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, [1, size], dtype, is_bias=True)
    helper.append_op(type="bilinear_tensor_product", inputs=inputs, outputs={"Out": out})
    return helper.append_activation(out)


def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """Correlations between the channels of two layers (FSP matrix), for distillation.

    Args:
        x: ``(N, C1, H, W)``.
        y: ``(N, C2, H, W)``.

    Returns:
        ``(N, C1, C2)``. Source: Paddle op ``fsp``; Yim and others, 2017.

    Raises:
        TypeError: ``x`` or ``y`` is no variable of type float32 or float64.
        EnforceNotMet: ``x`` and ``y`` are no images that differ in their channels only.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 8, 8])
        ...     y = fluid.data("y", [None, 5, 8, 8])
        ...     fluid.layers.fsp_matrix(x, y).shape
        (-1, 3, 5)
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "fsp_matrix")
    check_variable_and_dtype(y, "y", SINGLE_DOUBLE, "fsp_matrix")
    return add_op("fsp", {"X": x, "Y": y}, x.dtype, layer="fsp_matrix")


def dist(x: Variable, y: Variable, p: float = 2) -> Variable:
    """The p-norm of ``x - y`` over all elements.

    Args:
        x: any shape.
        y: a shape that broadcasts with it.
        p: order of the norm; 0 and the infinities are allowed.

    Returns:
        ``(1,)``. Source: Paddle op ``dist``.

    Raises:
        EnforceNotMet: the shapes cannot be broadcast together.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 5.0], "float32"))
        ...     y = fluid.layers.assign(np.array([3.0, 4.0], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.dist(x, y, p=1)])
        [array([3.], dtype=float32)]
    """
    check_variable_and_dtype(x, "dtype", SINGLE_DOUBLE, "dist")
    check_variable_and_dtype(y, "dtype", SINGLE_DOUBLE, "dist")
    check_type(p, "p", (float, int), "dist")
    return add_op("dist", {"X": x, "Y": y}, x.dtype, {"p": float(p)})


# ---- matrices and their diagonals


def t(input: Variable, name: str | None = None) -> Variable:
    """The transpose of a matrix; a vector is returned unchanged.

    Args:
        input: ``(n, m)``, or a vector ``(n,)``.
        name: prefix of names.

    Returns:
        ``(m, n)``, or the vector. Source: Paddle op ``transpose2``.

    Raises:
        ValueError: the input has more than two dimensions.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.t(x)])
        [array([[1.],
               [2.]], dtype=float32)]
    """
    check_type(input, "input", Variable, "t")
    if len(input.shape) > 2:
        raise ValueError(f"input of t must have at most 2 dimensions, but has {input.shape}")
    check_variable_and_dtype(input, "input", NUMBERS, "transpose")
    helper = LayerHelper("t", name=name)
    out = helper.create_variable_for_type_inference(input.dtype)
    shape = helper.create_variable_for_type_inference(input.dtype)
    if len(input.shape) == 1:
        return input
    outputs = {"Out": out, "XShape": shape}
    helper.append_op("transpose2", inputs={"X": input}, outputs=outputs, attrs={"axis": [1, 0]})
    return out


def _triangle(layer: str, lower: bool) -> Callable[..., Variable]:
    def triangle(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
        check_variable_and_dtype(input, "x", NO_HALF, layer)
        if len(input.shape) < 2:
            raise ValueError(f"input of {layer} must have 2 dimensions or more")
        check_type(diagonal, "diagonal", int, layer)
        helper = LayerHelper(layer, name=name)
        out = helper.create_variable(name=helper.name, dtype=input.dtype)
        attrs = {"diagonal": diagonal, "lower": lower}
        helper.append_op("tril_triu", inputs={"X": input}, outputs={"Out": out}, attrs=attrs)
        return out

    arguments = {
        "input": "matrices ``(..., m, n)``.",
        "diagonal": "the diagonal that borders it: 0 is the main one, positive ones lie above.",
        "name": "name of the result (not a prefix).",
    }
    which = "lower" if lower else "upper"
    summary = f"The {which} triangle of each matrix; 0 elsewhere. Source: Paddle op ``tril_triu``."
    raises = "ValueError: ``input`` has fewer than two dimensions."
    returns = "The shape and type of ``input``."
    return document(
        triangle, layer, "tril_triu", arguments, summary, returns=returns, raises=raises
    )


tril = _triangle("tril", True)
triu = _triangle("triu", False)


def trace(
    input: Variable,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Sums of diagonals.

    Args:
        input: at least two dimensions.
        offset: number of the diagonal above the main one; below it if negative.
        dim1: first axis of the matrices.
        dim2: second axis of the matrices.
        out: variable that takes the result.
        name: prefix of names.

    Returns:
        The input's shape without both axes. Source: Paddle op ``trace``.

    Raises:
        TypeError: ``input`` is no variable of type float16, float32, float64, int32 or int64.
        EnforceNotMet: ``dim1`` or ``dim2`` is no axis of ``input``, or both are the same.

    See Also:
        :func:`tril`: the lower triangle.
        :func:`triu`: the upper triangle.
        :func:`diag`: a diagonal matrix.
        :func:`diag_embed`: a diagonal for each row.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.trace(x)])
        [array([5.], dtype=float32)]
    """
    check_variable_and_dtype(input, "Input", NUMBERS, "trace")
    if out is not None:
        check_variable_and_dtype(out, "out", NUMBERS, "trace")
    _check_axes(dim1, dim2, "trace")
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return add_op("trace", {"Input": input}, input.dtype, attrs, out=out, name=name)


def diag_embed(
    input: Variable | np.ndarray[Any, Any], offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Variable:
    """Matrices of zeros with the last dimension of ``input`` on a diagonal.

    Args:
        input: ``(..., n)``; a variable or an array.
        offset: number of the diagonal above the main one; below it if negative.
        dim1: first axis of the matrices in the result.
        dim2: second axis of the matrices.

    Returns:
        ``(..., n + abs(offset), n + abs(offset))``; gradients stop here. Source: Paddle op
        ``diag_embed``.

    Raises:
        TypeError: ``input`` is no variable of type float16, float32, float64, int32 or int64.
        EnforceNotMet: ``dim1`` or ``dim2`` is no axis of the result, or both are the same.

    See Also:
        :func:`tril`: the lower triangle.
        :func:`triu`: the upper triangle.
        :func:`diag`: a diagonal matrix.
        :func:`trace`: sums of diagonals.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.diag_embed(x)])
        [array([[[1., 0.],
                [0., 2.]]], dtype=float32)]
    """
    x = input if isinstance(input, Variable) else assign(input)
    check_variable_and_dtype(x, "Input", NUMBERS, "diag_embed")
    _check_axes(dim1, dim2, "diag_embed")
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return add_op("diag_embed", {"Input": x}, x.dtype, attrs, stop_gradient=True)


def _check_axes(dim1: Any, dim2: Any, layer: str) -> None:
    """Check the types of both axes."""
    check_type(dim1, "dim1", int, layer)
    check_type(dim2, "dim2", int, layer)
