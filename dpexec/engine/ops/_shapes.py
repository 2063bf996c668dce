"""Axes and shapes: checks and rules shared by many operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType, is_float
from dpexec.engine.ir.opdef import Spec, dims_match, require


def require_axis(axis: int, spec: Spec, name: str = "X", attribute: str = "axis") -> int:
    """The axis counted from the front; rejected if ``spec`` does not have it."""
    require(
        -spec.rank <= axis < spec.rank,
        f"{attribute} is {axis}, which is not an axis of {name} {spec}",
    )
    return axis % spec.rank


def require_float(spec: Spec, name: str = "X") -> None:
    """Reject integers and booleans."""
    require(is_float(spec.dtype), f"{name} {spec} must hold floating point numbers")


def require_integer(spec: Spec, name: str) -> None:
    """Reject everything but int32 and int64."""
    require(spec.dtype in (VarType.INT32, VarType.INT64), f"{name} {spec} must hold int32 or int64")


def require_same_dtype(a: Spec, b: Spec, names: str = "X and Y") -> None:
    """Reject mixed data types: fluid never converts silently."""
    require(a.dtype == b.dtype, f"{names} must have one data type, but they are {a} and {b}")


def same_dims(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes can be equal; unknown dimensions match everything."""
    return len(a) == len(b) and all(map(dims_match, a, b))


def require_same_shape(a: Spec, b: Spec, names: str = "X and Y") -> None:
    """Reject tensors whose shapes cannot be equal."""
    require(same_dims(a.shape, b.shape), f"{names} must have one shape, but they are {a} and {b}")


def require_shape_of(spec: Spec, other: Spec, name: str, other_name: str) -> None:
    """Reject a tensor whose shape cannot be that of another tensor."""
    require(
        same_dims(spec.shape, other.shape),
        f"{name} {spec} must have the shape of {other_name} {other}",
    )


def infer_number(x: Spec) -> Spec:
    """One number is computed from all elements, ``(1,)``."""
    require_float(x)
    return x.replace(shape=(1,), lod_level=0)


def product(dims: Sequence[int]) -> int:
    """Number of elements, -1 if a dimension is unknown."""
    return -1 if any(dim < 0 for dim in dims) else math.prod(dims)


def as_ints(value: Any) -> list[int]:
    """An attribute that is an integer or a list of them, as a list."""
    return [int(v) for v in value] if isinstance(value, list | tuple) else [int(value)]


def integer(attribute: int, variable: Any) -> int:
    """The value of an attribute, or of the variable with one element that replaces it."""
    return attribute if variable is None else int(variable.reshape(-1)[0])


def integers(attribute: Sequence[int], variable: Any, parts: Sequence[Any]) -> tuple[int, ...]:
    """The values of an attribute, or of the variable, or one per number, that replaces it."""
    if parts:
        return tuple(int(part.reshape(-1)[0]) for part in parts)
    numbers = attribute if variable is None else variable.reshape(-1)
    return tuple(int(number) for number in numbers)


def wanted_shape(attribute: Sequence[int], variable: Any, parts: Sequence[Any]) -> tuple[int, ...]:
    """The shape that an attribute or variables hold."""
    made = integers(attribute, variable, parts)
    require(min(made, default=0) >= 0, f"a shape has no sizes below 0, but it is {list(made)}")
    return made


def spread(xp: Any, values: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
    """Repeat the results of a reduction over ``axes`` for every element that was reduced.

    Returns:
        A read-only view of ``shape``.
    """
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    return xp.broadcast_to(values.reshape(kept), shape)


def require_numbers(parts: Sequence[Spec], name: str) -> None:
    """Check that the variables in a list of numbers have one element each, as in Paddle."""
    for part in parts:
        require(part.shape in ((1,), (-1,)), f"{name} {part} must have shape [1]: it is one number")


def infer_shape_attribute(
    shape: Sequence[int], tensor: Spec | None = None, parts: Sequence[Spec] = ()
) -> tuple[int, ...]:
    """A shape given as :func:`integers`, as far as it is known before a run.

    Args:
        shape: the attribute; with ``parts``, their dimensions are -1 in it.
        tensor: a variable with the whole shape, whose values are unknown here.
        parts: a variable per dimension.
    """
    require_numbers(parts, "ShapeTensorList")
    if parts:
        return tuple(shape) if len(shape) == len(parts) else (-1,) * len(parts)
    if tensor is not None:
        require(tensor.size > 0, f"ShapeTensor {tensor} must have a known number of elements")
        return (-1,) * tensor.size
    require(
        all(dim >= 0 for dim in shape),
        f"attribute shape is {list(shape)}, but no dimension may be negative here",
    )
    return tuple(shape)


def batch_size_like(
    shape: Sequence[int],
    like: Sequence[int],
    input_dim_idx: int,
    output_dim_idx: int,
) -> tuple[int, ...]:
    """``shape`` with one dimension taken from another shape."""
    require(
        0 <= input_dim_idx < len(like) and 0 <= output_dim_idx < len(shape),
        f"input_dim_idx={input_dim_idx} or output_dim_idx={output_dim_idx} lies outside the "
        f"shapes {list(like)} of Input and {list(shape)} of the attribute",
    )
    made = list(shape)
    made[output_dim_idx] = like[input_dim_idx]
    return tuple(made)


def require_lengths(
    axes: Sequence[int], bounds: dict[str, tuple[Spec | None, Sequence[Any]]]
) -> None:
    """Check that there is a bound per axis, unless a tensor has the bounds.

    Args:
        axes: the axes that are cut.
        bounds: by name, the tensor or None, and the numbers or a variable for each.
    """
    for name, (tensor, numbers) in bounds.items():
        require(
            tensor is not None or len(numbers) == len(axes),
            f"{name} must have the same length as axes {list(axes)}, but has {len(numbers)}",
        )
