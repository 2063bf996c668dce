"""``fluid.optimizer.Adagrad`` and ``DecayedAdagrad``."""

from __future__ import annotations

from collections.abc import Iterable

from dpexec.clip import GradientClipBase
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer, State, require_given
from dpexec.regularizer import WeightDecayRegularizer


class AdagradOptimizer(Optimizer):
    """Adagrad: steps divided by the root of the sum of all squared gradients so far.

    Args:
        learning_rate: a float, or a variable with one element.
        epsilon: keeps the division finite.
        parameter_list, regularization, grad_clip, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.
        initial_accumulator_value: initial value of the sum of squares.

    Raises:
        TypeError: learning_rate is neither float nor Variable.
        AssertionError: learning_rate or epsilon is None.

    Source: ``fluid.optimizer.Adagrad``, Paddle op ``adagrad``; Duchi, Hazan, Singer 2011.

    See Also:
        :class:`~dpexec.optimizer.DecayedAdagrad`: with recent ones.
        :class:`~dpexec.optimizer.Adadelta`: by recent gradients and recent updates.
        :class:`~dpexec.optimizer.RMSProp`: by recent squares.
        :class:`~dpexec.optimizer.Adam`: also with a mean of gradients.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     loss = fluid.layers.mean(w * w)
        ...     _ = fluid.optimizer.Adagrad(learning_rate=0.1).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(3)]
        [0.9, 0.8331, 0.78046]
    """

    type = "adagrad"

    def __init__(
        self,
        learning_rate: float | Variable,
        epsilon: float = 1.0e-6,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        require_given("Adagrad", learning_rate=learning_rate, epsilon=epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._states = (State("moment", "Moment", "MomentOut", initial_accumulator_value),)
        self._attrs = {"epsilon": epsilon}


class DecayedAdagradOptimizer(Optimizer):
    """Decayed Adagrad: steps divided by the root of a running mean of squared gradients.

    Args:
        learning_rate: a float, or a variable with one element.
        decay: decay of the mean of squares.
        epsilon: keeps the division finite.
        parameter_list, regularization, grad_clip, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.

    Raises:
        TypeError: learning_rate is neither float nor Variable.
        AssertionError: learning_rate, decay or epsilon is None.

    Source: ``fluid.optimizer.DecayedAdagrad``, Paddle op ``decayed_adagrad``.

    See Also:
        :class:`~dpexec.optimizer.Adagrad`: rates fall with all gradients so far.
        :class:`~dpexec.optimizer.Adadelta`: by recent gradients and recent updates.
        :class:`~dpexec.optimizer.RMSProp`: by recent squares.
        :class:`~dpexec.optimizer.Adam`: also with a mean of gradients.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     loss = fluid.layers.mean(w * w)
        ...     _ = fluid.optimizer.DecayedAdagrad(learning_rate=0.1).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(3)]
        [0.55279, 0.33216, 0.20204]
    """

    type = "decayed_adagrad"

    def __init__(
        self,
        learning_rate: float | Variable,
        decay: float = 0.95,
        epsilon: float = 1.0e-6,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        require_given("DecayedAdagrad", learning_rate=learning_rate, decay=decay, epsilon=epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._states = (State("moment", "Moment", "MomentOut"),)
        self._attrs = {"epsilon": epsilon, "decay": decay}
