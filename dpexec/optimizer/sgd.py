"""``fluid.optimizer.SGD`` and ``Dpsgd``."""

from __future__ import annotations

from collections.abc import Iterable

from dpexec.clip import GradientClipBase
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer, require_given
from dpexec.regularizer import WeightDecayRegularizer


class SGDOptimizer(Optimizer):
    """Gradient descent: ``param -= learning_rate * grad``.

    Args:
        learning_rate: a float, or a variable with one element.
        parameter_list, regularization, grad_clip, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.

    Raises:
        TypeError: learning_rate is neither float nor Variable.
        AssertionError: learning_rate is None.

    Source: ``fluid.optimizer.SGD``, Paddle op ``sgd``.

    See Also:
        :class:`~dpexec.optimizer.Momentum`: with a velocity.
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
        ...     _ = fluid.optimizer.SGD(learning_rate=0.1).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(3)]
        [0.8, 0.64, 0.512]
    """

    type = "sgd"

    def __init__(
        self,
        learning_rate: float | Variable,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        require_given("SGD", learning_rate=learning_rate)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)


class DpsgdOptimizer(Optimizer):
    """Gradient descent with differential privacy: clipped gradients with noise.

    Args:
        learning_rate: a float, or a variable with one element.
        clip: largest norm of a gradient.
        batch_size: divisor of the noise.
        sigma: standard deviation of the noise in units of ``clip``.
        parameter_list: parameters, or their names, to update.

    Raises:
        TypeError: learning_rate is neither float nor Variable.
        AssertionError: an argument is None.

    Source: ``fluid.optimizer.Dpsgd``, Paddle op ``dpsgd``; Abadi et al. 2016.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), size=1))
        ...     optimizer = fluid.optimizer.Dpsgd(0.01, clip=10.0, batch_size=16.0, sigma=1.0)
        ...     _ = optimizer.minimize(loss)
        ...     fluid.default_main_program().global_block().ops[-1].type
        'dpsgd'
    """

    type = "dpsgd"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        clip: float = 0.9,
        batch_size: float = 0.999,
        sigma: float = 1e-8,
        parameter_list: Iterable[Variable | str] | None = None,
    ) -> None:
        if None in (learning_rate, clip, batch_size, sigma):
            raise AssertionError("Dpsgd: an argument is None")
        super().__init__(learning_rate, parameter_list)
        self._attrs = {"clip": clip, "batch_size": batch_size, "sigma": sigma, "seed": 0}
