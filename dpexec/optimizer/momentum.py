"""``fluid.optimizer.Momentum`` and ``LarsMomentum``."""

from __future__ import annotations

from collections.abc import Iterable

from dpexec.clip import GradientClipBase
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer, State, require_given
from dpexec.regularizer import WeightDecayRegularizer

_STATES = (State("velocity", "Velocity", "VelocityOut"),)


class MomentumOptimizer(Optimizer):
    """Gradient descent with velocity: ``v = momentum * v + grad``, ``param -= rate * v``.

    Args:
        learning_rate: a float, or a variable with one element.
        momentum: weight of the old velocity in every step.
        parameter_list, regularization, grad_clip, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.
        use_nesterov: step ``rate * (grad + momentum * v)`` instead.

    Raises:
        TypeError: learning_rate is neither float nor Variable.
        AssertionError: learning_rate or momentum is None.

    Source: ``fluid.optimizer.Momentum``, Paddle op ``momentum``; Sutskever et al. 2013.

    See Also:
        :class:`~dpexec.optimizer.SGD`: without state.
        :class:`~dpexec.optimizer.Adam`: with a rate for each element.
        :class:`~dpexec.optimizer.Lamb`: Adam for large batches.
        :class:`~dpexec.optimizer.LarsMomentum`: Momentum for large batches.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     loss = fluid.layers.mean(w * w)
        ...     _ = fluid.optimizer.Momentum(learning_rate=0.1, momentum=0.9).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(3)]
        [0.8, 0.46, 0.062]
    """

    type = "momentum"

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        parameter_list: Iterable[Variable | str] | None = None,
        use_nesterov: bool = False,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        require_given("Momentum", learning_rate=learning_rate, momentum=momentum)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._states = _STATES
        self._attrs = {"mu": momentum, "use_nesterov": bool(use_nesterov)}


class LarsMomentumOptimizer(Optimizer):
    """LARS: Momentum with a learning rate per parameter, scaled by ``norm(param) / norm(grad)``.

    Args:
        learning_rate: a float, or a variable with one element.
        momentum: weight of the old velocity in every step.
        lars_coeff: factor of the local learning rates.
        lars_weight_decay: share of each parameter that is added to its gradient.
        parameter_list, regularization, grad_clip, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.

    Raises:
        TypeError: learning_rate is neither float nor Variable.
        AssertionError: learning_rate or momentum is None.

    Source: ``fluid.optimizer.LarsMomentum``, Paddle op ``lars_momentum``; You et al. 2017.

    See Also:
        :class:`~dpexec.optimizer.SGD`: without state.
        :class:`~dpexec.optimizer.Momentum`: with a velocity.
        :class:`~dpexec.optimizer.Adam`: with a rate for each element.
        :class:`~dpexec.optimizer.Lamb`: Adam for large batches.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     loss = fluid.layers.mean(w * w)
        ...     _ = fluid.optimizer.LarsMomentum(learning_rate=0.1, momentum=0.9).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(3)]
        [0.9999, 0.99971, 0.99944]
    """

    type = "lars_momentum"

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        require_given("LarsMomentum", learning_rate=learning_rate, momentum=momentum)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._states = _STATES
        self._attrs = {
            "mu": momentum,
            "lars_coeff": float(lars_coeff),
            "lars_weight_decay": float(lars_weight_decay),
        }
