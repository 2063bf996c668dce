"""Weight normalisation: a weight split into direction and length (Salimans, Kingma, 2016)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from dpexec import layers
from dpexec.engine.arguments.converted import as_integer
from dpexec.engine.core import unique_name
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.param_attr import WeightNormParamAttr

__all__ = ["create_normalized_weight"]


def create_normalized_weight(
    layer: str,
    programs: tuple[Program, Program],
    attr: WeightNormParamAttr,
    shape: Sequence[int],
    dtype: Any,
) -> Variable:
    """Make the parameters ``<name>_g`` and ``<name>_v`` and, from them, the weight of a layer.

    The startup program initialises v like the weight, and g with the norm of v.

    Args:
        layer: name of the layer.
        programs: startup program and main program.
        attr: attributes of the weight, with a name and an initializer.
        shape: shape of the weight.
        dtype: element type of the weight.

    Returns:
        ``g * v / norm(v)``, where the norm is over all dimensions but ``attr.dim``.

    Raises:
        ValueError: the weight has no dimension ``attr.dim``.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.weight_norm import create_normalized_weight
        >>> begin = fluid.initializer.Xavier()
        >>> attr = fluid.WeightNormParamAttr(dim=1, name="w", initializer=begin)
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     weight = create_normalized_weight("mine", (startup, main), attr, [4, 3], "float32")
        >>> weight.shape, [parameter.name for parameter in main.all_parameters()]
        ((4, 3), ['w_g', 'w_v'])
    """
    rank, dim = len(shape), attr.dim
    if dim is not None and not 0 <= as_integer(dim, "dim of WeightNormParamAttr") < rank:
        raise ValueError(f"dim of WeightNormParamAttr is {dim}, but {attr.name} has rank {rank}")
    lengths = [size if axis == dim else 1 for axis, size in enumerate(shape)]
    g_attr, v_attr = copy.deepcopy(attr), copy.deepcopy(attr)
    g_attr.name, v_attr.name = f"{attr.name}_g", f"{attr.name}_v"

    startup, main = (program.global_block() for program in programs)
    make = startup.create_parameter
    g = make(dtype=dtype, shape=lengths, **g_attr._to_kwargs())
    v = make(dtype=dtype, shape=shape, **v_attr._to_kwargs(with_initializer=True))
    maker = _Norm(startup, layer, dtype)
    maker.norm(v, dim, g)
    maker.op("reshape", g, g, {"shape": lengths})

    make = main.create_parameter
    g = make(dtype=dtype, shape=lengths, **g_attr._to_kwargs())
    v = make(dtype=dtype, shape=shape, **v_attr._to_kwargs())
    maker = _Norm(programs[1].current_block(), layer, dtype)
    norm = maker.norm(v, dim, maker.temporary("norm"))
    scale = layers.elementwise_div(g, norm)
    if dim is None:
        return layers.elementwise_mul(v, scale)
    return layers.elementwise_mul(v, layers.reshape(scale, shape=[shape[dim]]), axis=dim)


class _Norm:
    """Adds the operators of a norm to a block."""

    def __init__(self, block: Block, layer: str, dtype: Any) -> None:
        self.block = block
        self.layer = layer
        self.dtype = dtype

    def temporary(self, what: str) -> Variable:
        name = unique_name.generate(f"{self.layer}.weight_norm_{what}")
        return self.block.create_var(name=name, dtype=self.dtype, persistable=False)

    def op(self, type: str, x: Variable, out: Variable, attrs: dict[str, Any]) -> Variable:
        self.block.append_op(type, {"X": x}, {"Out": out}, attrs)
        return out

    def norm(self, x: Variable, dim: int | None, out: Variable) -> Variable:
        """The norm over all dimensions but ``dim``, with the reduced dimensions kept as 1."""
        if dim is None:
            return self.total(x, None, out)
        rank = len(x.shape)
        if 0 < dim < rank - 1:
            order = list(range(rank))
            order[0], order[dim] = dim, 0
            turned = self.op("transpose", x, self.temporary("transpose"), {"axis": order})
            kept = self.norm_of_rows(turned, self.temporary("reshape"))
            return self.op("transpose", kept, out, {"axis": order})
        if dim == 0:
            return self.norm_of_rows(x, out)
        flat = self.flat(x, [-1, x.shape[-1]])
        made = self.total(flat, [0], self.temporary("norm"))
        return self.op("reshape", made, out, {"shape": [1] * (rank - 1) + [x.shape[-1]]})

    def norm_of_rows(self, x: Variable, out: Variable) -> Variable:
        flat = self.flat(x, [x.shape[0], -1])
        made = self.total(flat, [1], self.temporary("norm"))
        shape = [x.shape[0]] + [1] * (len(x.shape) - 1)
        return self.op("reshape", made, out, {"shape": shape})

    def flat(self, x: Variable, shape: list[int]) -> Variable:
        return self.op("reshape", x, self.temporary("reshape"), {"shape": shape})

    def total(self, x: Variable, dim: list[int] | None, out: Variable) -> Variable:
        """The root of the sum of squares over ``dim``, or over everything."""
        x = self.op("abs", x, self.temporary("abs"), {})
        x = self.op("pow", x, self.temporary("pow"), {"factor": 2.0})
        attrs = {"dim": dim, "keep_dim": False, "reduce_all": dim is None}
        x = self.op("reduce_sum", x, self.temporary("sum"), attrs)
        return self.op("pow", x, out, {"factor": 0.5})
