"""``fluid.optimizer.ExponentialMovingAverage`` and ``ModelAverage``: means of the parameters.

Operators in the training program update the means. Two extra programs, run by a plain Executor,
swap the means with the parameters and back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpexec import layers
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.callsite import name_scope
from dpexec.engine.ir.program import Program, default_main_program, program_guard
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer
from dpexec.regularizer import WeightDecayRegularizer

_STEPS = "@EMA_STEP_COUNTER@"


def _averaged_parameters() -> list[Any]:
    params = default_main_program().global_block().all_parameters()
    return [param for param in params if param.do_model_average is not False]


def _stored(block: Block, var: Variable) -> Variable:
    """Declare a persistable variable of another program in this block."""
    found = block.create_var(name=var.name, persistable=True)
    found.set_spec(var.spec)
    return found


class _Swapped:
    """Base class: replaces the parameters by the means, and restores them."""

    apply_program: Program
    restore_program: Program

    def _make_restore_program(self, kept: list[tuple[Any, Variable]]) -> None:
        self.restore_program = Program()
        block = self.restore_program.global_block()
        with program_guard(self.restore_program):
            for param, copy in kept:
                layers.assign(_stored(block, copy), _stored(block, param))

    @contextlib.contextmanager
    def apply(self, executor: Any, need_restore: bool = True) -> Iterator[None]:
        """Use the means as parameters in the block of a ``with`` statement.

        Args:
            executor: runs the swap, in the global scope.
            need_restore: restore the parameters at the end of the block.
        """
        executor.run(self.apply_program)
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Any) -> None:
        """Restore the parameters after ``apply(..., need_restore=False)``."""
        executor.run(self.restore_program)


class ExponentialMovingAverage(_Swapped):
    """``mean = decay * mean + (1 - decay) * param`` at every step, corrected for its start at 0.

    As in fluid, applying corrects the stored means themselves.

    Args:
        decay: weight of the old mean in every update.
        thres_steps: a variable with the step number; limits the decay to at most ``(thres_steps +
            1) / (thres_steps + 10)``.
        name: prefix of the names of the means.

    Source: ``fluid.optimizer.ExponentialMovingAverage``.

    Raises:
        TypeError: ``decay`` is no number, or ``thres_steps`` no variable.

    See Also:
        :class:`~dpexec.optimizer.ModelAverage`: of the last updates.
        :class:`~dpexec.optimizer.LookaheadOptimizer`: slow and fast parameters.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     _ = fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(w))
        ...     average = fluid.optimizer.ExponentialMovingAverage(0.5)
        ...     average.update()
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     for _ in range(2):
        ...         _ = exe.run(main)
        ...     value = lambda: round(float(fluid.io.get_parameter_value(w, exe)[0]), 4)
        ...     with average.apply(exe):
        ...         value()
        ...     value()  # the parameter is back
        0.8333
        0.8
    """

    def __init__(
        self, decay: float = 0.999, thres_steps: Variable | None = None, name: str | None = None
    ) -> None:
        self._decay = decay
        self._thres_steps = thres_steps
        self._name = "" if name is None else name
        self._decay_var = self._make_decay()
        self._params_tmps: list[tuple[Any, Variable]] = []
        self._ema_vars: dict[str, Variable] = {}
        for param in _averaged_parameters():
            tmp = param.block.create_var(
                name=unique_name.generate(f"{self._name}{param.name}.ema_tmp"),
                dtype=param.dtype,
                shape=param.shape,
                stop_gradient=True,
            )
            self._params_tmps.append((param, tmp))
        for param, tmp in self._params_tmps:
            with self._guard(param, tmp):
                self._ema_vars[param.name] = layers.create_global_var(
                    name=unique_name.generate(f"{self._name}{param.name}_ema"),
                    shape=list(param.shape),
                    value=0.0,
                    dtype=param.dtype,
                    persistable=True,
                )
        self._make_apply_program()
        self._make_restore_program(self._params_tmps)

    @staticmethod
    @contextlib.contextmanager
    def _guard(param: Any, tmp: Variable) -> Iterator[None]:
        """Mark operators built inside as belonging to this parameter."""
        with param.block.program._optimized_guard([param, tmp]), name_scope("moving_average"):
            yield

    def _make_decay(self) -> Variable:
        with default_main_program()._lr_schedule_guard():
            decay = layers.create_global_var(
                [1], self._decay, "float32", persistable=True, name="scheduled_ema_decay_rate"
            )
            steps: Any = self._thres_steps
            if steps is not None:
                if steps.dtype != VarType.FP32:
                    steps = layers.cast(steps, "float32")
                rising = (steps + 1.0) / (steps + 10.0)
                with layers.Switch() as switch:
                    with switch.case(rising < self._decay):
                        layers.assign(rising, decay)
                    with switch.default():
                        layers.assign(np.array([self._decay], np.float32), decay)
        return decay

    def _make_apply_program(self) -> None:
        self.apply_program = Program()
        block = self.apply_program.global_block()
        with program_guard(self.apply_program):
            counter = layers.create_global_var([1], 0, "int64", persistable=True, name=_STEPS)
            steps: Any = layers.cast(counter, "float32")
            lost: Any = layers.elementwise_pow(_stored(block, self._decay_var), steps)
            for param, tmp in self._params_tmps:
                mean: Any = _stored(block, self._ema_vars[param.name])
                param = _stored(block, param)
                layers.assign(param, _stored(block, tmp))
                with layers.Switch() as switch, switch.case(steps > 0):
                    layers.assign(mean / (1.0 - lost), mean)
                layers.assign(mean, param)

    def update(self) -> None:
        """Append the operators that update the means; call it after ``minimize``."""
        layers.autoincreased_step_counter(counter_name=_STEPS)
        for param, tmp in self._params_tmps:
            mean: Any = self._ema_vars[param.name]
            with self._guard(param, tmp):
                new = mean * self._decay_var + param * (1 - self._decay_var)
                layers.assign(new, mean)


_SUMS = ("sum_1", "sum_2", "sum_3")
_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")


class ModelAverage(_Swapped, Optimizer):
    """The mean of the parameters over a window of the last steps. Create it after ``minimize``.

    Args:
        average_window_rate: length of the window as a share of the number of updates.
        min_average_window: smallest length of the window.
        max_average_window: largest length of the window.
        regularization: ignored; accepted for compatibility.
        name: part of the names of the states.

    Source: ``fluid.optimizer.ModelAverage``.

    Raises:
        TypeError: a rate or a window is no number.

    See Also:
        :class:`~dpexec.optimizer.ExponentialMovingAverage`: by a factor.
        :class:`~dpexec.optimizer.LookaheadOptimizer`: slow and fast parameters.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     _ = fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(w))
        ...     average = fluid.optimizer.ModelAverage(0.5, 2, max_average_window=10)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     for _ in range(2):
        ...         _ = exe.run(main)
        ...     value = lambda: round(float(fluid.io.get_parameter_value(w, exe)[0]), 4)
        ...     with average.apply(exe):
        ...         value()
        ...     value()  # the parameter is back
        0.85
        0.8
    """

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(0.0, regularization=regularization, name=name)
        self._window = {
            "average_window": float(average_window_rate),
            "min_average_window": min_average_window,
            "max_average_window": max_average_window,
        }
        self.params_grads = [(param, self._copy_of(param)) for param in _averaged_parameters()]
        for param, copy in self.params_grads:
            with (
                param.block.program._optimized_guard([param, copy]),
                name_scope("move_average"),
            ):
                self._append_accumulate_op(param)
        self._make_apply_program()
        self._make_restore_program(self.params_grads)

    @staticmethod
    def _copy_of(param: Any) -> Variable:
        name = unique_name.generate(f"{param.name}.tmp")
        copy: Variable = param.block.create_var(
            name=name, dtype=param.dtype, shape=param.shape, stop_gradient=True
        )
        return copy

    def _append_accumulate_op(self, param: Any) -> None:
        states = {name: self._add_accumulator(name, param) for name in _SUMS}
        for name in _COUNTS:
            states[name] = self._add_accumulator(name, param, dtype="int64", shape=[1])
        param.block.append_op(
            "average_accumulates",
            {"param": param, **{f"in_{name}": var for name, var in states.items()}},
            {f"out_{name}": var for name, var in states.items()},
            self._window,
        )

    def _make_apply_program(self) -> None:
        self.apply_program = Program()
        block = self.apply_program.global_block()
        with program_guard(self.apply_program):
            for param, copy in self.params_grads:
                found = {
                    name: _stored(block, self._get_accumulator(name, param))
                    for name in (*_SUMS, *_COUNTS[:2])
                }
                param = _stored(block, param)
                layers.assign(param, _stored(block, copy))
                count = layers.sums([found[name] for name in _COUNTS[:2]])
                total = layers.sums([found[name] for name in _SUMS])
                count, total = (layers.cast(value, param.dtype) for value in (count, total))
                block.append_op("elementwise_div", {"X": total, "Y": count}, {"Out": param})
