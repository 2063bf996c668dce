"""``fluid.contrib.mixed_precision.decorate``: an optimizer that trains in mixed precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dpexec import layers
from dpexec.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists
from dpexec.contrib.mixed_precision.fp16_utils import rewrite_program, update_role_var_grad
from dpexec.engine.arguments.explained import explained
from dpexec.engine.core import unique_name
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program, default_main_program, default_startup_program
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer, ParamGrad

__all__ = ["decorate"]


class OptimizerWithMixedPrecision:
    """The optimizer that :func:`decorate` returns.

    Args: as :func:`decorate`, in another order.

    Raises:
        TypeError: ``optimizer`` is no optimizer, or a number is none.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib import mixed_precision
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     loss = fluid.layers.reduce_mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        ...     optimizer = mixed_precision.decorate(fluid.optimizer.SGD(0.1))
        ...     _ = optimizer.minimize(loss)
        >>> optimizer.get_loss_scaling().shape  # a variable to fetch
        (1,)
    """

    @explained
    def __init__(
        self,
        optimizer: Optimizer,
        amp_lists: AutoMixedPrecisionLists,
        init_loss_scaling: float,
        use_dynamic_loss_scaling: bool,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int,
        incr_ratio: float,
        decr_ratio: float,
    ) -> None:
        self._optimizer = optimizer
        self._amp_lists = amp_lists
        self._train_program = default_main_program()
        self._startup_prog = default_startup_program()
        self._scaled_loss: Variable | None = None
        self._loss_scaling: Any = _state("loss_scaling", init_loss_scaling, "float32")
        self._use_dynamic_loss_scaling = use_dynamic_loss_scaling
        if use_dynamic_loss_scaling:
            self._incr_every_n_steps = layers.fill_constant([1], "int32", incr_every_n_steps)
            self._decr_every_n_nan_or_inf = layers.fill_constant(
                [1], "int32", decr_every_n_nan_or_inf
            )
            self._incr_ratio, self._decr_ratio = incr_ratio, decr_ratio
            self._num_good_steps: Any = _state("num_good_steps", 0, "int32")
            self._num_bad_steps: Any = _state("num_bad_steps", 0, "int32")
        if isinstance(optimizer._learning_rate, float):
            rate = _state("learning_rate", optimizer._learning_rate, "float32")
            optimizer._learning_rate_map[default_main_program()] = rate

    def get_loss_scaling(self) -> Variable:
        """The variable with the current factor."""
        found: Variable = self._loss_scaling
        return found

    def get_scaled_loss(self) -> Variable | None:
        """The loss times the factor; None before :meth:`backward`."""
        return self._scaled_loss

    def backward(
        self,
        loss: Any,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: list[Callable[..., Any]] | None = None,
    ) -> list[ParamGrad]:
        """Rewrite the program for float16, append the backward pass of the scaled loss.

        Args: as for :meth:`dpexec.optimizer.Optimizer.backward`.

        Returns:
            Pairs of parameter and gradient; the gradients are those of the loss itself.
        """
        rewrite_program(self._train_program, self._amp_lists)
        self._scaled_loss = loss * self._loss_scaling
        pairs = self._optimizer.backward(
            self._scaled_loss, startup_program, parameter_list, no_grad_set, callbacks
        )
        update_role_var_grad(self._train_program, pairs)
        unscaled = []
        for param, grad in pairs:
            with self._train_program._optimized_guard([param, grad]):
                unscaled.append((param, grad / self._loss_scaling))
        return unscaled

    def apply_gradients(self, scaled_params_grads: list[ParamGrad]) -> list[Operator]:
        """Update the parameters, and the factor.

        If gradients are infinite or NaN, the optimizer gets zeros.

        Args:
            scaled_params_grads: the result of :meth:`backward`.

        Returns:
            The update operators.
        """
        if self._use_dynamic_loss_scaling:
            sums = [layers.reduce_sum(grad) for _, grad in scaled_params_grads]
            is_finite = layers.isfinite(layers.reduce_sum(layers.concat(sums)))
            self._update_loss_scaling(is_finite)
            with layers.Switch() as switch:
                with switch.case(is_finite):
                    pass
                with switch.default():
                    for _, grad in scaled_params_grads:
                        layers.assign(layers.zeros_like(grad), grad)
        return self._optimizer.apply_gradients(scaled_params_grads)

    def _update_loss_scaling(self, is_finite: Variable) -> None:
        zero = layers.fill_constant([1], "int32", 0)
        with layers.Switch() as switch:
            with switch.case(is_finite):
                self._count_good_step(zero)
            with switch.default():
                self._count_bad_step(zero)

    def _count_good_step(self, zero: Variable) -> None:
        enough = layers.less_than(self._incr_every_n_steps, self._num_good_steps + 1)
        with layers.Switch() as switch:
            with switch.case(enough):
                larger = self._loss_scaling * self._incr_ratio
                with layers.Switch() as check:
                    with check.case(layers.isfinite(larger)):
                        layers.assign(larger, self._loss_scaling)
                    with check.default():
                        pass
                layers.assign(zero, self._num_good_steps)
                layers.assign(zero, self._num_bad_steps)
            with switch.default():
                layers.increment(self._num_good_steps)
                layers.assign(zero, self._num_bad_steps)

    def _count_bad_step(self, zero: Variable) -> None:
        enough = layers.less_than(self._decr_every_n_nan_or_inf, self._num_bad_steps + 1)
        with layers.Switch() as switch:
            with switch.case(enough):
                smaller = self._loss_scaling * self._decr_ratio
                one = layers.fill_constant([1], "float32", 1.0)
                with layers.Switch() as check:
                    with check.case(layers.less_than(smaller, one)):
                        layers.assign(one, self._loss_scaling)
                    with check.default():
                        layers.assign(smaller, self._loss_scaling)
                layers.assign(zero, self._num_good_steps)
                layers.assign(zero, self._num_bad_steps)
            with switch.default():
                layers.assign(zero, self._num_good_steps)
                layers.increment(self._num_bad_steps)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """:meth:`backward` and :meth:`apply_gradients` on the default programs.

        Args: as for :meth:`dpexec.optimizer.Optimizer.minimize`.

        Returns:
            The update operators, and the pairs of parameter and gradient.
        """
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_gradients(pairs), pairs


def _state(name: str, value: float, dtype: str) -> Variable:
    made: Variable = layers.create_global_var(
        [1], value, dtype, persistable=True, name=unique_name.generate(name)
    )
    return made


def decorate(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 2**15,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = True,
) -> OptimizerWithMixedPrecision:
    """Let an optimizer train in mixed precision; call it inside the ``program_guard``.

    Matrix products and convolutions get float16 copies of their inputs; parameters and the
    optimizer's states stay float32. The loss is multiplied by a factor, and the gradients are
    divided by it, so that small gradients do not vanish in float16. After a step with an infinite
    gradient the optimizer gets zero gradients: parameters change by momentum and weight decay only.
    On CPUs this is slower than float32: NumPy cannot calculate in float16, so values are converted
    around every operator. There is no bfloat16: Paddle 1.8 and its file formats have none. Sparse
    gradients (``is_sparse=True``) are refused, as Paddle does.

    Args:
        optimizer: updates the float32 parameters.
        amp_lists: lists of the operators that run in float16.
        init_loss_scaling: the initial factor.
        incr_every_n_steps: the factor grows after more than this number of good steps in a row.
        decr_every_n_nan_or_inf: it shrinks after more than this number of bad steps in a row.
        incr_ratio: factor of growth.
        decr_ratio: factor of shrinkage, less than 1; the loss's factor stays at least 1.
        use_dynamic_loss_scaling: False leaves the factor, and the gradients, as they are.

    Returns:
        An optimizer with ``minimize``, ``backward``, ``apply_gradients``, ``get_loss_scaling``
        and ``get_scaled_loss``.

    Source: ``fluid.contrib.mixed_precision.decorate``; Micikevicius et al. 2018.

    Raises:
        TypeError: ``optimizer`` is no optimizer, or a number is none.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib import mixed_precision
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), size=2))
        ...     optimizer = mixed_precision.decorate(fluid.optimizer.SGD(0.1))
        ...     _ = optimizer.minimize(loss)
        ...     ops = [op.type for op in fluid.default_main_program().global_block().ops]
        ...     ops.count("cast") > 0, "mul" in ops
        (True, True)
    """
    return OptimizerWithMixedPrecision(
        optimizer,
        amp_lists or AutoMixedPrecisionLists(),
        init_loss_scaling,
        use_dynamic_loss_scaling,
        incr_every_n_steps,
        decr_every_n_nan_or_inf,
        incr_ratio,
        decr_ratio,
    )
