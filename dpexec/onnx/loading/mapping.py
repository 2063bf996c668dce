"""The table of ONNX operators that become operators of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["MAPPINGS", "find", "operator"]

Mapping = Callable[..., Any]

MAPPINGS: dict[tuple[str, str], Mapping] = {}
"""The function that adds the operators for a node, by the node's domain and type."""


def operator(*names: str, domain: str = "") -> Callable[[Mapping], Mapping]:
    """Declare how nodes of some types are loaded; decorates a function of the node.

    The function gets a :class:`~dpexec.onnx.loading.node.Node` and returns a variable or a
    :class:`~dpexec.onnx.loading.values.Value` for each output.

    Args:
        *names: types of ONNX operators.
        domain: their domain; "" is ONNX's own.
    """

    def declare(function: Mapping) -> Mapping:
        for name in names:
            MAPPINGS[domain, name] = function
        return function

    return declare


def find(domain: str, op_type: str) -> Mapping | None:
    """The mapping of a type of operators, or None."""
    return MAPPINGS.get(("" if domain == "ai.onnx" else domain, op_type))
