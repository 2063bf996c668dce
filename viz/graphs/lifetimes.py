"""Which operators a value of the peak comes from, and which one reads it last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpexec.viz.measured.graph_facts import GraphFacts


@dataclass(frozen=True)
class Lifetime:
    """From where until where a value is needed in a step.

    Args:
        made: Number of the operator that makes it first; None for what is there before the step.
        read: Number of the last operator that reads it; None if none does.
    """

    made: int | None
    read: int | None


class Lifetimes:
    """Finds them in a graph.

    Args:
        facts: The graph.
    """

    def __init__(self, facts: GraphFacts) -> None:
        self._facts = facts
        self._made: dict[tuple[int, str], int] = {}
        self._read: dict[tuple[int, str], int] = {}
        for node in facts.nodes:
            for name in _names(facts, node["outputs"]):
                self._made.setdefault(name, node["id"])
            for name in _names(facts, node["inputs"]):
                self._read[name] = node["id"]

    def of(self, device: int, name: str) -> Lifetime:
        """Return the lifetime of a variable on a device."""
        return Lifetime(self._made.get((device, name)), self._read.get((device, name)))

    def text(self, node: int | None) -> str:
        """An operator and the line that made it, in words; "" for none."""
        if node is None:
            return ""
        one: Mapping[str, Any] = self._facts.by_id[node]
        line = one.get("line")
        return f"{one['name']}, {line}" if line else str(one["name"])


def _names(facts: GraphFacts, ends: list[int]) -> list[tuple[int, str]]:
    found = (facts.vars[end] for end in ends)
    return [(var["device"], var["name"]) for var in found if var["kind"] == "var"]
