"""`dpexec.viz.draw`: one call from a graph to a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import graphviz
from dpexec.viz.graphs.dot import to_dot
from dpexec.viz.graphs.fold import closed_at, fold_replicas, glance
from dpexec.viz.graphs.fold import fold as folded
from dpexec.viz.graphs.groups import KINDS, Group, groups, twins
from dpexec.viz.graphs.model import Diagram, from_graph
from dpexec.viz.graphs.svg import render
from dpexec.viz.pages.load import GraphData, as_graph
from dpexec.viz.pages.page import page
from dpexec.viz.pages.page_data import GraphData as PageData
from dpexec.viz.pages.page_data import GroupData, OverlayData
from dpexec.viz.pages.view import View

from dpexec.engine.core.memory import no_cycles_sought

FOLD_ABOVE = 150
"""Graphs with more operators than this are folded unless told otherwise."""

PICTURED = 2000
"""A page's picture for readers without scripts is folded if it would have more boxes than this."""

LANES_ABOVE = 4
"""Replicas on more devices than this are drawn as one lane unless told otherwise."""


class Drawing(View):
    """The picture of a graph. At the end of a notebook cell it shows itself.

    Args:
        data: The content of a graph file.
        diagram: The diagram of the static picture.
        groups: The groups that can be folded.
        twins: For each operator, the one on the first device that does the same.
        closed: ids of the groups that are folded at first.
        fold: How they were chosen, see `draw`.
        one_lane: Whether replicas are folded at first; None if the page is to choose.
        notes: Sentences below the heading, independent of the folding.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec import viz
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.layers.relu(fluid.data("x", [None, 2]))
        >>> viz.draw(main).save("net.svg")  # doctest: +SKIP
    """

    formats = (*View.formats, ".dot", ".gv")

    def __init__(
        self,
        data: GraphData,
        diagram: Diagram,
        groups: Sequence[Group],
        twins: Sequence[int | None],
        closed: set[int],
        fold: str,
        one_lane: bool | None,
        notes: Sequence[str],
    ) -> None:
        self.data, self.diagram = data, diagram
        self.groups, self.twins = groups, twins
        self.closed, self.fold, self.one_lane, self.notes = closed, fold, one_lane, notes
        self.title = diagram.title
        self.overlay: OverlayData | None = None

    @cached_property
    def svg(self) -> str:
        """The picture as an SVG document, laid out here: no Graphviz needed."""
        return render(self.diagram)

    @cached_property
    def html(self) -> str:
        """The graph as one interactive page that loads nothing; without scripts it shows a picture.

        The picture is folded if thousands of boxes would make the page large.
        """
        if len(self.diagram.boxes) <= PICTURED:
            return super().html
        small = draw(self.data, title=self.title).diagram
        view = Drawing(
            self.data,
            small,
            self.groups,
            self.twins,
            self.closed,
            self.fold,
            self.one_lane,
            self.notes,
        )
        view.overlay = self.overlay
        return page(self.title, [view])

    @property
    def dot(self) -> graphviz.Digraph:
        """The graph as a Graphviz source object, to use Graphviz's own layout."""
        return to_dot(self.diagram)

    @property
    def json(self) -> str:
        """The graph file, which `draw` reads again."""
        return json.dumps(self.data, separators=(",", ":"))

    def encode(self, ending: str) -> str | bytes:
        """Return the content of a file.

        Args:
            ending: The ending of its name, with the dot: one of `formats`.
        """
        return self.dot.source if ending in (".dot", ".gv") else super().encode(ending)

    def payload(self) -> PageData:
        """Return the graph, its groups and its twins for the interactive page."""
        made: PageData = {
            "type": "graph",
            "title": self.title,
            "notes": list(self.notes),
            "graph": self.data,
            "groups": [self._group(group) for group in self.groups],
            "twins": list(self.twins),
            "fold": "auto" if self.fold == "auto" else "set",
            "fold_replicas": self.one_lane,
        }
        parts = {str(node["id"]): node["parts"] for node in self.data["nodes"] if "parts" in node}
        if parts:
            made["parts"] = parts
        if self.overlay is not None:
            made["overlay"] = self.overlay
        return made

    def _group(self, group: Group) -> GroupData:
        return {
            "label": group.label,
            "kind": group.kind,
            "parent": group.parent,
            "nodes": list(group.own),
            "folded": group.id in self.closed,
        }


@no_cycles_sought()
def draw(
    source: Any,
    *,
    title: str | None = None,
    fold: str = "auto",
    replicas: str = "auto",
) -> Drawing:
    """Draw a graph: a lane per device, collectives across them, in the order of execution.

    Args:
        source: A Program, SSAGraph, Plan (its tasks are framed), Trace with a graph, a
            ParallelExecutor or CompiledProgram that ran, a predictor, or the path of a saved one.
        title: Heading; None for one that counts devices and operators.
        fold: ``"none"`` draws every operator; ``"stage"``, ``"part"``, ``"repeat"`` (equal blocks,
            together), ``"block"``, ``"scope"`` or ``"layer"`` draws groups of that kind as one box
            each; ``"auto"`` folds what could not be read in the window of the page, and pictures
            of more than `FOLD_ABOVE` operators as little as they allow. The line above the
            picture says what is folded.
        replicas: ``"lanes"`` draws a lane per device, ``"one"`` a single lane for all that do the
            same; ``"auto"`` does that for more than `LANES_ABOVE` devices, and pages where a lane
            per device would not fit into the window with texts that can be read.

    Returns:
        A drawing: `.save("graph.html")`, or leave it at the end of a notebook cell.

    Raises:
        FileError: A damaged or foreign file.
        TypeError: Nothing that has a graph.
        ValueError: Another way to fold.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec import viz
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), size=2))
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        >>> viz.draw(main)  # in a notebook, this is the picture
        <Drawing: SSA graph · 1 device · 9 operators>
        >>> viz.draw(main).save("net.html")  # doctest: +SKIP
    """
    _one_of("fold", fold, ("auto", "none", *KINDS))
    _one_of("replicas", replicas, ("auto", "lanes", "one"))
    return drawing(as_graph(source), title=title, fold=fold, replicas=replicas)


def drawing(
    data: GraphData, *, title: str | None = None, fold: str = "auto", replicas: str = "auto"
) -> Drawing:
    """Draw the content of a graph file that was checked; arguments as in `draw`."""
    diagram = from_graph(data, title)
    notes = diagram.notes
    same = twins(data)
    one_lane = replicas == "one" or (replicas == "auto" and len(diagram.lanes) > LANES_ABOVE)
    if one_lane:
        diagram = fold_replicas(diagram, same)
    found = groups(data)
    if fold == "auto":
        closed = glance(diagram, found) if len(diagram.boxes) > FOLD_ABOVE else set()
    else:
        closed = set() if fold == "none" else closed_at(found, fold)
    picture = folded(diagram, found, closed)
    opens = None if replicas == "auto" and not one_lane else one_lane
    return Drawing(data, picture, found, same, closed, fold, opens, notes)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name}={value!r}: choose one of {', '.join(map(repr, known))}")
