"""Writes a diagram in Graphviz's language: a cluster per device, collectives between them."""

from __future__ import annotations

import graphviz

from .model import Box, Diagram
from .style import LIGHT


def to_dot(diagram: Diagram) -> graphviz.Digraph:
    """Return the diagram as a Graphviz source object; the text is the same at every run."""
    dot = graphviz.Digraph("dpexec", graph_attr={"label": diagram.title, "labelloc": "t"})
    dot.attr(rankdir="TB", fontname="Helvetica")
    dot.attr("node", shape="box", style="rounded,filled", fontname="Helvetica", fontsize="11")
    dot.attr("edge", color="#5c6975", arrowsize="0.6")
    for device in diagram.lanes:
        with dot.subgraph(name=f"cluster_device_{device}") as cluster:
            cluster.attr(label=diagram.lane_name(device), style="rounded", color="#c5cdd5")
            for box in diagram.boxes:
                if box.device == device:
                    _node(cluster, box)
    for box in diagram.boxes:
        if box.device is None:
            _node(dot, box)
    for link in diagram.links:
        dot.edge(_name(link.source), _name(link.target), tooltip=", ".join(link.variables))
    return dot


def _name(number: int) -> str:
    return f"op_{number}"


def _node(dot: graphviz.Digraph, box: Box) -> None:
    line, fill = LIGHT[box.role]
    label = graphviz.escape("\n".join(filter(None, (box.label, box.detail))))
    tooltip = graphviz.escape(box.tooltip)
    dot.node(_name(box.id), label, color=line, fillcolor=fill, tooltip=tooltip)
