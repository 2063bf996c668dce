"""Learning rates that change from step to step, as operators of the program.

Schedules count the program's runs in the variable ``@LR_DECAY_COUNTER@``, which all schedules of a
program share. Their operators have the role ``LRSched``, so that every device runs them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.program import default_main_program
from dpexec.engine.ir.variable import Variable
from dpexec.layers import ops
from dpexec.layers.constants import fill_constant
from dpexec.layers.control_flow import Switch
from dpexec.layers.elementwise import elementwise_min
from dpexec.layers.tensor import assign, autoincreased_step_counter, cast, create_global_var

__all__ = [
    "cosine_decay",
    "exponential_decay",
    "inverse_time_decay",
    "linear_lr_warmup",
    "natural_exp_decay",
    "noam_decay",
    "piecewise_decay",
    "polynomial_decay",
]


def _decay_step_counter(begin: int = 0) -> Any:
    """The number of the current run as float32, starting with ``begin``; programs may call it."""
    counter = autoincreased_step_counter("@LR_DECAY_COUNTER@", begin=begin, step=1)
    return cast(counter, "float32")


def _periods(decay_steps: int, staircase: bool) -> Any:
    periods = _decay_step_counter() / decay_steps
    return ops.floor(periods) if staircase else periods


def noam_decay(
    d_model: float, warmup_steps: int, learning_rate: float | Variable = 1.0
) -> Variable:
    """``learning_rate * d_model**-0.5 * min(step**-0.5, warmup_steps**-1.5 * step)``, from step 1.

    Args:
        d_model: width of the model.
        warmup_steps: number of steps in which the rate rises.
        learning_rate: factor on the result.

    Returns:
        Shape ``(1,)``. Source: ``fluid.layers.noam_decay``; Vaswani et al. 2017.

    Raises:
        ZeroDivisionError: ``d_model`` or ``warmup_steps`` is 0.

    See Also:
        :func:`exponential_decay`: by a factor.
        :func:`natural_exp_decay`: by a power of e.
        :func:`inverse_time_decay`: by 1 / t.
        :func:`polynomial_decay`: to an end.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     rate = fluid.layers.noam_decay(d_model=64, warmup_steps=10)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     rates = [exe.run(main, fetch_list=[rate])[0].item() for step in (0, 1, 2, 3)]
        ...     np.round(rates, 6).tolist()
        [0.003953, 0.007906, 0.011859, 0.015811]
    """
    with default_main_program()._lr_schedule_guard():
        step = _decay_step_counter(begin=1)
        falling = step**-0.5
        rising = warmup_steps**-1.5 * step
        rate: Variable = learning_rate * d_model**-0.5 * elementwise_min(falling, rising)
        return rate


def exponential_decay(
    learning_rate: float | Variable, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Variable:
    """``learning_rate * decay_rate ** (step / decay_steps)``.

    Args:
        learning_rate: the rate of step 0.
        decay_steps: number of steps in which the rate is multiplied by ``decay_rate`` once.
        decay_rate: the factor.
        staircase: change only every ``decay_steps`` steps.

    Returns:
        Shape ``(1,)``. Source: ``fluid.layers.exponential_decay``.

    Raises:
        ZeroDivisionError: ``decay_steps`` is 0.

    See Also:
        :func:`natural_exp_decay`: by a power of e.
        :func:`inverse_time_decay`: by 1 / t.
        :func:`polynomial_decay`: to an end.
        :func:`piecewise_decay`: by steps.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     rate = fluid.layers.exponential_decay(0.1, decay_steps=2, decay_rate=0.5)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     rates = [exe.run(main, fetch_list=[rate])[0].item() for step in (0, 1, 2, 3)]
        ...     np.round(rates, 6).tolist()
        [0.1, 0.070711, 0.05, 0.035355]
    """
    with default_main_program()._lr_schedule_guard():
        rate: Variable = learning_rate * decay_rate ** _periods(decay_steps, staircase)
        return rate


def natural_exp_decay(
    learning_rate: float | Variable, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Variable:
    """``learning_rate * exp(-decay_rate * step / decay_steps)``.

    Args:
        learning_rate: the rate of step 0.
        decay_steps: number of steps that ``decay_rate`` refers to.
        decay_rate: decay per ``decay_steps`` steps.
        staircase: change only every ``decay_steps`` steps.

    Returns:
        Shape ``(1,)``. Source: ``fluid.layers.natural_exp_decay``.

    Raises:
        ZeroDivisionError: ``decay_steps`` is 0.

    See Also:
        :func:`exponential_decay`: by a factor; it lists the other schedules.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     rate = fluid.layers.natural_exp_decay(0.1, decay_steps=2, decay_rate=0.5)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     rates = [exe.run(main, fetch_list=[rate])[0].item() for step in (0, 1, 2, 3)]
        ...     np.round(rates, 6).tolist()
        [0.1, 0.07788, 0.060653, 0.047237]
    """
    with default_main_program()._lr_schedule_guard():
        rate: Variable = learning_rate * ops.exp(-decay_rate * _periods(decay_steps, staircase))
        return rate


def inverse_time_decay(
    learning_rate: float | Variable, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Variable:
    """``learning_rate / (1 + decay_rate * step / decay_steps)``.

    Args:
        learning_rate: the rate of step 0.
        decay_steps: number of steps that ``decay_rate`` refers to.
        decay_rate: decay per ``decay_steps`` steps.
        staircase: change only every ``decay_steps`` steps.

    Returns:
        Shape ``(1,)``. Source: ``fluid.layers.inverse_time_decay``.

    Raises:
        ZeroDivisionError: ``decay_steps`` is 0.

    See Also:
        :func:`exponential_decay`: by a factor; it lists the other schedules.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     rate = fluid.layers.inverse_time_decay(0.1, decay_steps=2, decay_rate=0.5)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     rates = [exe.run(main, fetch_list=[rate])[0].item() for step in (0, 1, 2, 3)]
        ...     np.round(rates, 6).tolist()
        [0.1, 0.08, 0.066667, 0.057143]
    """
    with default_main_program()._lr_schedule_guard():
        rate: Variable = learning_rate / (1 + decay_rate * _periods(decay_steps, staircase))
        return rate


def polynomial_decay(
    learning_rate: float | Variable,
    decay_steps: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> Variable:
    """``(learning_rate - end) * (1 - step / decay_steps) ** power + end``, then constantly ``end``.

    Args:
        learning_rate: the rate of step 0.
        decay_steps: step at which the final rate is reached.
        end_learning_rate: the final rate.
        power: degree of the polynomial.
        cycle: after the end, extend ``decay_steps`` to its next multiple and decay again.

    Returns:
        Shape ``(1,)``. Source: ``fluid.layers.polynomial_decay``.

    Raises:
        ZeroDivisionError: ``decay_steps`` is 0.

    See Also:
        :func:`exponential_decay`: by a factor; it lists the other schedules.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     rate = fluid.layers.polynomial_decay(0.1, decay_steps=10, end_learning_rate=0.01)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     rates = [exe.run(main, fetch_list=[rate])[0].item() for step in (0, 1, 2, 3)]
        ...     np.round(rates, 6).tolist()
        [0.1, 0.091, 0.082, 0.073]
    """
    with default_main_program()._lr_schedule_guard():
        step: Any = _decay_step_counter()
        length: Any = decay_steps
        if cycle:
            cycles: Any = ops.ceil(step / decay_steps)
            zero, one = _constant(0.0), _constant(1.0)
            with Switch() as switch, switch.case(step == zero):
                assign(one, cycles)
            length = decay_steps * cycles
        else:
            step = elementwise_min(step, _constant(decay_steps))
        span = learning_rate - end_learning_rate
        rate: Variable = span * (1 - step / length) ** power + end_learning_rate
        return rate


def piecewise_decay(boundaries: Sequence[int], values: Sequence[float]) -> Variable:
    """``values[i]`` from step ``boundaries[i - 1]`` to before ``boundaries[i]``.

    Args:
        boundaries: steps at which the rate changes.
        values: the rates; one more than there are boundaries.

    Returns:
        The persistable variable ``learning_rate``, shape ``(1,)``.

    Raises:
        ValueError: the numbers of boundaries and values do not fit.

    Source: ``fluid.layers.piecewise_decay``.

    See Also:
        :func:`exponential_decay`: by a factor.
        :func:`natural_exp_decay`: by a power of e.
        :func:`inverse_time_decay`: by 1 / t.
        :func:`polynomial_decay`: to an end.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     rate = fluid.layers.piecewise_decay(boundaries=[1, 2], values=[0.1, 0.01, 0.001])
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     rates = [exe.run(main, fetch_list=[rate])[0].item() for step in (0, 1, 2, 3)]
        ...     np.round(rates, 6).tolist()
        [0.1, 0.01, 0.001, 0.001]
    """
    if len(values) - len(boundaries) != 1:
        raise ValueError(
            "len(values) - len(boundaries) should be 1, but received "
            f"{len(values)} values and {len(boundaries)} boundaries"
        )
    with default_main_program()._lr_schedule_guard():
        step = _decay_step_counter()
        rate = create_global_var([1], 0.0, "float32", persistable=True, name="learning_rate")
        with Switch() as switch:
            for boundary, value in zip(boundaries, values, strict=False):
                end = fill_constant([1], "float32", float(boundary), force_cpu=True)
                chosen = _constant(value)
                with switch.case(step < end):
                    assign(chosen, rate)
            last = _constant(values[-1])
            with switch.default():
                assign(last, rate)
        return rate


def cosine_decay(learning_rate: float | Variable, step_each_epoch: int, epochs: int) -> Variable:
    """``learning_rate * 0.5 * (cos(epoch * pi / epochs) + 1)`` with whole epochs.

    Args:
        learning_rate: the rate of the first epoch.
        step_each_epoch: steps in an epoch.
        epochs: number of epochs after which the rate is 0.

    Returns:
        Shape ``(1,)``.

    Raises:
        TypeError: the learning rate is neither float nor Variable.

    Source: ``fluid.layers.cosine_decay``; Loshchilov, Hutter 2017.

    See Also:
        :func:`exponential_decay`: by a factor.
        :func:`natural_exp_decay`: by a power of e.
        :func:`inverse_time_decay`: by 1 / t.
        :func:`polynomial_decay`: to an end.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     rate = fluid.layers.cosine_decay(0.1, step_each_epoch=1, epochs=4)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     rates = [exe.run(main, fetch_list=[rate])[0].item() for step in (0, 1, 2, 3)]
        ...     np.round(rates, 6).tolist()
        [0.1, 0.085355, 0.05, 0.014645]
    """
    if not isinstance(learning_rate, (float, Variable)):
        raise TypeError(
            f"the learning_rate of cosine_decay must be float or Variable, not {learning_rate!r}"
        )
    with default_main_program()._lr_schedule_guard():
        epoch = ops.floor(_decay_step_counter() / step_each_epoch)
        rate: Variable = learning_rate * 0.5 * (ops.cos(epoch * math.pi / epochs) + 1)
        return rate


def linear_lr_warmup(
    learning_rate: float | Variable, warmup_steps: int, start_lr: float, end_lr: float
) -> Variable:
    """Rises linearly from ``start_lr`` towards ``end_lr``, then follows another rate.

    Args:
        learning_rate: the rate from ``warmup_steps`` on: a number or another schedule.
        warmup_steps: number of steps with the linear rate.
        start_lr: the rate of step 0.
        end_lr: the rate that the linear part would have in step ``warmup_steps``.

    Returns:
        The persistable variable ``learning_rate_warmup``, shape ``(1,)``.

    Source: ``fluid.layers.linear_lr_warmup``; He et al. 2018.

    Raises:
        ZeroDivisionError: ``warmup_steps`` is 0.

    See Also:
        :func:`exponential_decay`: by a factor.
        :func:`natural_exp_decay`: by a power of e.
        :func:`inverse_time_decay`: by 1 / t.
        :func:`polynomial_decay`: to an end.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     rate = fluid.layers.linear_lr_warmup(0.1, warmup_steps=2, start_lr=0.0, end_lr=0.1)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     rates = [exe.run(main, fetch_list=[rate])[0].item() for step in (0, 1, 2, 3)]
        ...     np.round(rates, 6).tolist()
        [0.0, 0.05, 0.1, 0.1]
    """
    dtype = learning_rate.dtype if isinstance(learning_rate, Variable) else VarType.FP32
    slope = float(end_lr) - float(start_lr)
    with default_main_program()._lr_schedule_guard():
        rate = create_global_var([1], 0.0, dtype, persistable=True, name="learning_rate_warmup")
        step = _decay_step_counter()
        with Switch() as switch:
            with switch.case(step < warmup_steps):
                assign(start_lr + slope * (step / float(warmup_steps)), rate)
            with switch.default():
                if not isinstance(learning_rate, Variable):
                    learning_rate = _constant(learning_rate)
                assign(learning_rate, rate)
        return rate


def _constant(value: float) -> Variable:
    return fill_constant(shape=[1], dtype="float32", value=float(value))
