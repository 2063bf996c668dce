"""Layers generated from operator definitions: activations and other functions of one tensor.

This module has a layer for every operator that maps one float tensor to one of the same shape and
type. ``dpexec.layers`` exports those that no other module defines with different arguments.
"""

from __future__ import annotations

from typing import Any

import dpexec.engine.ops  # noqa: F401 - the operators that layers are made from
from dpexec.engine.ir import opdef
from dpexec.layers.build import is_unary, unary_layer

_NO_LAYERS = {
    *("c_allgather", "c_allreduce_sum"),  # layers.collective adds them
    "rnn_memory_helper",  # StaticRNN adds it
    "tril_triu",  # which fluid has as tril and triu
}

made = {
    definition.type: unary_layer(definition)
    for definition in opdef.registered().values()
    if is_unary(definition) and definition.type not in _NO_LAYERS
}
globals().update(made)

__all__ = list(made)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"no layer is made from an operator {name}")
