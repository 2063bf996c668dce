"""``fluid.optimizer.Adam``, ``Adamax`` and ``Lamb``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dpexec.clip import GradientClipBase
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.callsite import name_scope
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer, ParamGrad, State
from dpexec.regularizer import WeightDecayRegularizer


class AdamOptimizer(Optimizer):
    """Adam: steps scaled by running means of the gradient and of its square.

    Args:
        learning_rate: a float, or a variable with one element.
        beta1: decay of the mean of the gradient; a float, or a variable with one element.
        beta2: decay of the mean of the squared gradient; a float, or a variable with one element.
        epsilon: keeps the division finite.
        parameter_list, regularization, grad_clip, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.
        lazy_mode: for sparse gradients, update only the rows that they hold.

    Raises:
        TypeError: learning_rate is neither float nor Variable.
        AssertionError: an argument is None.

    Source: ``fluid.optimizer.Adam``, Paddle op ``adam``; Kingma, Ba 2015.

    See Also:
        :class:`~dpexec.optimizer.SGD`: without state.
        :class:`~dpexec.optimizer.Momentum`: with a velocity.
        :class:`~dpexec.optimizer.Lamb`: Adam for large batches.
        :class:`~dpexec.optimizer.LarsMomentum`: Momentum for large batches.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     loss = fluid.layers.mean(w * w)
        ...     _ = fluid.optimizer.Adam(learning_rate=0.1).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(3)]
        [0.9, 0.80041, 0.70159]
    """

    type = "adam"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-8,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        lazy_mode: bool = False,
    ) -> None:
        _check_given(self, learning_rate, beta1, beta2, epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._tensors = {
            slot: beta
            for slot, beta in (("Beta1Tensor", beta1), ("Beta2Tensor", beta2))
            if isinstance(beta, Variable)
        }
        fill1 = 0.9 if isinstance(beta1, Variable) else beta1
        fill2 = 0.999 if isinstance(beta2, Variable) else beta2
        self._states = (
            State("moment1", "Moment1", "Moment1Out"),
            State("moment2", "Moment2", "Moment2Out"),
            State("beta1_pow_acc", "Beta1Pow", "Beta1PowOut", fill1, True, "cpu"),
            State("beta2_pow_acc", "Beta2Pow", "Beta2PowOut", fill2, True, "cpu"),
        )
        self._attrs = {
            "epsilon": epsilon,
            "lazy_mode": lazy_mode,
            "min_row_size_to_use_multithread": 1000,
            "beta1": fill1,
            "beta2": fill2,
        }

    def _extra_inputs(self) -> dict[str, Variable]:
        return self._tensors


class AdamaxOptimizer(Optimizer):
    """Adamax: Adam with a decaying maximum of the gradient instead of the mean of squares.

    Args:
        learning_rate: a float, or a variable with one element.
        beta1: decay of the mean of the gradient.
        beta2: decay of the largest gradient.
        epsilon: keeps the division finite.
        parameter_list, regularization, grad_clip, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.

    Raises:
        TypeError: learning_rate is neither float nor Variable.
        AssertionError: an argument is None.

    Source: ``fluid.optimizer.Adamax``, Paddle op ``adamax``; Kingma, Ba 2015.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     loss = fluid.layers.mean(w * w)
        ...     _ = fluid.optimizer.Adamax(learning_rate=0.1).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(3)]
        [0.9, 0.80517, 0.7155]
    """

    type = "adamax"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        _check_given(self, learning_rate, beta1, beta2, epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._states = (
            State("moment", "Moment", "MomentOut"),
            State("inf_norm", "InfNorm", "InfNormOut"),
            State("beta1_pow_acc", "Beta1Pow", None, beta1, scalar=True),
        )
        self._attrs = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}

    def _finish_update(self, block: Block, params_grads: list[ParamGrad]) -> None:
        """Advance the powers of beta1, which the operator only reads."""
        for param, grad in params_grads:
            if grad is None or not param.trainable:
                continue
            with block.program._optimized_guard([param, grad]), name_scope("adamx"):
                power = self._get_accumulator("beta1_pow_acc", param)
                attrs = {"scale": self._attrs["beta1"]}
                block.append_op("scale", {"X": power}, {"Out": power}, attrs)


class LambOptimizer(Optimizer):
    """LAMB: Adam with steps in proportion to the parameter's norm, for very large batches.

    Args:
        learning_rate: a float, or a variable with one element.
        lamb_weight_decay: share of each parameter that is added to its direction of change.
        beta1: decay of the mean of the gradient.
        beta2: decay of the mean of the squared gradient.
        epsilon: keeps the division finite.
        parameter_list, regularization, grad_clip, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.
        exclude_from_weight_decay_fn: function of a parameter: True to exclude it from weight decay.

    Raises:
        TypeError: learning_rate is neither float nor Variable.
        AssertionError: an argument is None.

    Source: ``fluid.optimizer.Lamb``, Paddle op ``lamb``; You et al. 2020.

    See Also:
        :class:`~dpexec.optimizer.SGD`: without state.
        :class:`~dpexec.optimizer.Momentum`: with a velocity.
        :class:`~dpexec.optimizer.Adam`: with a rate for each element.
        :class:`~dpexec.optimizer.LarsMomentum`: Momentum for large batches.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     loss = fluid.layers.mean(w * w)
        ...     _ = fluid.optimizer.Lamb(learning_rate=0.1).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(3)]
        [0.9, 0.81, 0.729]
    """

    type = "lamb"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        exclude_from_weight_decay_fn: Callable[[Any], bool] | None = None,
        name: str | None = None,
    ) -> None:
        _check_given(self, learning_rate, lamb_weight_decay, beta1, beta2, epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._weight_decay = lamb_weight_decay
        self._exclude = exclude_from_weight_decay_fn
        self._states = (
            State("moment1", "Moment1", "Moment1Out"),
            State("moment2", "Moment2", "Moment2Out"),
            State("beta1_pow_acc", "Beta1Pow", None, beta1, True, "cpu"),
            State("beta2_pow_acc", "Beta2Pow", None, beta2, True, "cpu"),
        )
        self._attrs = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        excluded = self._exclude is not None and self._exclude(param)
        return {**self._attrs, "weight_decay": 0.0 if excluded else self._weight_decay}


def _check_given(optimizer: Optimizer, *arguments: Any) -> None:
    given = all(argument is not None for argument in arguments)
    if not given:
        raise AssertionError(f"{type(optimizer).__name__}: an argument is None")
