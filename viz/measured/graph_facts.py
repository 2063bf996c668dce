"""Facts about the operators of a graph file: roles, bytes, dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

_DEVICE = re.compile(r"_dev\d+")


class GraphFacts:
    """Answers questions about a graph file, "dpexec.graph".

    Args:
        graph: The file's content, as `SSAGraph.to_json` returns it.
    """

    def __init__(self, graph: Mapping[str, Any]) -> None:
        self.graph = graph
        self.nodes: list[dict[str, Any]] = list(graph["nodes"])
        self.vars: list[dict[str, Any]] = list(graph["vars"])
        self.tasks: dict[str, dict[str, Any]] = {t["key"]: t for t in graph.get("tasks") or ()}
        self.task_of: dict[int, str] = {
            node: key for key, task in self.tasks.items() for node in task["nodes"]
        }

    @cached_property
    def by_id(self) -> dict[int, dict[str, Any]]:
        """The operators by their number."""
        return {node["id"]: node for node in self.nodes}

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """The devices, in order."""
        return tuple(device["id"] for device in self.graph["devices"])

    @cached_property
    def rows(self) -> dict[int, dict[str, int]]:
        """By device: the rows of what it is fed, by name of the variable."""
        written = {var for node in self.nodes for var in node["outputs"]}
        read = {var for node in self.nodes for var in node["inputs"]} - written
        found: dict[int, dict[str, int]] = {device: {} for device in self.devices}
        for var in (self.vars[number] for number in sorted(read)):
            shape, device = var["shape"], var["device"]
            if device in found and shape and not var["persistable"] and var["kind"] == "var":
                found[device][var["name"]] = shape[0]
        return found

    @cached_property
    def python(self) -> frozenset[int]:
        """The operators of which some work is done in Python, as far as a trace says it."""
        texts = self.graph.get("listings", ())
        return frozenset(
            node["id"]
            for node in self.nodes
            if any(texts[number]["kind"] != "machine code" for number in node.get("kernels", ()))
        )

    @cached_property
    def before(self) -> dict[int, tuple[int, ...]]:
        """By operator: those whose results it reads, or that it must follow."""
        writers = {var: node["id"] for node in self.nodes for var in node["outputs"]}
        found = {}
        for node in self.nodes:
            sources = (writers.get(var) for var in node["inputs"])
            found[node["id"]] = tuple(dict.fromkeys(n for n in sources if n is not None))
        return found

    @cached_property
    def signatures(self) -> dict[int, tuple[Any, ...]]:
        """By operator: its identity without the device, equal for twins on other devices."""
        found = {}
        for node in self.nodes:
            outputs = [self.vars[v] for v in node["outputs"] if self.vars[v]["kind"] == "var"]
            made = {(var["name"], var["version"]) for var in outputs}
            found[node["id"]] = (node["name"], node["kind"], *sorted(made))
        return found

    def task_signature(self, key: str) -> tuple[Any, ...]:
        """The identity of a task without its device."""
        nodes = self.tasks[key]["nodes"]
        return tuple(self.signatures[node] for node in nodes[:1] + nodes[-1:])

    def participants(self, node: int) -> frozenset[int]:
        """The devices whose variables an operator reads or writes."""
        ends = self.by_id[node]["inputs"] + self.by_id[node]["outputs"]
        return frozenset(self.vars[v]["device"] for v in ends if self.vars[v]["kind"] == "var")

    def label(self, node: int) -> str:
        """An operator's name and output."""
        op = self.by_id[node]
        made = [self.vars[v]["name"] for v in op["outputs"] if self.vars[v]["kind"] == "var"]
        more = f" +{len(set(made)) - 1}" if len(set(made)) > 1 else ""
        return f"{op['name']} → {made[0]}{more}" if made else str(op["name"])

    def bytes_of(self, nodes: Iterable[int]) -> int | None:
        """Bytes that operators read and write together; None if a dimension is unknown.

        An operator alone may touch only a part of its inputs: see its declaration.
        """
        members = [self.by_id[node] for node in nodes]
        if len(members) == 1 and members[0].get("bytes") is not None:
            return int(members[0]["bytes"])
        made = {var for op in members for var in op["outputs"]}
        read = {var for op in members for var in op["inputs"]} - made
        sizes = [self.vars[v]["bytes"] for v in made | read if self.vars[v]["kind"] == "var"]
        return None if None in sizes else sum(sizes)

    def output_bytes(self, node: int) -> int:
        """Bytes of the different values that an operator makes, each counted once."""
        sizes = {
            self.vars[v]["name"]: self.vars[v]["bytes"] or 0
            for v in self.by_id[node]["outputs"]
            if self.vars[v]["kind"] == "var"
        }
        return sum(sizes.values())


def without_device(key: str) -> str:
    """Return the name of a task without its device.

    Example:
        >>> without_device("forward_dev1-3")
        'forward-3'
    """
    return _DEVICE.sub("", key)
