"""``fluid.contrib.extend_with_decoupled_weight_decay``: AdamW and similar optimizers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dpexec import layers
from dpexec.engine.ir.callsite import name_scope
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer, ParamGrad

__all__ = ["extend_with_decoupled_weight_decay"]


def extend_with_decoupled_weight_decay(base_optimizer: type[Any]) -> type[Any]:
    """Extend an optimizer class by weight decay that is separate from the update (AdamW).

    The class takes ``weight_decay`` (a float, or a variable of one element), then
    ``apply_decay_param_fun`` (function of a parameter's name: whether it decays; None means all),
    then keyword arguments for ``base_optimizer``.

    Source: ``fluid.contrib.extend_with_decoupled_weight_decay``; Loshchilov, Hutter 2019.

    Args:
        base_optimizer: a class of optimizers.

    Returns:
        The class.

    Raises:
        TypeError: ``base_optimizer`` is not such a class.

    Example:
        >>> import dpexec as fluid
        >>> AdamW = fluid.contrib.extend_with_decoupled_weight_decay(fluid.optimizer.Adam)
        >>> optimizer = AdamW(learning_rate=0.1, weight_decay=0.01)
    """
    if not issubclass(base_optimizer, Optimizer):
        raise TypeError("The input(base_optimizer) should be a derived class of Optimizer.")

    class OptimizerWithDecoupledWeightDecay(base_optimizer):
        """``base_optimizer`` with weight decay that bypasses the gradients."""

        def __init__(
            self,
            weight_decay: float | Variable,
            apply_decay_param_fun: Callable[[str], bool] | None = None,
            **kwargs: Any,
        ) -> None:
            if not isinstance(weight_decay, (float, Variable)):
                raise TypeError("coeff should be float or Variable.")
            self._coeff = weight_decay
            self._decays = apply_decay_param_fun or (lambda name: True)
            if isinstance(weight_decay, float) and weight_decay == 0.0:
                self._decays = lambda name: False
            super().__init__(**kwargs)

        def minimize(
            self,
            loss: Variable,
            startup_program: Program | None = None,
            parameter_list: Iterable[Variable | str] | None = None,
            no_grad_set: Iterable[Variable | str] | None = None,
        ) -> tuple[list[Operator], list[ParamGrad]]:
            """As :meth:`dpexec.optimizer.Optimizer.minimize`."""
            pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
            shares = []
            for param, grad in pairs:
                if grad is not None and self._decays(param.name):
                    with _updating(param, grad):
                        shares.append((param, grad, param * self._coeff))
            for param, grad, share in shares:
                with _updating(param, grad):
                    layers.assign(layers.elementwise_sub(param, share), param)
            return self.apply_optimize(loss, startup_program, pairs), pairs

    return OptimizerWithDecoupledWeightDecay


@contextlib.contextmanager
def _updating(param: Any, grad: Any) -> Iterator[None]:
    with param.block.program._optimized_guard([param, grad]), name_scope("weight decay"):
        yield


__path__: list[str] = []  # imports look for it
extend_optimizer_with_weight_decay = sys.modules[__name__]  # fluid's name of the module
