"""``fluid.optimizer.DGCMomentumOptimizer``: Momentum with compressed gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from dpexec import layers
from dpexec.clip import GradientClipBase, GradientClipByNorm, append_gradient_clip_ops
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import default_main_program
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer, ParamGrad, require_given
from dpexec.regularizer import (
    L1DecayRegularizer,
    WeightDecayRegularizer,
    append_regularization_ops,
)

SMALLEST = 16384
"""Parameters with fewer elements are not compressed, as in fluid."""

_U, _V = "_dgc_u_", "_dgc_v_"


class DGCMomentumOptimizer(Optimizer):
    """Deep gradient compression: devices exchange only the largest elements of each gradient.

    A device accumulates the other elements with momentum, and sends them when they have grown.
    Before ``rampup_begin_step`` the results are those of Momentum. Later they depend on the number
    of devices, since each device selects its own elements. Works with AllReduce, also on CPUs and
    on clusters (the original needs GPUs); it pays off when exchanging gradients is the bottleneck.
    Saving stores the first device's accumulated elements; loading gives them to all devices.

    Args:
        learning_rate: a float, or a variable with one element.
        momentum: weight of the old velocity in every step.
        rampup_begin_step: the first step with compression.
        rampup_step: number of steps over which the values of ``sparsity`` take effect.
        sparsity: shares of elements that are not sent, one after the other.
        parameter_list, regularization, name: as for every
            :class:`~dpexec.optimizer.base.Optimizer`.
        use_nesterov: use Nesterov's momentum.
        num_trainers: number of devices, needed with ``grad_clip``.
        grad_clip: a ``GradientClipByNorm``; local gradients are clipped to its norm divided by the
            root of ``num_trainers``.

    Raises:
        TypeError: learning_rate is neither float nor Variable, or grad_clip has another type.
        AssertionError: an argument is missing or out of range.

    Source: ``fluid.optimizer.DGCMomentumOptimizer``; Lin et al. 2018.

    See Also:
        :class:`~dpexec.optimizer.Momentum`: sends all.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 512]), size=64))
        ...     optimizer = fluid.optimizer.DGCMomentumOptimizer(
        ...         0.1, momentum=0.9, rampup_begin_step=0, sparsity=[0.999]
        ...     )
        ...     _ = optimizer.minimize(loss)
        ...     ops = fluid.default_main_program().global_block().ops
        ...     sorted({op.type for op in ops if "dgc" in op.type})
        ['dgc', 'dgc_momentum']
    """

    type = "dgc_momentum"

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        rampup_begin_step: int,
        rampup_step: int = 1,
        sparsity: Sequence[float] = (0.999,),
        parameter_list: Iterable[Variable | str] | None = None,
        use_nesterov: bool = False,
        num_trainers: int | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        require_given("DGCMomentum", learning_rate=learning_rate, momentum=momentum)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        if rampup_begin_step < 0:
            raise AssertionError("rampup_begin_step must >= 0")
        self._clip_norm: float | None = None
        if grad_clip is not None:
            self._clip_norm = _local_norm(grad_clip, num_trainers)
        self._momentum, self._use_nesterov = momentum, bool(use_nesterov)
        self._begin = {"rampup_begin_step": float(rampup_begin_step)}
        self._ramp = {"sparsity": list(sparsity), "rampup_step": float(rampup_step), **self._begin}
        self._counters: dict[str, Variable] = {}

    def _append_dgc_ops(self, params_grads: list[ParamGrad]) -> None:
        self._counters = {
            "current_step": _step_counter(),
            "nranks": _stored_number("__g_nranks__", -1.0),
        }
        block = default_main_program().global_block()
        for param, grad in params_grads:
            self._add_accumulator(_U, param)
            if not _is_compressed(param, grad):
                continue
            self._add_accumulator(_V, param)
            _leave_to_dgc(block, param, grad)
            with block.program._backward_role_guard():
                if self._clip_norm is not None:
                    self._append_clip(block, grad)
                self._append_dgc(block, param, grad)

    def _append_clip(self, block: Block, grad: Variable) -> None:
        inputs = {"X": grad, "current_step": self._counters["current_step"]}
        attrs = {"max_norm": self._clip_norm, **self._begin}
        block.append_op("dgc_clip_by_norm", inputs, {"Out": grad}, attrs)

    def _append_dgc(self, block: Block, param: Any, grad: Variable) -> None:
        u, v = self._get_accumulator(_U, param), self._get_accumulator(_V, param)
        count = _stored_number(f"{param.name}__dgc_k__", 0.0)
        decay: Any = param.regularizer or self.regularization
        attrs = {
            "m": self._momentum,
            "use_nesterov": self._use_nesterov,
            **self._ramp,
            "regular_coeff": float(decay._regularization_coeff) if decay else 0.0,
            "regular_type": 0 if not decay else 1 if isinstance(decay, L1DecayRegularizer) else 2,
            roles.ROLE_VAR: [param.name, grad.name],
        }
        block.append_op(
            "dgc",
            {"U": u, "V": v, "Grad": grad, "Param": param, **self._counters},
            {"U_out": u, "V_out": v, "Grad_out": grad, "k": count},
            attrs,
        )

    def apply_gradients(self, params_grads: list[ParamGrad]) -> list[Operator]:
        """Append the updates; uncompressed gradients are clipped and regularised first.

        Args:
            params_grads: the result of ``backward``.

        Returns:
            The update operators.
        """
        params_grads = sorted(params_grads, key=lambda pair: pair[0].name)
        compressed = [pair for pair in params_grads if _is_compressed(*pair)]
        others = [pair for pair in params_grads if not _is_compressed(*pair)]
        clip = append_gradient_clip_ops if self._grad_clip is None else self._grad_clip
        others = append_regularization_ops(clip(others), self.regularization)
        found = sorted(others + compressed, key=lambda pair: pair[0].name)
        return self._create_optimization_pass(found)

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        param, grad = param_and_grad
        velocity = self._get_accumulator(_U, param)
        inputs = {
            "Param": param,
            "Grad": grad,
            "Velocity": velocity,
            "LearningRate": self._create_param_lr(param_and_grad),
        }
        outputs = {"ParamOut": param, "VelocityOut": velocity}
        attrs = {"mu": self._momentum, "use_nesterov": self._use_nesterov}
        if not _is_compressed(param, grad):
            return block.append_op("momentum", inputs, outputs, attrs)
        inputs, outputs = {**inputs, **self._counters}, {**outputs, "Grad_out": grad}
        return block.append_op("dgc_momentum", inputs, outputs, {**attrs, **self._begin})


def _is_compressed(param: Any, grad: Variable) -> bool:
    dense = VarType.SELECTED_ROWS not in (param.type, grad.type)
    return dense and math.prod(param.shape) >= SMALLEST and param.dtype == VarType.FP32


def _local_norm(grad_clip: GradientClipBase, num_trainers: int | None) -> float:
    if not isinstance(grad_clip, GradientClipByNorm):
        raise TypeError(
            "The type of grad_clip should be 'GradientClipByNorm', because "
            f"DGCMomentumOptimizer only supports that, but received {grad_clip!r}"
        )
    if not isinstance(num_trainers, int) or num_trainers <= 0:
        raise AssertionError(
            f"grad_clip needs num_trainers, an int greater than 0, but received {num_trainers!r}"
        )
    norm: float = grad_clip.clip_norm * num_trainers**-0.5
    return norm


def _stored_number(name: str, value: float) -> Variable:
    found = default_main_program().global_block().vars.get(name)
    return found or layers.create_global_var([1], value, "float32", True, name=name)


def _step_counter() -> Variable:
    """A float variable with the step number, from 0, incremented at the program's start."""
    name, block = "__g_dgc_counter__", default_main_program().global_block()
    if name in block.vars:
        return block.vars[name]
    counter = _stored_number(name, -1.0)
    with block.program._backward_role_guard():  # a clone for testing must not count
        block._prepend_op("increment", {"X": counter}, {"Out": counter}, {"step": 1.0})
    return counter


def _leave_to_dgc(block: Block, param: Variable, grad: Variable) -> None:
    """Remove the pair from the gradient's operator, since ``dgc`` computes the final gradient."""
    for op in block.ops:
        if op.role == roles.BACKWARD and param.name in op.role_var:
            pairs = op.role_var
            rest = [n for n in pairs if n not in (param.name, grad.name)]
            op._set_attr(roles.ROLE_VAR, rest)
