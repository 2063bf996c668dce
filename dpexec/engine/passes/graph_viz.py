"""fluid's ``graph_viz_pass``, which writes the current graph of the replicas to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.graph.dot import multi_devices_dot
from dpexec.engine.graph.ssa import SSAGraph

__all__ = ["GraphViz"]


class GraphViz:
    """Writes a DOT file to the path in its attribute ``graph_viz_path``."""

    name = "graph_viz_pass"

    def __init__(self) -> None:
        self._attributes: dict[str, Any] = {}
        self._writes = True

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_writes": False}  # workers of a cluster build the same graph again

    def type(self) -> str:
        """Fluid's name of the pass."""
        return self.name

    def has(self, attribute: str) -> bool:
        """Whether an attribute was set."""
        return attribute in self._attributes

    def set(self, attribute: str, value: Any) -> None:
        """Set an attribute.

        Raises:
            EnforceNotMet: it was set before.
        """
        if self.has(attribute):
            raise EnforceNotMet(f"attribute {attribute} of {self.name} is set already")
        self._attributes[attribute] = value

    def apply(self, graph: SSAGraph) -> bool:
        """Write the file; changes nothing.

        Raises:
            EnforceNotMet: ``graph_viz_path`` is not set.
            OSError: the folder does not exist or cannot be written.
        """
        if not self.has("graph_viz_path"):
            raise EnforceNotMet(f"{self.name} needs its attribute graph_viz_path")
        if self._writes:
            path = Path(self._attributes["graph_viz_path"])
            path.write_text(multi_devices_dot(graph), encoding="utf-8")
        return False
