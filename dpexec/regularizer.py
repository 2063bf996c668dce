"""``fluid.regularizer``: weight decay, added to gradients."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.callsite import name_scope
from dpexec.engine.ir.undo import build_whole
from dpexec.engine.ir.variable import Parameter, Variable

__all__ = [
    "L1Decay",
    "L1DecayRegularizer",
    "L2Decay",
    "L2DecayRegularizer",
    "WeightDecayRegularizer",
    "append_regularization_ops",
]

NEW_GRAD_SUFFIX = "@NEWGRAD@"


class WeightDecayRegularizer:
    """Base class: appends the operators of a weight decay to a block.

    Example:
        >>> import dpexec as fluid
        >>> isinstance(fluid.regularizer.L2Decay(0.1), fluid.regularizer.WeightDecayRegularizer)
        True
    """

    def __call__(self, param: Parameter, grad: Variable, block: Block) -> Variable:
        """Append the decay term of ``param``, to be added to its gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not say how weights decay")


class L2DecayRegularizer(WeightDecayRegularizer):
    """Adds ``regularization_coeff * param`` to the gradient.

    Args:
        regularization_coeff: the factor.

    Raises:
        AssertionError: the factor is None.

    Source: ``fluid.regularizer.L2Decay``.

    See Also:
        :class:`~dpexec.regularizer.L1Decay`: pulls with the same force.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     decay = fluid.regularizer.L2Decay(0.5)
        ...     _ = fluid.optimizer.SGD(0.1, regularization=decay).minimize(fluid.layers.mean(w))
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     round(exe.run(main, fetch_list=[w])[0].item(), 5)  # 1 - 0.1 * (1 + 0.5)
        0.85
    """

    def __init__(self, regularization_coeff: float = 0.0) -> None:
        if regularization_coeff is None:
            raise AssertionError("regularization_coeff cannot be None")
        self._regularization_coeff = regularization_coeff

    def __call__(self, param: Parameter, grad: Variable, block: Block) -> Variable:
        """Append ``scale``."""
        decay = _like(param, block)
        attrs = {"scale": self._regularization_coeff}
        block.append_op("scale", {"X": param}, {"Out": decay}, attrs)
        return decay

    def __str__(self) -> str:
        return f"L2Decay, regularization_coeff={self._regularization_coeff:f}"


class L1DecayRegularizer(WeightDecayRegularizer):
    """Adds ``regularization_coeff * sign(param)`` to the gradient.

    Args:
        regularization_coeff: the factor.

    Raises:
        AssertionError: the factor is None.

    Source: ``fluid.regularizer.L1Decay``.

    See Also:
        :class:`~dpexec.regularizer.L2Decay`: pulls the more, the larger a weight is.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     decay = fluid.regularizer.L1Decay(0.5)
        ...     _ = fluid.optimizer.SGD(0.1, regularization=decay).minimize(fluid.layers.mean(w))
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     round(exe.run(main, fetch_list=[w])[0].item(), 5)  # 1 - 0.1 * (1 + 0.5)
        0.85
    """

    def __init__(self, regularization_coeff: float = 0.0) -> None:
        if regularization_coeff is None:
            raise AssertionError("regularization_coeff cannot be None")
        self._regularization_coeff = regularization_coeff

    def __call__(self, param: Parameter, grad: Variable, block: Block) -> Variable:
        """Append ``sign`` and ``scale``."""
        decay = _like(param, block)
        block.append_op("sign", {"X": param}, {"Out": decay})
        attrs = {"scale": self._regularization_coeff}
        block.append_op("scale", {"X": decay}, {"Out": decay}, attrs)
        return decay

    def __str__(self) -> str:
        return f"L1Decay, regularization_coeff={self._regularization_coeff:f}"


L1Decay = L1DecayRegularizer
L2Decay = L2DecayRegularizer


def append_regularization_ops(
    parameters_and_grads: list[tuple[Any, Any]],
    regularization: WeightDecayRegularizer | None = None,
) -> list[tuple[Any, Any]]:
    """Append the weight decay of parameters to their gradients.

    Args:
        parameters_and_grads: pairs of parameter and gradient; a gradient of None stays None.
        regularization: the regularizer of parameters that do not have their own.

    Returns:
        Pairs of parameter and new gradient. That is the same variable, except for sparse gradients:
        they become dense, in a variable with the suffix ``@NEWGRAD@``.

    Raises:
        TypeError: ``regularization`` cannot be called.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        ...     loss = fluid.layers.reduce_mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        ...     pairs = fluid.backward.append_backward(loss)
        ...     decay = fluid.regularizer.L2Decay(1e-4)
        ...     pairs = fluid.regularizer.append_regularization_ops(pairs, decay)
        >>> [gradient.name for _, gradient in pairs]
        ['fc_0.w_0@GRAD', 'fc_0.b_0@GRAD']
    """
    decayed = []
    with name_scope("regularization"):
        for param, grad in parameters_and_grads:
            role_var = [param] if grad is None else [param, grad]
            with param.block.program._optimized_guard(role_var):
                decayed.append((param, _decayed(param, grad, regularization)))
    return decayed


def _decayed(param: Any, grad: Any, regularization: WeightDecayRegularizer | None) -> Any:
    regularizer = param.regularizer if param.regularizer is not None else regularization
    if grad is None or regularizer is None:
        return grad
    block = grad.block
    decay = regularizer(param, grad, block)
    total = grad
    if grad.type == VarType.SELECTED_ROWS:
        total = _like(param, block, grad.name + NEW_GRAD_SUFFIX)
    block.append_op("sum", {"X": [grad, decay]}, {"Out": total})
    return total


def _like(param: Any, block: Block, name: str | None = None) -> Variable:
    return block.create_var(
        name=name, dtype=param.dtype, shape=param.shape, lod_level=param.lod_level
    )


build_whole(globals(), __all__, __name__)
