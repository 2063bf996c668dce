"""``fluid.optimizer.RMSProp`` and ``Adadelta``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dpexec.clip import GradientClipBase
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer, State
from dpexec.regularizer import WeightDecayRegularizer


class RMSPropOptimizer(Optimizer):
    """RMSProp: steps divided by a running root mean square of the gradient.

    Args:
        learning_rate: a float, or a variable with one element.
        rho: decay of the mean of squares.
        epsilon: keeps the division finite.
        momentum: weight of the previous step.
        centered: subtract the square of the mean gradient from the mean of squares.
        parameter_list, regularization, grad_clip, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.

    Raises:
        TypeError: learning_rate is neither float nor Variable.
        ValueError: rho, epsilon or momentum is None.

    Source: ``fluid.optimizer.RMSProp``, Paddle op ``rmsprop``; Hinton 2012.

    See Also:
        :class:`~dpexec.optimizer.Adagrad`: rates fall with all gradients so far.
        :class:`~dpexec.optimizer.DecayedAdagrad`: with recent ones.
        :class:`~dpexec.optimizer.Adadelta`: by recent gradients and recent updates.
        :class:`~dpexec.optimizer.Adam`: also with a mean of gradients.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     loss = fluid.layers.mean(w * w)
        ...     _ = fluid.optimizer.RMSProp(learning_rate=0.1).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(3)]
        [0.55279, 0.33216, 0.20204]
    """

    type = "rmsprop"

    def __init__(
        self,
        learning_rate: float | Variable,
        rho: float = 0.95,
        epsilon: float = 1.0e-6,
        momentum: float = 0.0,
        centered: bool = False,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        _check_set(rho=rho, epsilon=epsilon, momentum=momentum)
        self._states = (
            State("momentum", "Moment", "MomentOut"),
            State("mean_square", "MeanSquare", "MeanSquareOut"),
            State("mean_grad", "MeanGrad", "MeanGradOut"),
        )
        self._attrs = {
            "epsilon": epsilon,
            "decay": rho,
            "momentum": momentum,
            "centered": centered,
        }


class AdadeltaOptimizer(Optimizer):
    """Adadelta: steps scaled by the size of previous steps, without a learning rate.

    Args:
        learning_rate: required, but not used.
        epsilon: keeps the division finite, and makes the first steps differ from 0.
        rho: decay of the means of squares.
        parameter_list, regularization, grad_clip, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.

    Raises:
        TypeError: learning_rate is neither float nor Variable.
        ValueError: learning_rate, epsilon or rho is None.

    Source: ``fluid.optimizer.Adadelta``, Paddle op ``adadelta``; Zeiler 2012.

    See Also:
        :class:`~dpexec.optimizer.Adagrad`: rates fall with all gradients so far.
        :class:`~dpexec.optimizer.DecayedAdagrad`: with recent ones.
        :class:`~dpexec.optimizer.RMSProp`: by recent squares.
        :class:`~dpexec.optimizer.Adam`: also with a mean of gradients.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     loss = fluid.layers.mean(w * w)
        ...     _ = fluid.optimizer.Adadelta(learning_rate=0.1).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(3)]
        [0.99368, 0.98817, 0.98297]
    """

    type = "adadelta"
    takes_learning_rate = False

    def __init__(
        self,
        learning_rate: float | Variable,
        epsilon: float = 1.0e-6,
        rho: float = 0.95,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        _check_set(learning_rate=learning_rate, epsilon=epsilon, rho=rho)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._states = (
            State("_avg_squared_grad", "AvgSquaredGrad", "AvgSquaredGradOut"),
            State("_avg_squared_update", "AvgSquaredUpdate", "AvgSquaredUpdateOut"),
        )
        self._attrs = {"epsilon": epsilon, "rho": rho}


def _check_set(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"{name} is not set.")
