"""Products of vectors and matrices, and cosines between them."""

from __future__ import annotations

import dpexec.engine.ops  # noqa: F401 - the operators that layers are made from
from dpexec.checks import (
    FLOATS,
    NO_HALF,
    NUMBERS,
    SINGLE_DOUBLE,
    as_number,
    check_type,
    check_variable_and_dtype,
)
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

__all__ = ["addmm", "bmm", "cos_sim", "cross", "dot", "kron", "matmul", "mul"]


def mul(
    x: Variable,
    y: Variable,
    x_num_col_dims: int = 1,
    y_num_col_dims: int = 1,
    name: str | None = None,
) -> Variable:
    """Matrix product of ``x`` and ``y``, both flattened to matrices.

    Args:
        x: a matrix, or more dimensions, of which the first ``x_num_col_dims`` become its rows.
        y: likewise; as matrices ``x`` has as many columns as ``y`` has rows.
        x_num_col_dims: number of dimensions of ``x`` that become rows.
        y_num_col_dims: number of dimensions of ``y`` that become rows.
        name: prefix of names.

    Returns:
        ``x.shape[:x_num_col_dims] + y.shape[y_num_col_dims:]``. Source: Paddle op ``mul``.

    Raises:
        TypeError: ``x`` or ``y`` is no variable of type float16, float32 or float64.
        EnforceNotMet: the columns of ``x`` are not as many as the rows of ``y``, both taken as
            matrices.

    See Also:
        :func:`fc`: a product with a new weight, and a bias.
        :func:`matmul`: a product of two variables, batch by batch.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[3.0], [4.0]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.mul(x, y)])
        [array([[11.]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", FLOATS, "mul")
    check_variable_and_dtype(y, "y", FLOATS, "mul")
    attrs = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return add_op("mul", {"X": x, "Y": y}, x.dtype, attrs, name=name)


def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Matrix product over the last two dimensions, times ``alpha``.

    Args:
        x: ``(..., m, k)``, or a vector.
        y: ``(..., k, n)``, or a vector.
        transpose_x: swap the last two dimensions of ``x``.
        transpose_y: swap the last two dimensions of ``y``.
        alpha: factor.
        name: prefix of names.

    Returns:
        ``(..., m, n)``. Source: Paddle op ``matmul``.

    Raises:
        TypeError: ``x`` or ``y`` is no variable of type float16, float32 or float64.
        EnforceNotMet: as matrices the arguments cannot be multiplied, or the dimensions before
            cannot be broadcast.

    See Also:
        :func:`fc`: a product with a new weight, and a bias.
        :func:`mul`: a product of two variables, as matrices.
        :func:`bmm`: of three dimensions alone.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[3.0, 4.0], [5.0, 6.0]], "float32"))
        ...     out = fluid.layers.matmul(x, y, transpose_y=True)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[11., 17.]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", FLOATS, "matmul")
    check_variable_and_dtype(y, "y", FLOATS, "matmul")
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": as_number(alpha)}
    return add_op("matmul", {"X": x, "Y": y}, x.dtype, attrs, name=name)


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """Cosine of the angle between rows.

    Args:
        X: float32 ``(N, D)``.
        Y: float32 ``(N, D)`` or ``(1, D)``.

    Returns:
        ``(N, 1)``. Source: Paddle op ``cos_sim``.

    Raises:
        TypeError: ``X`` or ``Y`` is no variable of type float32.
        EnforceNotMet: ``Y`` has another shape than ``X`` (its first dimension may be 1).

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 0.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[3.0, 4.0]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.cos_sim(x, y)])
        [array([[0.6]], dtype=float32)]
    """
    check_variable_and_dtype(X, "X", ("float32",), "cos_sim")
    check_variable_and_dtype(Y, "Y", ("float32",), "cos_sim")
    dtypes = dict.fromkeys(("Out", "XNorm", "YNorm"), X.dtype)
    return add_outputs(LayerHelper("cos_sim"), {"X": X, "Y": Y}, dtypes)["Out"]


def addmm(
    input: Variable,
    x: Variable,
    y: Variable,
    alpha: float = 1.0,
    beta: float = 1.0,
    name: str | None = None,
) -> Variable:
    """``beta * input + alpha * (x @ y)``.

    Args:
        input: ``(m, n)``, or a shape that broadcasts to it.
        x: ``(m, k)``.
        y: ``(k, n)``.
        alpha: factor of the product.
        beta: factor of ``input``.
        name: prefix of names.

    Returns:
        ``(m, n)``. Source: Paddle op ``addmm``.

    Raises:
        TypeError: ``input``, ``x`` or ``y`` is no variable of type float32 or float64.
        EnforceNotMet: ``x`` and ``y`` are no matrices that can be multiplied, or ``input`` cannot
            be broadcast to the product.

    See Also:
        :func:`dot`: products of vectors.
        :func:`bmm`: products of batches of matrices.
        :func:`matmul`: the same with transposition and broadcasting.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 1.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     z = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     out = fluid.layers.addmm(x, y, z, alpha=2.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[15., 21.]], dtype=float32)]
    """
    for argument, var in (("Input", input), ("X", x), ("Y", y)):
        check_variable_and_dtype(var, argument, SINGLE_DOUBLE, "addmm")
    attrs = {"Alpha": alpha, "Beta": beta}
    return add_op("addmm", {"Input": input, "X": x, "Y": y}, x.dtype, attrs, name=name)


def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Batched matrix product.

    Args:
        x: ``(N, m, k)``.
        y: ``(N, k, n)``.
        name: prefix of names.

    Returns:
        ``(N, m, n)``. Source: Paddle op ``bmm``.

    Raises:
        EnforceNotMet: an argument does not have three dimensions, or batch sizes, inner sizes or
            types differ.

    See Also:
        :func:`dot`: products of vectors.
        :func:`matmul`: the same with transposition and broadcasting.
        :func:`addmm`: a product and a sum in one.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[[1.0, 2.0], [3.0, 4.0]]], "float32"))
        ...     y = fluid.layers.assign(np.array([[[1.0], [2.0]]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.bmm(x, y)])
        [array([[[ 5.],
                [11.]]], dtype=float32)]
    """
    check_type(x, "x", Variable, "bmm")
    check_type(y, "y", Variable, "bmm")
    return add_op("bmm", {"X": x, "Y": y}, x.dtype, name=name)


def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The sum of ``x * y`` over the last dimension.

    Args:
        x: a vector, or vectors ``(N, D)``.
        y: the same shape.
        name: name of the output.

    Returns:
        ``(1,)`` or ``(N, 1)``. Source: Paddle op ``dot``.

    Raises:
        TypeError: ``x`` or ``y`` is no variable of type float32, float64, int32 or int64.
        EnforceNotMet: shapes or types differ, or these are neither vectors nor batches of them.

    See Also:
        :func:`bmm`: products of batches of matrices.
        :func:`matmul`: the same with transposition and broadcasting.
        :func:`addmm`: a product and a sum in one.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0], "float32"))
        ...     y = fluid.layers.assign(np.array([4.0, 5.0, 6.0], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.dot(x, y)])
        [array([32.], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", NO_HALF, "dot")
    check_variable_and_dtype(y, "y", NO_HALF, "dot")
    helper = LayerHelper("dot", name=name)
    out = None if name is None else helper.create_variable(name=name, dtype=x.dtype)
    return add_op("dot", {"X": x, "Y": y}, x.dtype, name=helper.name, out=out)


def cross(input: Variable, other: Variable, dim: int | None = None) -> Variable:
    """The cross product of vectors of 3 elements.

    Args:
        input: any shape.
        other: the same shape.
        dim: axis of the vectors; None and 0 select the first dimension of size 3.

    Returns:
        The same shape. Source: Paddle op ``cross``.

    Raises:
        EnforceNotMet: shapes or types differ, or no dimension has size 3.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 0.0, 0.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[0.0, 1.0, 0.0]], "float32"))
        ...     out = fluid.layers.cross(x, y, dim=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[0., 0., 1.]], dtype=float32)]
    """
    check_type(input, "input", Variable, "cross")
    check_type(other, "other", Variable, "cross")
    attrs = {"dim": dim} if dim else {}
    return add_op("cross", {"X": input, "Y": other}, input.dtype, attrs)


def kron(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """The Kronecker product: every element of ``x`` times all of ``y``.

    Args:
        x: any shape.
        y: any shape.
        out: variable that takes the result.
        name: prefix of names.

    Returns:
        A tensor whose dimensions are the products of both inputs' dimensions. Source: Paddle op
        ``kron``.

    Raises:
        TypeError: ``x`` or ``y`` is no variable of type float16, float32, float64, int32 or int64.
        EnforceNotMet: the arguments have different types.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[1.0, 10.0]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.kron(x, y)])
        [array([[ 1., 10.,  2., 20.]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", NUMBERS, "kron")
    check_variable_and_dtype(y, "y", NUMBERS, "kron")
    if out is not None:
        check_variable_and_dtype(out, "out", NUMBERS, "kron")
    return add_op("kron", {"X": x, "Y": y}, x.dtype, out=out, name=name)
