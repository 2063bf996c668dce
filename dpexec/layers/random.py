"""Random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import check_dtype, check_type, check_variable_and_dtype
from dpexec.core.dtypes import as_var_type
from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, numbers_or_tensors

__all__ = [
    "gaussian_random",
    "gaussian_random_batch_size_like",
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
        shape: dimensions; numbers, variables with one, or a variable with all.
        dtype: float32 or float64.
        min: lower end.
        max: upper end.
        seed: the same numbers in every run; 0 for others each time.

    Returns:
        The numbers. Source: Paddle op ``uniform_random``.
    """
    check_type(shape, "shape", (list, tuple, Variable), "uniform_random")
    check_dtype(dtype, "dtype", ("float32", "float64"), "uniform_random")
    attrs = {"min": float(min), "max": float(max), "seed": seed}
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
        shape: dimensions; numbers, variables with one, or a variable with all.
        mean: their mean.
        std: their standard deviation.
        seed: the same numbers in every run; 0 for others each time.
        dtype: float32 or float64.

    Returns:
        The numbers. Source: Paddle op ``gaussian_random``.
    """
    check_type(shape, "shape", (list, tuple, Variable), "gaussian_random")
    check_dtype(dtype, "dtype", ("float32", "float64"), "gaussian_random")
    attrs = {"mean": float(mean), "std": float(std), "seed": seed}
    return _random("gaussian_random", shape, dtype, attrs, "int32")


def _random(
    op_type: str, shape: Any, dtype: Any, attrs: dict[str, Any], shape_dtype: str
) -> Variable:
    helper = LayerHelper(op_type)
    inputs: dict[str, Any] = {}
    slots = ("ShapeTensor", "ShapeTensorList")
    numbers_or_tensors(helper, shape, slots, "shape", inputs, attrs, shape_dtype)
    out = helper.create_variable_for_type_inference(dtype)
    attrs = {**attrs, "dtype": out.dtype}
    helper.append_op(type=op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


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
        input: has the batch size.
        shape: dimensions; the one at ``output_dim_idx`` is replaced.
        dtype: float32 or float64.
        input_dim_idx: which dimension of ``input`` is its batch.
        output_dim_idx: which dimension of the result is.
        min: lower end.
        max: upper end.
        seed: the same numbers in every run; 0 for others each time.

    Returns:
        The numbers. Source: Paddle op ``uniform_random_batch_size_like``.
    """
    op_type = "uniform_random_batch_size_like"
    check_variable_and_dtype(input, "input", ("float32", "float64"), op_type)
    attrs = {"min": float(min), "max": float(max), "seed": seed}
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
        input: has the batch size.
        shape: dimensions; the one at ``output_dim_idx`` is replaced.
        input_dim_idx: which dimension of ``input`` is its batch.
        output_dim_idx: which dimension of the result is.
        mean: their mean.
        std: their standard deviation.
        seed: the same numbers in every run; 0 for others each time.
        dtype: float32 or float64.

    Returns:
        The numbers. Source: Paddle op ``gaussian_random_batch_size_like``.
    """
    op_type = "gaussian_random_batch_size_like"
    check_type(input, "input", Variable, op_type)
    attrs = {"mean": float(mean), "std": float(std), "seed": seed}
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
    check_dtype(dtype, "dtype", ("float32", "float64"), op_type)
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
        min: lower end of the random numbers that sums of probabilities are compared with.
        max: upper end.
        seed: the same numbers in every run; 0 for others each time.
        dtype: without effect.

    Returns:
        int64 ``(N,)``. Source: Paddle op ``sampling_id``.
    """
    return add_op("sampling_id", {"X": x}, dtype, {"min": min, "max": max, "seed": seed})
