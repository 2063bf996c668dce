"""Initializers that draw numbers from a given distribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dpexec.engine.ops  # noqa: F401 - the operators that initializers build
from dpexec.checks import FLOATS, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.initializer.base import Initializer, require_seed

__all__ = ["NormalInitializer", "TruncatedNormalInitializer", "UniformInitializer"]


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

    Raises:
        AssertionError: ``low`` is larger than ``high``, or a number of the diagonal is negative.

    See Also:
        :class:`~dpexec.initializer.Constant`: one number.
        :class:`~dpexec.initializer.Normal`: normal numbers.
        :class:`~dpexec.initializer.TruncatedNormal`: without far ones.
        :class:`~dpexec.initializer.Xavier`: for tanh and linear layers.

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
        require_seed(seed)
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

    Raises:
        AssertionError: ``loc`` or ``scale`` is None.

    See Also:
        :class:`~dpexec.initializer.Constant`: one number.
        :class:`~dpexec.initializer.Uniform`: equally likely numbers.
        :class:`~dpexec.initializer.TruncatedNormal`: without far ones.
        :class:`~dpexec.initializer.Xavier`: for tanh and linear layers.

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
        require_seed(seed)
        self._mean, self._std_dev, self.seed = float(loc), float(scale), seed

    def _op(self, var: Variable, seed: int) -> tuple[str, Mapping[str, Any]]:
        check_variable_and_dtype(var, "var", FLOATS, type(self).__name__)
        return self._type, {"mean": self._mean, "std": self._std_dev, "seed": seed}


class TruncatedNormalInitializer(NormalInitializer):
    """Normal numbers within two standard deviations of the mean.

    Args:
        loc: the mean.
        scale: the standard deviation of the normal numbers, before the far ones are left out.
        seed: 0 takes the seed of the program.

    Raises:
        TypeError: an argument is no number.

    See Also:
        :class:`~dpexec.initializer.Constant`: one number.
        :class:`~dpexec.initializer.Uniform`: equally likely numbers.
        :class:`~dpexec.initializer.Normal`: normal numbers.
        :class:`~dpexec.initializer.Xavier`: for tanh and linear layers.

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
