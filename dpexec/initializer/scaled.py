"""Initializers whose variance follows from the shape of a weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import dpexec.engine.ops  # noqa: F401 - the operators that initializers build
from dpexec.checks import FLOATS, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.initializer.base import Initializer, fans, require_seed

__all__ = ["MSRAInitializer", "XavierInitializer"]


class _Scaled(Initializer):
    """Uniform or normal numbers whose variance follows from the shape."""

    def __init__(self, uniform: bool, fan_in: float | None, seed: int) -> None:
        if uniform is None:
            raise AssertionError("uniform must be True or False")
        require_seed(seed)
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

    Raises:
        AssertionError: ``uniform`` or ``seed`` is None.

    See Also:
        :class:`~dpexec.initializer.Constant`: one number.
        :class:`~dpexec.initializer.Uniform`: equally likely numbers.
        :class:`~dpexec.initializer.Normal`: normal numbers.
        :class:`~dpexec.initializer.TruncatedNormal`: without far ones.

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

    Raises:
        AssertionError: ``uniform`` or ``seed`` is None.

    See Also:
        :class:`~dpexec.initializer.Constant`: one number.
        :class:`~dpexec.initializer.Uniform`: equally likely numbers.
        :class:`~dpexec.initializer.Normal`: normal numbers.
        :class:`~dpexec.initializer.TruncatedNormal`: without far ones.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     how = fluid.initializer.MSRA(seed=1)
        ...     w = fluid.layers.create_parameter([2, 2], "float32", default_initializer=how)
        ...     fluid.Executor(fluid.CPUPlace()).run(startup, fetch_list=[w])[0].round(3)
        array([[-1.732, -1.437],
               [ 0.351,  1.357]], dtype=float32)
    """

    prefix = "masra_init"

    def __init__(self, uniform: bool = True, fan_in: float | None = None, seed: int = 0) -> None:
        super().__init__(uniform, fan_in, seed)

    def _variance(self, fan_in: float, fan_out: float) -> float:
        return 2.0 / fan_in
