"""Writes a diagram in Graphviz's language: a cluster per device, collectives between them."""

from __future__ import annotations

import graphviz
from dpexec.viz.graphs.model import Box, Diagram
from dpexec.viz.pages.style import LIGHT, LIGHT_PAGE

_LABELS = 200  # with more links than this, their values show in tooltips only


def to_dot(diagram: Diagram) -> graphviz.Digraph:
    """Return the diagram as a Graphviz source object; the text is the same at every run."""
    dot = graphviz.Digraph("dpexec", graph_attr={"label": diagram.title, "labelloc": "t"})
    dot.attr(rankdir="TB", fontname="Helvetica")
    dot.attr("node", shape="box", style="rounded,filled", fontname="Helvetica", fontsize="11")
    dot.attr("edge", color=LIGHT_PAGE["faint"], arrowsize="0.6", fontname="Helvetica", fontsize="9")
    for device in diagram.lanes:
        with dot.subgraph(name=f"cluster_device_{device}") as cluster:
            cluster.attr(label=diagram.lane_name(device), style="rounded", color="#c5cdd5")
            _lane(cluster, device, diagram)
    for box in diagram.boxes:
        if box.device is None:
            _node(dot, box)
    labelled = len(diagram.links) <= _LABELS
    for link in diagram.links:
        label = graphviz.escape(diagram.flow(link)) if labelled else None
        tooltip = graphviz.escape(diagram.flow_details(link))
        dot.edge(_name(link.source), _name(link.target), label=label, tooltip=tooltip)
    return dot


def _lane(cluster: graphviz.Digraph, device: int, diagram: Diagram) -> None:
    """The boxes of a device; those of a plan in one cluster per task."""
    tasks: dict[str | None, list[Box]] = {}
    for box in diagram.boxes:
        if box.device == device:
            key = box.task if box.task in diagram.tasks else None
            tasks.setdefault(key, []).append(box)
    for key, members in tasks.items():
        if key is None:
            for box in members:
                _node(cluster, box)
            continue
        with cluster.subgraph(name=f"cluster_task_{device}_{key}") as inner:
            inner.attr(
                label=f"task {key}", style="dashed", color=LIGHT_PAGE["faint"], fontsize="10"
            )
            for box in members:
                _node(inner, box)


def _name(number: int) -> str:
    return f"op_{number}"


def _node(dot: graphviz.Digraph, box: Box) -> None:
    line, fill = LIGHT[box.role]
    label = graphviz.escape("\n".join(filter(None, (box.label, box.detail))))
    tooltip = graphviz.escape(box.tooltip)
    dot.node(_name(box.id), label, color=line, fillcolor=fill, tooltip=tooltip)
