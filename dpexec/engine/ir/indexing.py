"""What ``x[1:3]`` builds of a variable: ``slice``, ``strided_slice``, ``reverse``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpexec.engine.core import unique_name

if TYPE_CHECKING:
    from dpexec.engine.ir.variable import Variable

__all__ = ["indexed"]

_TO_THE_END = 10_000_000  # what fluid writes for an open end of a slice


class _AxisIndex(NamedTuple):
    """What an index says about one axis: a range, or one position that removes the axis."""

    axis: int
    start: Any
    end: Any
    step: int
    removes: bool


def indexed(x: Variable, item: Any) -> Variable:
    """Build what an index takes of a variable.

    Args:
        x: the variable.
        item: integers, slices and integer Variables, for its first axes.

    Raises:
        IndexError: a slice that goes backwards has an open end.
        TypeError: an index of another kind.
    """
    indices, reversed_axes = _by_axis(x, item if isinstance(item, tuple) else (item,))
    if indices:
        x = _sliced(x, indices)
    if reversed_axes:
        x = _append(x, "reverse", f"{x.name}_slice_reverse", {"X": x}, {"axis": reversed_axes})
    return x


def _by_axis(x: Variable, items: tuple[Any, ...]) -> tuple[list[_AxisIndex], list[int]]:
    """The indices of axes, and the axes that are reversed as a whole."""
    from dpexec.engine.ir.variable import Variable

    indices, reversed_axes = [], []
    for axis, item in enumerate(items):
        if isinstance(item, slice):
            step = 1 if item.step is None else item.step
            whole = item.start is None and item.stop is None
            if whole and step == -1:
                reversed_axes.append(axis)
            elif whole and step == 1:
                continue
            elif step < 0 and (item.start is None or item.stop is None):
                raise IndexError(f"a slice of {x.name} with step {step} needs both ends")
            else:
                start = 0 if item.start is None else item.start
                end = _TO_THE_END if item.stop is None else item.stop
                indices.append(_AxisIndex(axis, start, end, step, removes=False))
        elif isinstance(item, Variable):
            indices.append(_AxisIndex(axis, item, _next(x, item), 1, removes=True))
        elif isinstance(item, (int, np.integer)):
            end = _TO_THE_END if item == -1 else int(item) + 1
            indices.append(_AxisIndex(axis, int(item), end, 1, removes=True))
        else:
            raise TypeError(
                f"{x.name} is indexed with integers, slices and Variables, not {item!r}"
            )
    return indices, reversed_axes


def _integer(x: Variable, value: int) -> Variable:
    """A constant that stays on the host."""
    out = x.block.create_var(dtype="int32")
    attrs = {"shape": [1], "dtype": out.dtype, "value": float(value), "force_cpu": True}
    x.block.append_op(type="fill_constant", outputs={"Out": out}, attrs=attrs, stop_gradient=True)
    return out


def _next(x: Variable, position: Variable) -> Variable:
    one = _integer(x, 1)
    out = x.block.create_var(dtype="int32")
    x.block.append_op(
        type="elementwise_add",
        inputs={"X": position, "Y": one},
        outputs={"Out": out},
        attrs={"axis": -1},
    )
    return out


def _sliced(x: Variable, indices: list[_AxisIndex]) -> Variable:
    from dpexec.engine.ir.variable import Variable

    strided = any(index.step != 1 for index in indices)
    inputs: dict[str, Any] = {"Input": x}
    attrs: dict[str, Any] = {"axes": [index.axis for index in indices]}
    attrs["decrease_axis"] = [index.axis for index in indices if index.removes]
    known = [True] * len(indices)
    bounds = {
        "Starts": [index.start for index in indices],
        "Ends": [index.end for index in indices],
    }
    if strided:
        bounds["Strides"] = [index.step for index in indices]
    for word, values in bounds.items():
        variable = [isinstance(value, Variable) for value in values]
        attrs[word.lower()] = [-1 if v else int(n) for v, n in zip(variable, values, strict=True)]
        known = [k and not v for k, v in zip(known, variable, strict=True)]
        if any(variable):
            inputs[f"{word}TensorList"] = [
                value if isinstance(value, Variable) else _integer(x, value) for value in values
            ]
            for value in values:
                if isinstance(value, Variable):
                    value.stop_gradient = True
    attrs["infer_flags"] = [1 if k else -1 for k in known]
    op_type = "strided_slice" if strided else "slice"
    return _append(x, op_type, f"{x.name}_{op_type}", inputs, attrs)


def _append(
    x: Variable, op_type: str, name: str, inputs: dict[str, Any], attrs: dict[str, Any]
) -> Variable:
    out = x.block.create_var(name=unique_name.generate(name), dtype=x.dtype)
    x.block.append_op(type=op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out
