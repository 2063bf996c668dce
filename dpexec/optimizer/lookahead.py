"""``fluid.optimizer.LookaheadOptimizer``."""

from __future__ import annotations

from typing import Any

from dpexec import layers
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program, default_startup_program, program_guard
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import ParamGrad


class LookaheadOptimizer:
    """Every ``k`` steps, sets parameters and slow copies to ``alpha * fast + (1 - alpha) * slow``.

    Args:
        inner_optimizer: updates the (fast) parameters at every step.
        alpha: weight of the fast parameters, 0 to 1.
        k: steps between two such synchronisations.

    Raises:
        AssertionError: inner_optimizer is None, or alpha or k is out of range.

    Source: ``fluid.optimizer.LookaheadOptimizer``; Zhang et al. 2019. Steps are counted once per
    run in Reduce mode too, where the original counts once per device. The operators have the
    optimizer's role, so a clone for testing does not contain them.

    See Also:
        :class:`~dpexec.optimizer.ExponentialMovingAverage`: by a factor.
        :class:`~dpexec.optimizer.ModelAverage`: of the last updates.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     optimizer = fluid.optimizer.SGD(0.1)
        ...     optimizer = fluid.optimizer.LookaheadOptimizer(optimizer, alpha=0.5, k=2)
        ...     _ = optimizer.minimize(fluid.layers.mean(w))
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [round(exe.run(main, fetch_list=[w])[0].item(), 5) for _ in range(2)]
        [0.9, 0.9]
    """

    type = "lookahead"

    def __init__(self, inner_optimizer: Any, alpha: float = 0.5, k: int = 5) -> None:
        if inner_optimizer is None:
            raise AssertionError("inner optimizer can not be None")
        if not 0.0 <= alpha <= 1.0:
            raise AssertionError(
                f"alpha should be larger or equal to 0.0, and less or equal than 1.0, not {alpha}"
            )
        if not isinstance(k, int) or k <= 0:
            raise AssertionError(f"k should be a positive integer, not {k!r}")
        self.inner_optimizer = inner_optimizer
        self.alpha = alpha
        self.k = k

    def minimize(
        self, loss: Variable, startup_program: Program | None = None
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Append the inner optimizer's operators, then those of the slow parameters.

        Args:
            loss: shape ``(1,)``.
            startup_program: initialises the states; by default the default startup program.

        Returns:
            The result of the inner optimizer's ``minimize``.
        """
        made: tuple[list[Operator], list[ParamGrad]] = self.inner_optimizer.minimize(
            loss, startup_program=startup_program
        )
        program = loss.block.program
        startup = default_startup_program() if startup_program is None else startup_program
        params = program.all_parameters()
        beside = program._gradient_block_guard()
        with program_guard(program, startup), program._optimized_guard([]), beside:
            slow = {param.name: _slow(param, startup) for param in params}
            k: Any = layers.create_global_var([1], self.k, "int32", True, name="lookahead_k")
            alpha = layers.create_global_var(
                [1], float(self.alpha), "float32", True, name="lookahead_alpha"
            )
            step = layers.create_global_var([1], 0, "int32", True, name="lookahead_step")
            layers.increment(step, value=1.0, in_place=True)
            zero, one = (layers.fill_constant([1], "float32", value) for value in (0.0, 1.0))
            steps_since: Any = layers.elementwise_mod(step, k)
            with layers.Switch() as switch:
                with switch.case(steps_since == zero):
                    for param in params:
                        _meet(param, slow[param.name], alpha, one)
                with switch.default():
                    pass
        return made


def _slow(param: Any, startup: Program) -> Variable:
    blocks = (param.block, startup.global_block())
    slow, initial = (
        block.create_var(
            name=f"{param.name}@SLOW", shape=param.shape, dtype=param.dtype, persistable=True
        )
        for block in blocks
    )
    blocks[1].append_op("assign", {"X": blocks[1].var(param.name)}, {"Out": initial})
    found: Variable = slow
    return found


def _meet(fast: Variable, slow: Variable, alpha: Variable, one: Variable) -> None:
    middle = layers.elementwise_add(
        layers.elementwise_mul(fast, alpha),
        layers.elementwise_mul(slow, layers.elementwise_sub(one, alpha)),
    )
    layers.assign(middle, slow)
    layers.assign(middle, fast)
