"""Layers that reshape, permute, split, join and repeat tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.checks import NO_HALF, NUMBERS, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.engine.ops.reshape2 import resolved
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, check_shape, numbers_or_tensors
from dpexec.layers.tensor import assign

__all__ = ["flatten", "rank", "reshape", "shape", "size", "squeeze", "transpose", "unsqueeze"]


def _with_x_shape(
    helper: LayerHelper,
    op_type: str,
    x: Variable,
    inputs: dict[str, Any],
    attrs: dict[str, Any],
    out: Variable | None = None,
) -> Variable:
    """Add an operator that also outputs XShape, the shape of ``x`` for its gradient."""
    if out is None:
        out = helper.create_variable_for_type_inference(x.dtype)
    x_shape = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(
        type=op_type,
        inputs={"X": x, **inputs},
        outputs={"Out": out, "XShape": x_shape},
        attrs=attrs,
    )
    return out


def reshape(
    x: Variable,
    shape: Sequence[int | Variable] | Variable,
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """The same elements in another shape.

    Args:
        x: any shape.
        shape: the new shape; -1 (once) means the rest, 0 keeps the dimension at this position.
        actual_shape: variable with the shape; takes precedence when the program runs.
        act: activation to apply.
        inplace: write to ``x`` itself.
        name: prefix of names.

    Returns:
        The reshaped variable. Source: Paddle op ``reshape2``.

    Raises:
        AssertionError: there are several -1, other negative numbers, or a 0 beyond the rank.

    See Also:
        :func:`squeeze`: drops axes of size 1.
        :func:`unsqueeze`: adds axes of size 1.
        :func:`flatten`: to a matrix.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [8, 3, 4])
        ...     fluid.layers.reshape(x, shape=[0, -1]).shape  # 0 keeps a size
        (8, 12)
    """
    check_variable_and_dtype(x, "x", NUMBERS, "reshape")
    check_type(shape, "shape", (list, tuple, Variable), "reshape")
    check_shape(shape, "reshape")
    if not isinstance(shape, Variable):
        _check_shape(shape, len(x.shape))
    check_type(actual_shape, "actual_shape", (Variable, type(None)), "reshape")
    helper = LayerHelper("reshape2", act=act, name=name)
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    numbers_or_tensors(helper, shape, ("Shape", "ShapeTensor"), "shape", inputs, attrs)
    if not inputs and actual_shape is not None:
        actual_shape.stop_gradient = True
        inputs["Shape"] = actual_shape
    before = x.spec
    out = _with_x_shape(helper, "reshape2", x, inputs, attrs, out=x if inplace else None)
    if attrs.get("shape") and "Shape" in inputs:
        # Layers that follow size their parameters by what the program says of the result.
        out.set_spec(out.spec.replace(shape=resolved(attrs["shape"], before)))
    return helper.append_activation(out)


def _check_shape(shape: Sequence[Any], rank: int) -> None:
    known = [(i, dim) for i, dim in enumerate(shape) if not isinstance(dim, Variable)]
    if [dim for _, dim in known].count(-1) > 1:
        raise AssertionError(f"shape of reshape is {list(shape)}: only one dimension may be -1")
    for index, dim in known:
        if dim < -1:
            raise AssertionError(f"shape of reshape is {list(shape)}: {dim} cannot be")
        if dim == 0 and index >= rank:
            raise AssertionError(
                f"shape of reshape is {list(shape)}: 0 at {index} copies a dimension, but x has "
                f"{rank}"
            )


def squeeze(input: Variable, axes: list[int], name: str | None = None) -> Variable:
    """Remove dimensions of size 1.

    Args:
        input: any shape.
        axes: dimensions to remove; empty for all of size 1.
        name: prefix of names.

    Returns:
        The squeezed variable. Source: Paddle op ``squeeze2``.

    Raises:
        TypeError: ``input`` is no variable, or ``axes`` is no list.
        EnforceNotMet: an axis is none of ``input``, or its size is not 1.

    See Also:
        :func:`reshape`: to any shape.
        :func:`unsqueeze`: adds axes of size 1.
        :func:`flatten`: to a matrix.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [8, 1, 4])
        ...     fluid.layers.squeeze(x, axes=[1]).shape
        (8, 4)
    """
    check_variable_and_dtype(input, "input", (*NUMBERS, "int8"), "squeeze")
    check_type(axes, "axes", list, "squeeze")
    return _with_x_shape(LayerHelper("squeeze", name=name), "squeeze2", input, {}, {"axes": axes})


def unsqueeze(
    input: Variable, axes: int | Sequence[int | Variable] | Variable, name: str | None = None
) -> Variable:
    """Insert dimensions of size 1.

    Args:
        input: any shape.
        axes: positions of the new dimensions in the result.
        name: prefix of names.

    Returns:
        The unsqueezed variable. Source: Paddle op ``unsqueeze2``.

    Raises:
        TypeError: ``input`` is no variable, or ``axes`` neither a number nor several.
        EnforceNotMet: an axis lies outside of the shape, or is no number.

    See Also:
        :func:`reshape`: to any shape.
        :func:`squeeze`: drops axes of size 1.
        :func:`flatten`: to a matrix.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [8, 4])
        ...     fluid.layers.unsqueeze(x, axes=[1]).shape
        (8, 1, 4)
    """
    check_type(axes, "axes", (int, list, tuple, Variable), "unsqueeze")
    helper = LayerHelper("unsqueeze2", name=name)
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    wanted = [axes] if isinstance(axes, int) else axes
    numbers_or_tensors(helper, wanted, ("AxesTensor", "AxesTensorList"), "axes", inputs, attrs)
    return _with_x_shape(helper, "unsqueeze2", input, inputs, attrs)


def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """Flatten to a matrix: dimensions before ``axis`` become rows, the others columns.

    Args:
        x: any shape.
        axis: between 0 and the number of dimensions.
        name: prefix of names.

    Returns:
        The matrix. Source: Paddle op ``flatten2``.

    Raises:
        ValueError: there is no such axis.

    See Also:
        :func:`reshape`: to any shape.
        :func:`squeeze`: drops axes of size 1.
        :func:`unsqueeze`: adds axes of size 1.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [2, 3, 4, 5])
        ...     fluid.layers.flatten(x, axis=2).shape
        (6, 20)
    """
    check_variable_and_dtype(x, "x", (*NO_HALF, "int8"), "flatten")
    if not isinstance(axis, int) or not 0 <= axis <= len(x.shape):
        raise ValueError(f"axis of flatten must be in [0, {len(x.shape)}], but is {axis!r}")
    return _with_x_shape(LayerHelper("flatten", name=name), "flatten2", x, {}, {"axis": axis})


def transpose(x: Variable, perm: list[int], name: str | None = None) -> Variable:
    """Permute dimensions.

    Args:
        x: any shape.
        perm: the source dimension of every dimension of the result.
        name: prefix of names.

    Returns:
        The transposed variable. Source: Paddle op ``transpose2``.

    Raises:
        ValueError: ``perm`` names other dimensions than those of ``x``.
        EnforceNotMet: it names one twice.

    See Also:
        :func:`reverse`: another order of elements.
        :func:`flip`: the same, as in other libraries.
        :func:`roll`: shifts elements.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     out = fluid.layers.transpose(x, perm=[1, 0])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1., 3.],
               [2., 4.]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", NUMBERS, "transpose")
    check_type(perm, "perm", list, "transpose")
    rank = len(x.shape)
    if len(perm) != rank or any(p >= rank for p in perm):
        raise ValueError(
            f"perm of transpose must be a permutation of the {rank} dimensions of {x.name}, "
            f"but is {perm}"
        )
    return _with_x_shape(LayerHelper("transpose", name=name), "transpose2", x, {}, {"axis": perm})


def shape(input: Variable) -> Variable:
    """The sizes of the dimensions, as a variable.

    Args:
        input: any type and shape.

    Returns:
        int32 ``(rank,)``. Source: Paddle op ``shape``.

    Raises:
        TypeError: ``input`` is no variable.

    See Also:
        :func:`size`: the number of elements.
        :func:`rank`: the number of axes.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.shape(x)])
        [array([1, 2], dtype=int32)]
    """
    check_variable_and_dtype(input, "input", NO_HALF, "shape")
    return add_op("shape", {"Input": input}, "int32")


def size(input: Variable) -> Variable:
    """The number of elements, as a variable.

    Args:
        input: any type and shape.

    Returns:
        int64 ``(1,)``. Source: Paddle op ``size``.

    Raises:
        TypeError: ``input`` is no variable.

    See Also:
        :func:`shape`: sizes of the batch that runs, as a variable.
        :func:`rank`: the number of axes.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.size(x)])
        [array([2])]
    """
    check_type(input, "input", Variable, "size")
    return add_op("size", {"Input": input}, "int64")


def rank(input: Variable) -> Variable:
    """The number of dimensions, as a variable.

    Args:
        input: any type and shape.

    Returns:
        int32 ``()``. Source: Paddle op ``assign_value``.

    Raises:
        TypeError: ``input`` is no variable.

    See Also:
        :func:`shape`: sizes of the batch that runs, as a variable.
        :func:`size`: the number of elements.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.rank(x)])
        [array(2, dtype=int32)]
    """
    check_type(input, "input", Variable, "rank")
    return assign(np.array(len(input.shape), dtype=np.int32))
