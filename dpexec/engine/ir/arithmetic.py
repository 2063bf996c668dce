"""Operators on variables: ``x + y``, ``x * 2``, ``x < y`` build operators.

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
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import as_var_type, is_float
from dpexec.engine.ir.indexing import indexed
from dpexec.engine.ir.undo import whole

if TYPE_CHECKING:
    from dpexec.engine.ir.block import Block
    from dpexec.engine.ir.variable import Variable

__all__ = ["Arithmetic"]


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
    """A constant of the type of ``like``; of its shape if ``whole``, else with one element."""
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


_COMPARISONS = frozenset(
    {"less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal"}
)


def _binary(op_type: str, method: str, bool_result: bool = False) -> Callable[[Any, Any], Any]:
    reverse = method.startswith("__r")

    @whole
    def operate(self: Variable, other: Any) -> Any:
        from dpexec.engine.ir.variable import Variable

        if _is_number(other):
            number = float(other)
            if not is_float(self.dtype) and not number.is_integer():
                raise AssertionError(
                    f"{self.name} holds integers, so {number} cannot be used with it"
                )
            if method in _SCALES and (is_float(self.dtype) or op_type != "elementwise_div"):
                return _scaled(self, *_SCALES[method](number))
            other = _constant(self, number, whole=reverse)
        elif not isinstance(other, Variable):
            return NotImplemented
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
