"""``fluid.initializer``: initial values of parameters.

An initializer is called with a variable of the startup program and its block, and inserts the op
that fills the variable. As in fluid these ops are inserted *in front*, so a startup program lists
them in reverse order of creation. Random initializers read their program's seed when called.

Example:
    >>> import dpexec as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.5))
    ...     w = fluid.layers.create_parameter([2], "float32", attr=attr)
    ...     executor = fluid.Executor(fluid.CPUPlace())
    ...     executor.run(fluid.default_startup_program(), fetch_list=[w])
    [array([0.5, 0.5], dtype=float32)]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

import dpexec.engine.ops  # noqa: F401 - the operators that initializers build
from dpexec.checks import FLOATS, as_number, check_variable_and_dtype
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.variable import Variable

__all__ = [
    "MSRA",
    "Bilinear",
    "BilinearInitializer",
    "Constant",
    "ConstantInitializer",
    "MSRAInitializer",
    "Normal",
    "NormalInitializer",
    "NumpyArrayInitializer",
    "TruncatedNormal",
    "TruncatedNormalInitializer",
    "Uniform",
    "UniformInitializer",
    "Xavier",
    "XavierInitializer",
]


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Fan-in and fan-out of a weight of this shape.

    A matrix is ``(in, out)``, a filter ``(out, in, height, width)``.
    """
    if len(shape) < 2:
        size = shape[0] if shape else 1
        return size, size
    if len(shape) == 2:
        return shape[0], shape[1]
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


class Initializer:
    """Base class of all initializers; subclasses define the op that fills a variable.

    A float16 variable is filled in float32 and cast.
    """

    prefix: ClassVar[str]
    seed: int = 0

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Put the op that fills ``var`` into ``block``.

        Raises:
            TypeError: the variable has a type that cannot be filled this way.
        """
        target = var
        if var.dtype == VarType.FP16:
            name = unique_name.generate(f"{self.prefix}.{var.name}.tmp")
            target = block.create_var(
                name=name, shape=var.shape, dtype=VarType.FP32, persistable=False
            )
        seed = block.program.random_seed if self.seed == 0 else self.seed
        op_type, attrs = self._op(target, seed)
        attrs = {"shape": list(target.shape), "dtype": target.dtype, **attrs}
        op = self._put(block, type=op_type, outputs={"Out": target}, attrs=attrs)
        if target is not var:
            block.append_op(
                type="cast",
                inputs={"X": target},
                outputs={"Out": var},
                attrs={"in_dtype": target.dtype, "out_dtype": var.dtype},
            )
        var.op = op
        return op

    def _compute_fans(self, var: Variable) -> tuple[int, int]:
        """See :func:`fans`; classes of users call it, as in fluid."""
        return fans(var.shape)

    def _op(self, var: Variable, seed: int) -> tuple[str, Mapping[str, Any]]:
        raise NotImplementedError(
            f"{type(self).__name__} does not say which operator fills {var.name}"
        )

    def _put(self, block: Block, **op: Any) -> Operator:
        return block._prepend_op(**op)


def _require_seed(seed: Any) -> None:
    if seed is None:
        raise AssertionError("seed must be an integer")


class ConstantInitializer(Initializer):
    """Every element is ``value``.

    Args:
        value: a number.
        force_cpu: ignored; values are filled where the program runs.

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


class UniformInitializer(Initializer):
    """Uniform numbers in ``[low, high)``.

    Args:
        low: lower end.
        high: upper end.
        seed: 0 takes the seed of the program.
        diag_num: with ``diag_step`` and ``diag_val``: how many elements are set to ``diag_val``,
            the i-th at flat position ``i * diag_step + i``; 0 for none.
        diag_step: see ``diag_num``.
        diag_val: see ``diag_num``.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     how = fluid.initializer.Uniform(-0.1, 0.1, seed=1)
        ...     w = fluid.layers.create_parameter([1, 3], "float32", default_initializer=how)
        ...     fluid.Executor(fluid.CPUPlace()).run(startup, fetch_list=[w])[0].round(4).tolist()
        [[-0.10000000149011612, -0.08299999684095383, 0.0203000009059906]]
    """

    prefix = "uniform_random"

    def __init__(
        self,
        low: float = -1.0,
        high: float = 1.0,
        seed: int = 0,
        diag_num: int = 0,
        diag_step: int = 0,
        diag_val: float = 1.0,
    ) -> None:
        if high < low:
            raise AssertionError(f"Uniform needs low <= high, but received {low} and {high}")
        if (diag_num > 0) != (diag_step > 0):
            raise AssertionError("Uniform needs diag_num and diag_step, or neither")
        _require_seed(seed)
        self.seed = seed
        self._attrs = {
            "min": float(low),
            "max": float(high),
            "diag_num": diag_num,
            "diag_step": diag_step,
            "diag_val": float(diag_val),
        }

    def _op(self, var: Variable, seed: int) -> tuple[str, Mapping[str, Any]]:
        check_variable_and_dtype(var, "var", FLOATS, "Uniform")
        return "uniform_random", {**self._attrs, "seed": seed}


class NormalInitializer(Initializer):
    """Normal numbers.

    Args:
        loc: mean.
        scale: standard deviation.
        seed: 0 takes the seed of the program.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     how = fluid.initializer.Normal(0.0, 0.1, seed=1)
        ...     w = fluid.layers.create_parameter([1, 3], "float32", default_initializer=how)
        ...     fluid.Executor(fluid.CPUPlace()).run(startup, fetch_list=[w])[0].round(4).tolist()
        [[0.08910000324249268, 0.023099999874830246, -0.24869999289512634]]
    """

    prefix = "gaussian_random"
    _type = "gaussian_random"

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        if loc is None:
            raise AssertionError("a normal distribution needs loc")
        if scale is None:
            raise AssertionError("a normal distribution needs scale")
        _require_seed(seed)
        self._mean, self._std_dev, self.seed = float(loc), float(scale), seed

    def _op(self, var: Variable, seed: int) -> tuple[str, Mapping[str, Any]]:
        check_variable_and_dtype(var, "var", FLOATS, type(self).__name__)
        return self._type, {"mean": self._mean, "std": self._std_dev, "seed": seed}


class TruncatedNormalInitializer(NormalInitializer):
    """Normal numbers within two standard deviations of the mean; arguments as for ``Normal``.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     how = fluid.initializer.TruncatedNormal(0.0, 0.1, seed=1)
        ...     w = fluid.layers.create_parameter([1, 3], "float32", default_initializer=how)
        ...     fluid.Executor(fluid.CPUPlace()).run(startup, fetch_list=[w])[0].round(4).tolist()
        [[-0.20000000298023224, -0.12600000202655792, 0.02449999935925007]]
    """

    prefix = "truncated_gaussian_random"
    _type = "truncated_gaussian_random"


class _Scaled(Initializer):
    """Uniform or normal numbers whose variance follows from the shape."""

    def __init__(self, uniform: bool, fan_in: float | None, seed: int) -> None:
        if uniform is None:
            raise AssertionError("uniform must be True or False")
        _require_seed(seed)
        self._uniform, self._fan_in, self.seed = uniform, fan_in, seed

    def _variance(self, fan_in: float, fan_out: float) -> float:
        raise NotImplementedError(f"{type(self).__name__} does not define its variance")

    def _op(self, var: Variable, seed: int) -> tuple[str, Mapping[str, Any]]:
        check_variable_and_dtype(var, "var", FLOATS, type(self).__name__)
        fan_in, fan_out = fans(var.shape)
        variance = self._variance(fan_in if self._fan_in is None else self._fan_in, fan_out)
        if not self._uniform:
            return "gaussian_random", {"mean": 0.0, "std": math.sqrt(variance), "seed": seed}
        limit = math.sqrt(3.0 * variance)
        return "uniform_random", {"min": -limit, "max": limit, "seed": seed}


class XavierInitializer(_Scaled):
    """Variance ``2 / (fan_in + fan_out)``. Source: Glorot, Bengio, 2010.

    Args:
        uniform: draw uniform numbers instead of normal ones.
        fan_in: number of inputs; None derives it from the shape.
        fan_out: number of outputs; None derives it from the shape.
        seed: 0 takes the seed of the program.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     how = fluid.initializer.Xavier(seed=1)
        ...     w = fluid.layers.create_parameter([1, 3], "float32", default_initializer=how)
        ...     fluid.Executor(fluid.CPUPlace()).run(startup, fetch_list=[w])[0].round(4).tolist()
        [[-1.2246999740600586, -1.0164999961853027, 0.2483000010251999]]
    """

    prefix = "xavier_init"

    def __init__(
        self,
        uniform: bool = True,
        fan_in: float | None = None,
        fan_out: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(uniform, fan_in, seed)
        self._fan_out = fan_out

    def _variance(self, fan_in: float, fan_out: float) -> float:
        return 2.0 / (fan_in + (fan_out if self._fan_out is None else self._fan_out))


class MSRAInitializer(_Scaled):
    """Variance ``2 / fan_in``. Source: He, Zhang, Ren, Sun, 2015.

    Args:
        uniform: draw uniform numbers instead of normal ones.
        fan_in: number of inputs; None derives it from the shape.
        seed: 0 takes the seed of the program.
    """

    prefix = "masra_init"

    def __init__(self, uniform: bool = True, fan_in: float | None = None, seed: int = 0) -> None:
        super().__init__(uniform, fan_in, seed)

    def _variance(self, fan_in: float, fan_out: float) -> float:
        return 2.0 / fan_in


class BilinearInitializer(Initializer):
    """The filter that makes ``conv2d_transpose`` enlarge images by bilinear interpolation.

    The row coordinate is not rounded down to an integer: fluid 1.8 does not do so under Python 3,
    and the initial values here are the same.
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


Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
Bilinear = BilinearInitializer
