"""Layers generated from operator definitions: activations and other functions of one tensor.

This module has a layer for every operator that maps one float tensor to one of the same shape and
type. A layer is made when it is first asked for. ``dpexec.layers`` exports those that no other
module defines with different arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dpexec.engine import ops as _ops
from dpexec.engine.ir import opdef
from dpexec.engine.ir.undo import whole
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import is_unary, unary_layer

_NO_LAYERS = {
    *("c_allgather", "c_allreduce_sum"),  # layers.collective adds them
    "rnn_memory_helper",  # StaticRNN adds it
    "tril_triu",  # which fluid has as tril and triu
}

__all__ = sorted(
    type.rstrip(_ops.LAYER)
    for types in _ops.index().values()
    for type in types
    if type.endswith(_ops.LAYER)
)


def has_layer(definition: opdef.OpDef) -> bool:
    """Whether this module makes a layer of an operator."""
    return is_unary(definition) and definition.type not in _NO_LAYERS


class _Made(Mapping[str, Callable[..., Variable]]):
    """The layers by the types of their operators, each made when it is asked for."""

    def __init__(self) -> None:
        self._known: dict[str, Callable[..., Variable]] = {}

    def __getitem__(self, type: str) -> Callable[..., Variable]:
        if type not in self._known:
            definition = None if type.startswith("_") else opdef.find(type)
            if definition is None or not has_layer(definition):
                raise KeyError(type)
            layer = whole(unary_layer(definition))
            layer.__module__ = __package__  # under which pickle finds it
            self._known.setdefault(type, layer)  # several threads may have made it
        return self._known[type]

    def __iter__(self) -> Iterator[str]:
        return iter(__all__)

    def __len__(self) -> int:
        return len(__all__)


made = _Made()


def __getattr__(name: str) -> Any:
    if name not in made:
        raise AttributeError(f"no layer is made from an operator {name}")
    return made[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
