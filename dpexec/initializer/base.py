"""The base of all initializers, and the number of inputs and outputs of a weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import dpexec.engine.ops  # noqa: F401 - the operators that initializers build
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.variable import Variable

__all__ = ["Initializer", "fans", "require_seed"]


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Fan-in and fan-out of a weight of this shape.

    A matrix is ``(in, out)``, a filter ``(out, in, height, width)``.
    """
    if len(shape) < 2:
        size = shape[0] if shape else 1
        return size, size
    if len(shape) == 2:
        return shape[0], shape[1]
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


class Initializer:
    """Base class of all initializers; subclasses define the op that fills a variable.

    A float16 variable is filled in float32 and cast.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     attr = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5))
        ...     x = fluid.data("x", [None, 4])
        ...     out = fluid.layers.fc(x, 2, param_attr=attr, bias_attr=False)
        >>> [op.type for op in startup.global_block().ops]  # the startup program fills it
        ['fill_constant']
    """

    prefix: ClassVar[str]
    seed: int = 0

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Put the op that fills ``var`` into ``block``.

        Raises:
            TypeError: the variable has a type that cannot be filled this way.
        """
        target = var
        if var.dtype == VarType.FP16:
            name = unique_name.generate(f"{self.prefix}.{var.name}.tmp")
            target = block.create_var(
                name=name, shape=var.shape, dtype=VarType.FP32, persistable=False
            )
        seed = block.program.random_seed if self.seed == 0 else self.seed
        op_type, attrs = self._op(target, seed)
        attrs = {"shape": list(target.shape), "dtype": target.dtype, **attrs}
        op = self._put(block, type=op_type, outputs={"Out": target}, attrs=attrs)
        if target is not var:
            block.append_op(
                type="cast",
                inputs={"X": target},
                outputs={"Out": var},
                attrs={"in_dtype": target.dtype, "out_dtype": var.dtype},
            )
        var.op = op
        return op

    def _compute_fans(self, var: Variable) -> tuple[int, int]:
        """See :func:`fans`; classes of users call it, as in fluid."""
        return fans(var.shape)

    def _op(self, var: Variable, seed: int) -> tuple[str, Mapping[str, Any]]:
        raise NotImplementedError(
            f"{type(self).__name__} does not say which operator fills {var.name}"
        )

    def _put(self, block: Block, **op: Any) -> Operator:
        return block._prepend_op(**op)


def require_seed(seed: Any) -> None:
    """Refuse None as the seed of an initializer, as Paddle does."""
    if seed is None:
        raise AssertionError("seed must be an integer")
