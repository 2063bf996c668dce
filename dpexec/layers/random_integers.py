"""Layers that draw integers and permutations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import (
    INTEGERS,
    check_dtype,
    check_type,
    check_variable_and_dtype,
    convert_dtype,
)
from dpexec.engine.core.dtypes import as_var_type
from dpexec.engine.ir.variable import Variable
from dpexec.framework import device_guard
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import (
    add_op,
    check_positive,
    check_shape,
    numbers_or_tensors,
)

__all__ = ["randint", "randperm"]


def randint(
    low: int,
    high: int | None = None,
    shape: Sequence[int | Variable] | Variable | None = None,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Uniform integers in ``[low, high)``.

    Args:
        low: lower end; if ``high`` is None, the upper end, and the lower end is 0.
        high: upper end.
        shape: dimensions: numbers, one-element variables, or a variable with all; None for 1.
        out: variable that takes the result.
        dtype: int32 or int64; None for int64.
        device: where to run, recorded as :func:`~dpexec.device_guard` does; None records nothing.
        stop_gradient: whether gradients stop here.
        seed: any number but 0 gives the same values in every run; 0 draws new ones each time,
            even if the program has a ``random_seed``.
        name: name of the output.

    Returns:
        The numbers. Source: Paddle op ``randint``.

    Raises:
        ValueError: ``low`` is not below ``high``.

    See Also:
        :func:`uniform_random`: equally likely numbers.
        :func:`gaussian_random`: normal numbers.
        :func:`randperm`: a random order.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     out = fluid.layers.randint(0, 10, shape=[4], seed=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0, 0, 6, 8])]
    """
    dtype = "int64" if dtype is None else dtype
    shape = [1] if shape is None else shape
    check_dtype(dtype, "dtype", INTEGERS, "randint")
    check_type(shape, "shape", (list, tuple, Variable), "randint")
    check_shape(shape, "randint")
    check_positive(shape, "shape", "randint")
    low, high = (0, low) if high is None else (low, high)
    if low >= high:
        raise ValueError(f"low of randint must be below high, but they are {low} and {high}")
    helper = LayerHelper("randint", name=name)
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {"low": low, "high": high, "seed": seed}
    slots = ("ShapeTensor", "ShapeTensorList")
    numbers_or_tensors(helper, shape, slots, "shape", inputs, attrs, "int64")
    if out is not None:
        check_variable_and_dtype(out, "out", (convert_dtype(dtype),), "randint")
    elif name is None:
        out = helper.create_variable_for_type_inference(dtype)
    else:
        out = helper.create_variable(name=name, dtype=dtype)
    out.stop_gradient = stop_gradient
    attrs["dtype"] = out.dtype
    with device_guard(device):
        helper.append_op(type="randint", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def randperm(
    n: int,
    out: Variable | None = None,
    dtype: Any = "int64",
    device: str | None = None,
    stop_gradient: bool = True,
    seed: int = 0,
) -> Variable:
    """The integers below ``n`` in random order.

    Args:
        n: upper end, exclusive.
        out: variable that takes the result.
        dtype: int32 or int64.
        device: where to run, recorded as :func:`~dpexec.device_guard` does; None records nothing.
        stop_gradient: whether gradients stop here.
        seed: any number but 0 gives the same order in every run; 0 draws a new one each time,
            even if the program has a ``random_seed``.

    Returns:
        ``(n,)``. Source: Paddle op ``randperm``.

    Raises:
        ValueError: ``n`` is not positive, or the device is unknown.

    See Also:
        :func:`uniform_random`: equally likely numbers.
        :func:`gaussian_random`: normal numbers.
        :func:`randint`: integers.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     out = fluid.layers.randperm(5)
        ...     sorted(fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].tolist())
        [0, 1, 2, 3, 4]
    """
    if n < 1:
        raise ValueError(f"n of randperm must be positive, but is {n}")
    check_dtype(dtype, "dtype", INTEGERS, "randperm")
    if out is not None:
        check_variable_and_dtype(out, "out", (convert_dtype(dtype),), "randperm")
    attrs = {"n": n, "dtype": as_var_type(dtype), "seed": seed}
    with device_guard(device):
        return add_op("randperm", {}, dtype, attrs, out=out, stop_gradient=stop_gradient)
