"""``fluid.optimizer.RecomputeOptimizer``: saves memory at the cost of a second forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer, ParamGrad


class RecomputeOptimizer(Optimizer):
    """Wraps an optimizer; the backward pass recomputes activations instead of storing them.

    Set the variables to keep with ``_set_checkpoints``, as in fluid. A good choice is one
    checkpoint every ``sqrt(n)`` of ``n`` layers. The results are those of the wrapped optimizer.

    Args:
        optimizer: updates the parameters.

    Source: ``fluid.optimizer.RecomputeOptimizer``; Chen, Xu, Zhang, Guestrin 2016.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        ...     hidden = fluid.layers.fc(fluid.data("x", [None, 4]), size=8, act="relu")
        ...     loss = fluid.layers.mean(fluid.layers.fc(hidden, size=1))
        ...     optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
        ...     optimizer._set_checkpoints([hidden])
        ...     _ = optimizer.minimize(loss)
        ...     ops = [op.type for op in fluid.default_main_program().global_block().ops]
        ...     ops.count("mul"), ops.count("sgd")
        (3, 4)
    """

    type = "recompute"

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer._learning_rate, optimizer._parameter_list)
        self._learning_rate_map = optimizer._learning_rate_map
        self._optimizer = optimizer

    def _set_checkpoints(self, checkpoints: Sequence[Variable | str]) -> None:
        """Set the variables (or their names) that are stored; recomputation starts from them."""
        self._checkpoints = checkpoints

    def load(self, stat_dict: Any) -> NoReturn:
        """Not supported, as in fluid.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "load function is not supported by Recompute Optimizer; use fluid.load"
        )

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Append the backward pass and the updates, as ``Optimizer.minimize``.

        Raises:
            AssertionError: no checkpoints were set, or the loss is no variable.
        """
        if self._checkpoints is None:
            raise AssertionError("You should call _set_checkpoints first")
        return super().minimize(loss, startup_program, parameter_list, no_grad_set)

    def _append_dgc_ops(self, params_grads: list[ParamGrad]) -> None:
        self._optimizer._append_dgc_ops(params_grads)

    def apply_gradients(self, params_grads: list[ParamGrad]) -> list[Operator]:
        """Append the updates of the wrapped optimizer.

        Args:
            params_grads: pairs of parameter and gradient.

        Returns:
            The update operators.
        """
        updates: list[Operator] = self._optimizer.apply_gradients(params_grads)
        return updates

    def get_opti_var_name_list(self) -> list[str]:
        """The names of the wrapped optimizer's states."""
        names: list[str] = self._optimizer.get_opti_var_name_list()
        return names
