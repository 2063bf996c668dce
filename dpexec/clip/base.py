"""The base of all gradient clips, and the groups of gradients that they scale together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.callsite import name_scope, warn
from dpexec.engine.ir.variable import Variable

__all__ = [
    "GradientClipBase",
    "Group",
    "Groups",
    "ParamGrad",
    "name_clipped_gradients",
    "updates_of",
]


ParamGrad = tuple[Any, Any]


@dataclass
class Group:
    """Gradients that are scaled together."""

    clip_norm: float
    limit: Variable | None = None
    squares: list[Variable] = field(default_factory=list)
    factor: Variable | None = None


Groups = dict[str, Group]


class GradientClipBase:
    """Base class: subclasses define how one gradient is clipped, given totals over all gradients.

    Args:
        need_clip: function of a parameter: whether its gradient is clipped. None clips all.

    Raises:
        TypeError: need_clip cannot be called.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        ...     loss = fluid.layers.reduce_mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        ...     clip = fluid.clip.GradientClipByValue(1.0, need_clip=lambda p: ".w_" in p.name)
        ...     pairs = clip(fluid.backward.append_backward(loss))
        >>> sum(op.type == "clip" for op in main.global_block().ops)  # not the bias
        1
    """

    def __init__(self, need_clip: Callable[[Any], bool] | None = None) -> None:
        if need_clip is not None and not callable(need_clip):
            raise TypeError(
                "The type of need_clip must be function: it takes a parameter and returns whether "
                f"its gradient is clipped, but received {need_clip!r}"
            )
        self._need_clip_func = need_clip

    def __call__(self, params_grads: list[ParamGrad]) -> list[ParamGrad]:
        """Append the operators that clip; optimizers call their ``grad_clip`` this way.

        Args:
            params_grads: pairs of parameter and gradient.

        Returns:
            Pairs of parameter and clipped gradient; parameters without a gradient are left out.
        """
        if any(getattr(param, "gradient_clip_attr", None) is not None for param, _ in params_grads):
            warn("'set_gradient_clip' has no effect, because 'grad_clip' is given to the optimizer")
        return self._static_clip(params_grads)

    def _static_clip(self, params_grads: list[ParamGrad]) -> list[ParamGrad]:
        """Implements :meth:`__call__`; users' classes override it, as in fluid."""
        pairs = [(param, grad) for param, grad in params_grads if grad is not None]
        if not any(self._needs_clip(param) for param, _ in pairs):
            return pairs
        block = pairs[0][0].block.program._gradient_block()
        start = len(block.ops)
        with name_scope("gradient_clip"):
            clipped = self._clip(pairs)
        name_clipped_gradients(block, start, clipped)
        return clipped

    def _needs_clip(self, param: Any) -> bool:
        return self._need_clip_func is None or bool(self._need_clip_func(param))

    def _clip(self, pairs: list[ParamGrad]) -> list[ParamGrad]:
        groups: Groups = {}
        wanted = {param.name for param, _ in pairs if self._needs_clip(param)}
        for param, grad in pairs:
            if param.name in wanted:
                with updates_of(param, grad):
                    self._prepare(grad, groups)
        with updates_of(*pairs[-1]):
            self._join(groups)
        clipped = []
        for param, grad in pairs:
            new_grad = grad
            if param.name in wanted:
                with updates_of(param, grad):
                    new_grad = self._apply(grad, groups)
            clipped.append((param, new_grad))
        return clipped

    def _process_context(self, context: Groups, param: Any, grad: Variable) -> None:
        """Look at one gradient before :meth:`_create_operators` clips it.

        ``set_gradient_clip`` leads here; users' classes override both, as in fluid.

        Args:
            context: what clips of the same program share.
            param: a parameter.
            grad: its gradient.
        """
        self._context = context
        self._open(context)
        self._prepare(grad, context)

    def _create_operators(self, param: Any, grad: Variable) -> ParamGrad:
        """The parameter and its clipped gradient."""
        return param, self._apply(grad, self._context)

    def _open(self, groups: Groups) -> None:
        """Append the operators that do not depend on gradients."""

    def _prepare(self, grad: Variable, groups: Groups) -> None:
        """Append the operators that compute one gradient's share of a total."""

    def _join(self, groups: Groups) -> None:
        """Append the operators that combine the shares of all gradients."""

    def _apply(self, grad: Variable, groups: Groups) -> Variable:
        """Append the operators that clip one gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not say how gradients are clipped")


def updates_of(param: Any, grad: Variable) -> Any:
    """A guard: operators that are added in it belong to the update of a parameter."""
    return param.block.program._optimized_guard([param, grad])


def name_clipped_gradients(
    block: Block, start: int, clipped: list[ParamGrad], end: int | None = None
) -> None:
    """Write the clipped gradients' names into ``op_role_var`` of the new operators."""
    names = {param.name: grad.name for param, grad in clipped if grad is not None}
    for op in block.ops[start:end]:
        if op.role_var and op.role_var[0] in names:
            op._set_attr(roles.ROLE_VAR, [op.role_var[0], names[op.role_var[0]]])
