"""``fluid.optimizer.Ftrl``."""

from __future__ import annotations

from collections.abc import Iterable

from dpexec.clip import GradientClipBase
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer, State
from dpexec.regularizer import WeightDecayRegularizer


class FtrlOptimizer(Optimizer):
    """Follow the regularized leader (FTRL), which gives sparse parameters by L1.

    The real Paddle passes ``l1`` where it should pass ``l2``; here ``l2`` has its meaning.

    Args:
        learning_rate: a float, or a variable with one element.
        l1: weight of the L1 norm.
        l2: weight of the L2 norm.
        lr_power: exponent of the sum of squares.
        parameter_list, regularization, grad_clip, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.

    Raises:
        TypeError: learning_rate is neither float nor Variable.

    Source: ``fluid.optimizer.Ftrl``, Paddle op ``ftrl``; McMahan et al. 2013.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     loss = fluid.layers.mean(w * w)
        ...     _ = fluid.optimizer.Ftrl(learning_rate=0.1).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(3)]
        [0.9, 0.8331, 0.78046]
    """

    type = "ftrl"

    def __init__(
        self,
        learning_rate: float | Variable,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._states = (
            State("squared", "SquaredAccumulator", "SquaredAccumOut"),
            State("linear", "LinearAccumulator", "LinearAccumOut"),
        )
        self._attrs = {"l1": l1, "l2": l2, "lr_power": lr_power}
