"""The table of mappings: which function writes an operator type as nodes of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpexec.engine.core.light_dataclasses import dataclass

if TYPE_CHECKING:
    from dpexec.onnx.exporting.call import Call

__all__ = ["OPSETS", "Mapping", "exports", "mappings"]

OPSETS = range(13, 23)
"""Versions of ONNX's operators that models can be written for."""


@dataclass(frozen=True)
class Mapping:
    """How an operator type is written.

    Args:
        write: writes the nodes of one operator.
        without: uses of the operator that cannot be exported, in words for users; empty if all can.
        opset: the lowest version of ONNX's operators that it needs.
        constants: input slots whose values have to be known when the model is written.
        exact: whether results are the same numbers; if not, ``without`` says how they differ.
    """

    write: Callable[[Call], Any]
    without: str = ""
    opset: int = OPSETS[0]
    constants: frozenset[str] = frozenset()


_mappings: dict[str, Mapping] = {}


def exports(
    *types: str, without: str = "", opset: int = OPSETS[0], constants: str = ""
) -> Callable[[Callable[[Call], Any]], Callable[[Call], Any]]:
    """Declare how operator types are written; decorates the function that writes one operator.

    Args:
        types: operator types.
        without: uses of them that cannot be exported.
        opset: the lowest version that they need.
        constants: input slots, separated by spaces, whose values have to be known.

    Raises:
        ValueError: a type has a mapping already.
    """

    def decorate(write: Callable[[Call], Any]) -> Callable[[Call], Any]:
        for type in types:
            if type in _mappings:
                raise ValueError(f"operator {type} has two mappings to ONNX")
            _mappings[type] = Mapping(write, without, opset, frozenset(constants.split()))
        return write

    return decorate


def mappings() -> dict[str, Mapping]:
    """All mappings by operator type, sorted."""
    return dict(sorted(_mappings.items()))
