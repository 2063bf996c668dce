"""Initializers that fill in given values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import dpexec.engine.ops  # noqa: F401 - the operators that initializers build
from dpexec.checks import as_number
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.variable import Variable
from dpexec.initializer.base import Initializer

__all__ = ["BilinearInitializer", "ConstantInitializer", "NumpyArrayInitializer"]


class ConstantInitializer(Initializer):
    """Every element is ``value``.

    Args:
        value: a number.
        force_cpu: ignored; values are filled where the program runs.

    Raises:
        AssertionError: ``value`` is None.

    See Also:
        :class:`~dpexec.initializer.Uniform`: equally likely numbers.
        :class:`~dpexec.initializer.Normal`: normal numbers.
        :class:`~dpexec.initializer.TruncatedNormal`: without far ones.
        :class:`~dpexec.initializer.Xavier`: for tanh and linear layers.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     how = fluid.initializer.Constant(value=2.0)
        ...     w = fluid.layers.create_parameter([2], "float32", default_initializer=how)
        ...     fluid.Executor(fluid.CPUPlace()).run(startup, fetch_list=[w])
        [array([2., 2.], dtype=float32)]
    """

    prefix = "constant_init"

    def __init__(self, value: float = 0.0, force_cpu: bool = False) -> None:
        if value is None:
            raise AssertionError("Constant needs a value")
        self._value = value
        self._force_cpu = force_cpu

    def _op(self, var: Variable, seed: int) -> tuple[str, Mapping[str, Any]]:
        return "fill_constant", {"value": as_number(self._value), "force_cpu": self._force_cpu}


class BilinearInitializer(Initializer):
    """The filter that makes ``conv2d_transpose`` enlarge images by bilinear interpolation.

    The row coordinate is not rounded down to an integer: fluid 1.8 does not do so under Python 3,
    and the initial values here are the same.

    Raises:
        ValueError: when the parameter is made: it is no filter with four dimensions, the last two
            equal.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     how = fluid.initializer.Bilinear()
        ...     w = fluid.layers.create_parameter([1, 1, 2, 2], "float32", default_initializer=how)
        ...     fluid.Executor(fluid.CPUPlace()).run(startup, fetch_list=[w])[0].ravel().tolist()
        [1.0, 0.0, 0.0, -0.0]
    """

    prefix = "bilinear_init"

    def _op(self, var: Variable, seed: int) -> tuple[str, Mapping[str, Any]]:
        shape = var.shape
        if len(shape) != 4 or shape[2] != shape[3]:
            raise ValueError(
                "Bilinear fills filters with four dimensions, the last two equal, "
                f"but {var.name} has shape {shape}"
            )
        if var.dtype != VarType.FP32:
            raise ValueError(f"Bilinear fills float32 or float16, but {var.name} is {var.dtype}")
        size = shape[3]
        half = math.ceil(size / 2)
        centre = (2 * half - 1 - half % 2) / (2 * half)
        position = np.arange(math.prod(shape))
        x, y = position % size, position / size % size
        weight = (1 - abs(x / half - centre)) * (1 - abs(y / half - centre))
        return "assign_value", {"fp32_values": weight.astype(np.float32).tolist()}

    def _put(self, block: Block, **op: Any) -> Operator:
        return block.append_op(**op)


class NumpyArrayInitializer(Initializer):
    """The elements of an array.

    Args:
        value: an array in the variable's shape; converted to float32 or int32.

    Raises:
        AssertionError: ``value`` is no array.

    See Also:
        :class:`~dpexec.initializer.Constant`: one number.
        :class:`~dpexec.initializer.Uniform`: equally likely numbers.
        :class:`~dpexec.initializer.Normal`: normal numbers.
        :class:`~dpexec.initializer.TruncatedNormal`: without far ones.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     how = fluid.initializer.NumpyArrayInitializer(np.array([1.0, 2.0], "float32"))
        ...     w = fluid.layers.create_parameter([2], "float32", default_initializer=how)
        ...     fluid.Executor(fluid.CPUPlace()).run(startup, fetch_list=[w])
        [array([1., 2.], dtype=float32)]
    """

    prefix = "numpy_array_init"

    def __init__(self, value: np.ndarray[Any, Any]) -> None:
        if not isinstance(value, np.ndarray):
            raise AssertionError(f"needs a numpy array, but received {type(value)}")
        self._value = value

    def _op(self, var: Variable, seed: int) -> tuple[str, Mapping[str, Any]]:
        field = {VarType.FP32: "fp32_values", VarType.INT32: "int32_values"}.get(var.dtype)
        if field is None:
            raise ValueError(
                f"NumpyArrayInitializer fills float32 and int32, but {var.name} is {var.dtype}"
            )
        kind = np.float32 if field == "fp32_values" else np.int32
        values = self._value.astype(kind).ravel().tolist()
        return "assign_value", {"shape": list(self._value.shape), field: values}
