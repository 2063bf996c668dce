"""Random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.checks import (
    SINGLE_DOUBLE,
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
    add_outputs,
    check_positive,
    check_shape,
    check_shape_dtype,
    numbers_or_tensors,
)

__all__ = [
    "gaussian_random",
    "gaussian_random_batch_size_like",
    "randn",
    "sampling_id",
    "uniform_random",
    "uniform_random_batch_size_like",
]


def uniform_random(
    shape: Sequence[int | Variable] | Variable,
    dtype: Any = "float32",
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Uniform numbers in ``[min, max)``.

    Args:
        shape: dimensions: numbers, one-element variables, or a variable with all dimensions.
        dtype: float32 or float64.
        min: lower end.
        max: upper end.
        seed: any number but 0 gives the same values in every run; 0 draws new ones each time,
            even if the program has a ``random_seed``.

    Returns:
        The numbers. Source: Paddle op ``uniform_random``.

    Raises:
        TypeError: ``dtype`` is neither float32 nor float64.
        AssertionError: ``shape`` is empty.

    See Also:
        :func:`gaussian_random`: normal numbers.
        :func:`randint`: integers.
        :func:`randperm`: a random order.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     fluid.layers.uniform_random([2, 3]).shape
        (2, 3)
    """
    check_type(shape, "shape", (list, tuple, Variable), "uniform_random")
    check_dtype(dtype, "dtype", SINGLE_DOUBLE, "uniform_random")
    check_positive(shape, "shape", "uniform_random")
    attrs = {"min": min, "max": max, "seed": seed}
    return _random("uniform_random", shape, dtype, attrs, "int64")


def gaussian_random(
    shape: Sequence[int | Variable] | Variable,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """Normal numbers.

    Args:
        shape: dimensions: numbers, one-element variables, or a variable with all dimensions.
        mean: mean of the distribution.
        std: standard deviation of the distribution.
        seed: any number but 0 gives the same values in every run; 0 draws new ones each time,
            even if the program has a ``random_seed``.
        dtype: float32 or float64.

    Returns:
        The numbers. Source: Paddle op ``gaussian_random``.

    Raises:
        TypeError: ``shape`` is no variable of type int32 or int64.
        AssertionError: ``shape`` is empty.

    See Also:
        :func:`uniform_random`: equally likely numbers.
        :func:`randint`: integers.
        :func:`randperm`: a random order.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     fluid.layers.gaussian_random([2, 3]).shape
        (2, 3)
    """
    check_type(shape, "shape", (list, tuple, Variable), "gaussian_random")
    check_shape_dtype(shape, "gaussian_random")
    check_dtype(dtype, "dtype", SINGLE_DOUBLE, "gaussian_random")
    attrs = {"mean": mean, "std": std, "seed": seed}
    return _random("gaussian_random", shape, dtype, attrs, "int32")


def _random(
    op_type: str, shape: Any, dtype: Any, attrs: dict[str, Any], shape_dtype: str
) -> Variable:
    helper = LayerHelper(op_type)
    inputs: dict[str, Any] = {}
    slots = ("ShapeTensor", "ShapeTensorList")
    check_shape(shape, op_type)
    numbers_or_tensors(helper, shape, slots, "shape", inputs, attrs, shape_dtype)
    attrs = {**attrs, "dtype": as_var_type(dtype)}
    return add_outputs(helper, inputs, {"Out": dtype}, attrs)["Out"]


def uniform_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Uniform numbers with the batch size of ``input``.

    Args:
        input: the variable whose batch size is used.
        shape: dimensions; the one at ``output_dim_idx`` is replaced by the batch size.
        dtype: float32 or float64.
        input_dim_idx: which dimension of ``input`` is its batch.
        output_dim_idx: which dimension of the result is the batch.
        min: lower end.
        max: upper end.
        seed: any number but 0 gives the same values in every run; 0 draws new ones each time,
            even if the program has a ``random_seed``.

    Returns:
        The numbers. Source: Paddle op ``uniform_random_batch_size_like``.

    Raises:
        TypeError: ``input`` is no variable of type float32 or float64.
        EnforceNotMet: ``input_dim_idx`` or ``output_dim_idx`` lies outside of its shape.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 8])
        ...     fluid.layers.uniform_random_batch_size_like(x, [-1, 4]).shape
        (-1, 4)
    """
    op_type = "uniform_random_batch_size_like"
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, op_type)
    attrs = {"min": min, "max": max, "seed": seed}
    return _like(op_type, input, shape, dtype, input_dim_idx, output_dim_idx, attrs)


def gaussian_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """Normal numbers with the batch size of ``input``.

    Args:
        input: the variable whose batch size is used.
        shape: dimensions; the one at ``output_dim_idx`` is replaced by the batch size.
        input_dim_idx: which dimension of ``input`` is its batch.
        output_dim_idx: which dimension of the result is the batch.
        mean: mean of the distribution.
        std: standard deviation of the distribution.
        seed: any number but 0 gives the same values in every run; 0 draws new ones each time,
            even if the program has a ``random_seed``.
        dtype: float32 or float64.

    Returns:
        The numbers. Source: Paddle op ``gaussian_random_batch_size_like``.

    Raises:
        EnforceNotMet: ``input_dim_idx`` or ``output_dim_idx`` lies outside of its shape.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 8])
        ...     fluid.layers.gaussian_random_batch_size_like(x, [-1, 4]).shape
        (-1, 4)
    """
    op_type = "gaussian_random_batch_size_like"
    check_type(input, "input", Variable, op_type)
    attrs = {"mean": mean, "std": std, "seed": seed}
    return _like(op_type, input, shape, dtype, input_dim_idx, output_dim_idx, attrs)


def _like(
    op_type: str,
    input: Variable,
    shape: Sequence[int],
    dtype: Any,
    input_dim_idx: int,
    output_dim_idx: int,
    attrs: dict[str, Any],
) -> Variable:
    check_type(shape, "shape", (list, tuple), op_type)
    check_dtype(dtype, "dtype", SINGLE_DOUBLE, op_type)
    attrs |= {
        "shape": list(shape),
        "dtype": as_var_type(dtype),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
    }
    return add_op(op_type, {"Input": input}, dtype, attrs)


def sampling_id(
    x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: Any = "float32"
) -> Variable:
    """A class drawn from every row of probabilities.

    Args:
        x: probabilities ``(N, classes)``.
        min: lower end of the uniform numbers that are compared with cumulative probabilities.
        max: upper end.
        seed: any number but 0 gives the same values in every run; 0 draws new ones each time,
            even if the program has a ``random_seed``.
        dtype: ignored.

    Returns:
        int64 ``(N,)``. Source: Paddle op ``sampling_id``.

    Raises:
        EnforceNotMet: ``x`` is not ``(samples, classes)`` of floats.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.0, 1.0], [1.0, 0.0]], "float32"))
        ...     out = fluid.layers.sampling_id(x)
        ...     (found,) = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        >>> found.tolist()  # one class for every row
        [1, 0]
    """
    return add_op("sampling_id", {"X": x}, dtype, {"min": min, "max": max, "seed": seed})


def randn(
    shape: Sequence[int],
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Standard normal numbers.

    As in fluid, the seed is drawn from ``numpy.random`` when the program is built. Every run
    therefore gives the same numbers, except for one program in a hundred (a seed of 0).

    Args:
        shape: dimensions.
        out: variable that takes the result.
        dtype: float32 or float64; None for float32.
        device: where to run, recorded as :func:`~dpexec.device_guard` does; None records nothing.
        stop_gradient: whether gradients stop here.
        name: prefix of names.

    Returns:
        The numbers. Source: Paddle op ``gaussian_random``.

    Raises:
        TypeError: ``dtype`` is neither float32 nor float64.
        ValueError:  ``device`` neither ``"cpu"`` nor ``"gpu"``.
        AssertionError: ``shape`` is empty.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     fluid.layers.randn([2, 3]).shape
        (2, 3)
    """
    dtype = "float32" if dtype is None else dtype
    check_type(shape, "shape", (list, tuple), "randn")
    check_dtype(dtype, "create data type", SINGLE_DOUBLE, "randn")
    check_shape(shape, "randn")
    if out is not None:
        check_variable_and_dtype(out, "out", (convert_dtype(dtype),), "randn")
    seed = int(np.random.randint(0, 100))  # noqa: NPY002 - numpy.random.seed counts
    attrs = {"shape": list(shape), "mean": 0.0, "std": 1.0, "seed": seed}
    attrs["dtype"] = as_var_type(dtype)
    with device_guard(device):
        made = add_op("gaussian_random", {}, dtype, attrs, layer="randn", name=name, out=out)
    made.stop_gradient = stop_gradient
    return made
