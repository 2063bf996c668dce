"""Frozen nets as nets of integers: ``contrib.slim.quantization`` left levels and their scales.

In a frozen net, inputs are rounded to 255 levels by an operator with a known scale, weights are
levels, and an operator behind the product makes real numbers of it, all in float32. Two passes make
integers of that. The first takes the rounding away, so that all other passes see a net of real
numbers, in which operators are marked: by ``use_quantizer``, with ``Scale_in`` and
``Scale_weights``. The second has the marked operators read integers again, and write them where
every reader rounds to the same levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.graph.operators import Uses
from dpexec.engine.ir.operator import Operator
from dpexec.engine.passes.pairs import fused
from dpexec.engine.passes.prediction.layers import row_axes
from dpexec.engine.passes.prediction.parameters import Array, Parameters

__all__ = ["IntegerProducts", "RealProducts"]

_BITS, _LARGEST = 8, 127.0
_QUANTIZERS = ("fake_quantize_moving_average_abs_max", "fake_quantize_range_abs_max")
_CONVOLUTIONS, _PRODUCTS = ("conv2d", "depthwise_conv2d"), ("mul", "matmul")


class RealProducts:
    """Products of levels become marked products of the real numbers that these stand for.

    Scales of inputs must be parameters: those of ``moving_average_abs_max`` and ``range_abs_max``.
    What is rounded by the largest magnitude of each batch stays a simulation in float32.
    """

    name = "quant_dequant_mkldnn_pass"

    def rewrite(self, parameters: Parameters) -> bool:
        """Rewrite the operators; tell whether anything changed."""
        uses = parameters.operators.uses()
        changes: dict[Operator, Operator | None] = {}
        for position, op in enumerate(uses.ops):
            if op.type in ("fake_dequantize_max_abs", "fake_channel_wise_dequantize_max_abs"):
                made = _real_product(parameters, uses, position)
                if made is not None:
                    changes[uses.ops[uses.writers[op.inputs["X"][0]][0]]] = None
                    changes[op] = made
        changed = parameters.operators.replace(changes)
        uses = parameters.operators.uses()
        unread = [
            op for op in uses.ops
            if op.type in _QUANTIZERS and not uses.readers[op.outputs["Out"][0]]
        ]  # fmt: skip
        return parameters.operators.replace(dict.fromkeys(unread)) or changed


def _real_product(parameters: Parameters, uses: Uses, position: int) -> Operator | None:
    """The product of real numbers in place of one of levels; None if it must stay.

    Args:
        parameters: the model's.
        uses: reads and writes of the operators.
        position: of the operator that makes real numbers of the product.
    """
    back = uses.ops[position]
    (levels,) = back.inputs["X"]
    if uses.only_reader(levels) != position:
        return None
    product = uses.ops[uses.writers[levels][0]]
    if product.type not in (*_CONVOLUTIONS, *_PRODUCTS):
        return None
    image, weight = ("Input", "Filter") if product.type in _CONVOLUTIONS else ("X", "Y")
    (rounded,), (name,) = product.inputs[image], product.inputs[weight]
    writers = uses.writers[rounded]
    source = uses.ops[writers[0]] if len(writers) == 1 else None
    if source is None or not _is_known(source):
        return None
    (real,) = source.inputs["X"]
    scale = parameters.value(source.inputs["InScale"][0], _writers(uses, source))
    unit, whole = _unit(parameters, back, source), parameters.value(name)
    if scale is None or unit is None or whole is None or not _are_levels(whole):
        return None
    if scale.size != 1 or not scale[0] > 0 or not uses.same([real], writers[0], position):
        return None
    unit = unit.reshape(-1, *[1] * (whole.ndim - 1))
    attrs = {
        "use_quantizer": True,
        "Scale_in": _LARGEST / float(scale[0]),
        "Scale_weights": [float(1 / one) if one else 0.0 for one in unit.reshape(-1)],
    }
    weights = parameters.replaced(name, whole * unit, product)
    return _marked(product, back, real, weights, whole, attrs)


def _writers(uses: Uses, source: Operator) -> list[Operator]:
    """The operators that store a scale again as it is: all that round by it when they test."""
    found = [uses.ops[at] for at in uses.writers[source.inputs["InScale"][0]]]
    return [op for op in found if op.attrs.get("is_test")]


def _is_known(source: Operator) -> bool:
    """Whether an operator rounds to levels of 8 bits by a scale that does not change."""
    attrs = source.attrs
    known = source.type in _QUANTIZERS and attrs.get("is_test")
    return bool(known) and attrs.get("bit_length", _BITS) == _BITS


def _unit(parameters: Parameters, back: Operator, source: Operator) -> Array | None:
    """What a level of the weights stands for: a number, or one for each channel."""
    of_input = source.outputs["OutScale"]
    if back.type == "fake_dequantize_max_abs":
        known = back.inputs["Scale"] == of_input
        return np.array([_LARGEST / back.attrs["max_range"]]) if known else None
    scales, bits = back.inputs["Scales"], list(back.attrs.get("quant_bits", [_BITS]))
    if scales[1:] != of_input or len(scales) != 2 or bits[1:2] != [_BITS]:
        return None
    each = parameters.value(scales[0])
    return None if each is None else each.astype(np.float64) / (2 ** (bits[0] - 1) - 1)


def _are_levels(weights: Array) -> bool:
    whole = np.array_equal(np.rint(weights), weights)
    return bool(whole and np.abs(weights).max(initial=0) <= _LARGEST)


def _marked(
    product: Operator, back: Operator, real: str, weights: str, whole: Array, attrs: dict[str, Any]
) -> Operator | None:
    """The marked product at the position of the operator behind it."""
    if product.type in _CONVOLUTIONS:
        inputs = {**product.inputs, "Input": [real], "Filter": [weights]}
        outputs = {"Output": back.outputs["Out"]}
        return fused(
            product, back, product.type, inputs, outputs, {**product.plain_attrs(), **attrs}
        )
    rows = row_axes(product, whole)
    if not rows or len(attrs["Scale_weights"]) > 1:
        return None
    inputs = {"Input": [real], "W": [weights]}
    outputs = {"Out": back.outputs["Out"]}
    return fused(product, back, "fc", inputs, outputs, {"in_num_col_dims": rows, **attrs})


# ---- integers


@dataclass(frozen=True)
class _Levels:
    """A variable as levels.

    Args:
        name: of the variable with real numbers.
        scale: what these are multiplied by.
    """

    name: str
    scale: float


class IntegerProducts:
    """Marked products read integers, and write them where all readers want the same levels."""

    name = "cpu_quantize_pass"

    def rewrite(self, parameters: Parameters) -> bool:
        """Rewrite the operators; tell whether anything changed."""
        uses = parameters.operators.uses()
        marked = [op for op in uses.ops if op.attrs.get("use_quantizer") and "Input" in op.inputs]
        wanted = {op: _Levels(op.inputs["Input"][0], float(op.attrs["Scale_in"])) for op in marked}
        made = {op: _written(uses, op, wanted) for op in marked}
        names = {
            levels: _declared(op, levels, _is_unsigned(op))
            for op, levels in made.items()
            if levels is not None
        }
        changes: dict[Operator, Sequence[Operator]] = {}
        for op in marked:
            rounding = []
            if wanted[op] not in names:
                names[wanted[op]] = _declared(op, wanted[op], False)
                rounding.append(_rounding(op, wanted[op], names[wanted[op]]))
            levels = made[op]
            out = None if levels is None else (names[levels], levels.scale)
            changes[op] = (*rounding, _of_integers(op, names[wanted[op]], out))
        return parameters.operators.expand(changes)


def _result(op: Operator) -> str:
    (name,) = op.outputs["Out" if op.type == "fc" else "Output"]
    return name


def _is_unsigned(op: Operator) -> bool:
    return op.attrs.get("fuse_activation", "") in ("relu", "relu6")


def _written(uses: Uses, op: Operator, wanted: dict[Operator, _Levels]) -> _Levels | None:
    """The levels that a marked operator may write in place of real numbers; None: it may not.

    An ``fc`` with relu would write levels beyond those of the simulation.
    """
    name = _result(op)
    readers = [uses.ops[at] for at in uses.readers[name]]
    levels = {wanted.get(reader) for reader in readers}
    (found,) = levels if len(levels) == 1 else (None,)
    if found is None or found.name != name or not uses.temporary(name):
        return None
    if any(reader.input_arg_names.count(name) > 1 for reader in readers):
        return None
    plain = not op.attrs.get("activation_type") and not op.attrs.get("fuse_residual_connection")
    return found if plain else None


def _declared(op: Operator, levels: _Levels, unsigned: bool) -> str:
    """Declare the variable that holds levels."""
    block, number = op.block, 0
    while f"{levels.name}@LEVELS{number}" in block.vars:
        number += 1
    var = block._find_var_recursive(levels.name)
    made = block.create_var(
        name=f"{levels.name}@LEVELS{number}",
        shape=list(var.shape) if var is not None else [],
        dtype=VarType.UINT8 if unsigned else VarType.INT8,
    )
    return str(made.name)


def _rounding(op: Operator, levels: _Levels, name: str) -> Operator:
    """The operator that rounds real numbers to levels."""
    attrs = {**op.origin_attrs(), "Scale": levels.scale, "is_negative_input": True}
    ins, outs = {"Input": [levels.name]}, {"Output": [name]}
    return Operator(op.block, "quantize", ins, outs, attrs, op.callsite)


def _of_integers(op: Operator, name: str, out: tuple[str, float] | None) -> Operator:
    """A marked operator that reads levels, and writes levels of a scale or real numbers.

    The activation of a convolution works on what is written. Its end is the largest level of the
    simulation, as those that are read by others end there.
    """
    attrs = {**op.plain_attrs(), "use_mkldnn": True, "force_fp32_output": out is None}
    slot = "Out" if op.type == "fc" else "Output"
    outputs = dict(op.outputs)
    if out is not None:
        outputs[slot], attrs["Scale_out"] = [out[0]], out[1]
        if _is_unsigned(op):
            own = op.attrs["fuse_activation"] == "relu6"
            end = min(op.attrs["fuse_alpha"] * out[1], _LARGEST) if own else _LARGEST
            attrs.update(fuse_activation="relu6", fuse_alpha=end)
    inputs = {**op.inputs, "Input": [name]}
    return fused(op, op, op.type, inputs, outputs, attrs)
