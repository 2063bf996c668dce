"""Operators on variables: ``x + y``, ``x * 2``, ``x < y`` and ``x[1:3]`` build operators.

As in fluid, a number on either side becomes part of one ``scale`` where that is possible, else a
constant tensor; the right operand is cast to the type of the variable whose method is called.

Example:
    >>> import dpexec as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     x = fluid.data("x", shape=[None, 4])
    ...     y = 2 * x + 1
    ...     [op.type for op in fluid.default_main_program().global_block().ops]
    ['scale', 'scale']
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

import numpy as np

from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import as_var_type, is_float
from dpexec.engine.ir.undo import whole

if TYPE_CHECKING:
    from dpexec.engine.ir.block import Block
    from dpexec.engine.ir.variable import Variable

__all__ = ["Arithmetic", "indexed"]


def _temporary(block: Block, dtype: Any) -> Variable:
    return block.create_var(name=unique_name.generate("tmp"), dtype=dtype)


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, np.number, np.bool_))


def _scaled(x: Variable, scale: float, bias: float) -> Variable:
    block = x.block.program.current_block()
    out = _temporary(block, x.dtype)
    block.append_op(
        type="scale",
        inputs={"X": x},
        outputs={"Out": out},
        attrs={"scale": float(scale), "bias": float(bias)},
    )
    return out


def _constant(like: Variable, value: float, whole: bool) -> Variable:
    """A constant with the data type of ``like``; with its shape if ``whole``, else one element."""
    block = like.block.program.current_block()
    out = _temporary(block, like.dtype)
    attrs: dict[str, Any] = {"value": float(value), "force_cpu": False, "dtype": like.dtype}
    if whole and -1 in like.shape:
        batch = like.shape.index(-1)
        shape = [1 if dim < 0 and i != batch else dim for i, dim in enumerate(like.shape)]
        attrs |= {"shape": shape, "input_dim_idx": batch, "output_dim_idx": batch}
        inputs, op_type = {"Input": like}, "fill_constant_batch_size_like"
    else:
        inputs, op_type = {}, "fill_constant"
        attrs["shape"] = list(like.shape) if whole else [1]
    block.append_op(
        type=op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs, stop_gradient=True
    )
    return out


_SCALES: dict[str, Callable[[float], tuple[float, float]]] = {
    "__add__": lambda number: (1.0, number),
    "__radd__": lambda number: (1.0, number),
    "__sub__": lambda number: (1.0, -number),
    "__rsub__": lambda number: (-1.0, number),
    "__mul__": lambda number: (number, 0.0),
    "__rmul__": lambda number: (number, 0.0),
    "__truediv__": lambda number: (1.0 / number, 0.0),
}


_COMPARISONS: set[str] = set()
"""Comparison operators, whose results are truth values."""


def _no_array(self: Variable, other: Any, method: str) -> Any:
    """Python's answer to what is no operand; an array of NumPy is named in an error.

    Raises:
        TypeError: it is an array.
    """
    if isinstance(other, np.ndarray):
        raise TypeError(
            f"{method} of {self.name} got a NumPy array of shape {other.shape}: make it a variable "
            "by fluid.layers.assign(array), or feed it"
        )
    return NotImplemented


def _binary(op_type: str, method: str, bool_result: bool = False) -> Callable[[Any, Any], Any]:
    reverse = method.startswith("__r")
    if bool_result:
        _COMPARISONS.add(op_type)

    @whole
    def operate(self: Variable, other: Any) -> Any:
        from dpexec.engine.ir.variable import Variable

        if _is_number(other):
            number = float(other)
            if not is_float(self.dtype) and not number.is_integer():
                if not bool_result:
                    raise AssertionError(
                        f"{self.name} holds integers, so {number} cannot be used with it"
                    )
                self = self.astype("float64")  # fluid cuts the number off, and takes 0 < 0.5 for no
            if method in _SCALES and (is_float(self.dtype) or op_type != "elementwise_div"):
                return _scaled(self, *_SCALES[method](number))
            other = _constant(self, number, whole=reverse)
        elif not isinstance(other, Variable):
            return _no_array(self, other, method)
        if other.dtype != self.dtype:
            other = other.astype(self.dtype)
        left, right = (other, self) if reverse else (self, other)
        block = self.block.program.current_block()
        out = _temporary(block, "bool" if bool_result else self.dtype)
        block.append_op(
            type=op_type,
            inputs={"X": left, "Y": right},
            outputs={"Out": out},
            attrs={"axis": 0 if right.shape[:1] == (-1,) else -1},
        )
        return out

    operate.__name__ = method
    operate.__doc__ = f"Build ``{op_type}``."
    return operate


class Arithmetic:
    """The operators of variables; ``@`` and ``len()`` have none, as in fluid."""

    __array_ufunc__ = None  # numpy's numbers leave the operation to the variable

    __add__ = _binary("elementwise_add", "__add__")
    __radd__ = _binary("elementwise_add", "__radd__")
    __sub__ = _binary("elementwise_sub", "__sub__")
    __rsub__ = _binary("elementwise_sub", "__rsub__")
    __mul__ = _binary("elementwise_mul", "__mul__")
    __rmul__ = _binary("elementwise_mul", "__rmul__")
    __truediv__ = _binary("elementwise_div", "__truediv__")
    __rtruediv__ = _binary("elementwise_div", "__rtruediv__")
    __pow__ = _binary("elementwise_pow", "__pow__")
    __rpow__ = _binary("elementwise_pow", "__rpow__")
    __floordiv__ = _binary("elementwise_floordiv", "__floordiv__")
    __mod__ = _binary("elementwise_mod", "__mod__")
    __lt__ = _binary("less_than", "__lt__", bool_result=True)
    __le__ = _binary("less_equal", "__le__", bool_result=True)
    __gt__ = _binary("greater_than", "__gt__", bool_result=True)
    __ge__ = _binary("greater_equal", "__ge__", bool_result=True)
    __eq__ = _binary("equal", "__eq__", bool_result=True)
    __ne__ = _binary("not_equal", "__ne__", bool_result=True)
    __hash__ = object.__hash__

    def __neg__(self) -> Variable:
        return _scaled(cast("Variable", self), -1.0, 0.0)

    def __bool__(self) -> bool:
        op = cast("Variable", self).op
        if op is not None and op.type in _COMPARISONS:
            warnings.warn(
                f"`if`, `while`, `and`, `in` and `assert` take {cast('Variable', self).name}, the "
                f"result of {op.type}, as true, always: its value is known when the program runs; "
                "layers.cond, layers.While and layers.where decide then",
                stacklevel=2,
            )
        return True  # as in fluid, where programs ask whether they got a variable or None

    def __iter__(self) -> NoReturn:
        raise TypeError("a Variable cannot be iterated over: its size is known when it runs")

    @whole
    def astype(self, dtype: Any) -> Variable:
        """A copy with another element type, as one ``cast``."""
        x = cast("Variable", self)
        block = x.block.program.current_block()
        out = _temporary(block, as_var_type(dtype))
        block.append_op(
            type="cast",
            inputs={"X": x},
            outputs={"Out": out},
            attrs={"in_dtype": x.dtype, "out_dtype": out.dtype},
        )
        return out

    @whole
    def __getitem__(self, item: Any) -> Variable:
        return indexed(cast("Variable", self), item)


_TO_THE_END = 10_000_000  # what fluid writes for an open end of a slice


class _AxisIndex(NamedTuple):
    """The index of one axis: a range, or a single position, which removes the axis."""

    axis: int
    start: Any
    end: Any
    step: int
    removes: bool


def indexed(x: Variable, item: Any) -> Variable:
    """Build the operators for ``x[item]``.

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
    """The index of each axis, and the axes that are reversed as a whole."""
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
