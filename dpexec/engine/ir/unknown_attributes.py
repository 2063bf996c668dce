"""Attributes of a program that was read and that no operator has: their names are misspelt, or new.

Paddle keeps such an attribute and takes the default of the one that is missing, without a word.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from dpexec.engine.core.errors import similar
from dpexec.engine.ir import opdef
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.verify import FRAMEWORK

__all__ = ["warn_of_unknown_attributes"]

_NOTES = frozenset(
    {"Input_scale", "activation_bits", "bit_length", "enable_int8", "out_max", "out_min"}
    | {"out_threshold", "quantization_type", "quantize_weight_bits", "skip_quant"}
    | {"weight_scale", "with_quant_attr"}
)
"""What quantization notes on operators of every type, for engines that run the program later."""
_LIBRARIES = frozenset({"use_cudnn", "use_mkldnn", "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@"})
"""What layers and operators of Paddle note on some types for a library that others call."""
_OF_PARALLEL_DO = frozenset({"device_ids", "keep_parameters", "pre_fetch", "sparse"})
"""What Paddle's ``parallel_do`` and ``get_places`` do not have."""
_SHOWN = 5


def _unknown(op: Operator) -> list[str]:
    known = {*op.definition.attrs, *FRAMEWORK, *_NOTES, *_LIBRARIES}
    if op.type in ("get_places", "parallel_do", "parallel_do_grad"):
        known |= _OF_PARALLEL_DO
    forward = op.type
    while forward.endswith("_grad"):  # gradients carry what their operator has
        forward = forward.removesuffix("_grad")
        definition = opdef.find(forward)
        known |= {*definition.attrs} if definition else set()
    return [name for name in op.attrs if name not in known]


def _told(program: Program) -> Iterator[str]:
    for block in program.blocks:
        for number, op in enumerate(block.ops):
            for name in _unknown(op):
                yield (
                    f"operator {op.type}, number {number} of block {block.idx}: attribute {name!r}"
                    f"{similar(name, op.definition.attrs)}"
                )


def warn_of_unknown_attributes(program: Program, source: str, depth: int) -> None:
    """Warn once of all attributes that change nothing, because operators do not have them.

    Args:
        program: as it was read.
        source: where from, to begin the warning with.
        depth: how many calls above is the user's line.
    """
    told = list(_told(program))
    if not told:
        return
    shown = "; ".join(told[:_SHOWN])
    more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    text = f"{source}: attributes that are unknown are ignored: {shown}{more}"
    warnings.warn(text.encode("utf-8", "replace").decode(), stacklevel=depth + 1)
