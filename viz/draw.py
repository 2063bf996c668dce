"""`dpexec.viz.draw`: one call from a graph to a picture."""

from __future__ import annotations

import os
from functools import cached_property
from html import escape
from pathlib import Path

import graphviz

from .dot import to_dot
from .fold import fold
from .model import Diagram, GraphLike, from_ssa
from .svg import render

FOLD_ABOVE = 300
"""Graphs with more operators than this are folded into stages unless told otherwise."""

_FORMATS = (".svg", ".html", ".dot", ".gv", ".png", ".pdf")


class Drawing:
    """The picture of a graph. At the end of a notebook cell it shows itself.

    Args:
        diagram: What it shows.
    """

    def __init__(self, diagram: Diagram) -> None:
        self.diagram = diagram

    @cached_property
    def svg(self) -> str:
        """The picture as an SVG document, laid out here: no Graphviz needed."""
        return render(self.diagram)

    @property
    def dot(self) -> graphviz.Digraph:
        """The graph as a Graphviz source object, for those who want Graphviz's layout."""
        return to_dot(self.diagram)

    @property
    def html(self) -> str:
        """The picture as one page that loads nothing."""
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{escape(self.diagram.title)}</title>"
            '<meta name="color-scheme" content="light dark">'
            f"</head>\n<body>\n{self.svg}</body></html>\n"
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a file; the ending says how.

        Args:
            path: Ends in .svg, .html, .dot (or .gv), .png or .pdf. The last two are laid out and
                drawn by Graphviz: the `viz` extra brings it, or install the `dot` program.

        Returns:
            The path.

        Raises:
            ValueError: Another ending.
            RuntimeError: .png or .pdf without Graphviz.
        """
        target = Path(path)
        ending = target.suffix.lower()
        if ending not in _FORMATS:
            raise ValueError(f"cannot draw to {target.name!r}: choose one of {', '.join(_FORMATS)}")
        if ending in (".png", ".pdf"):
            target.write_bytes(_graphviz(self.dot, ending[1:]))
        else:
            text = {".svg": "svg", ".html": "html"}.get(ending)
            target.write_text(getattr(self, text) if text else self.dot.source, encoding="utf-8")
        return target

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Drawing: {self.diagram.title}>"


def _graphviz(dot: graphviz.Digraph, kind: str) -> bytes:
    try:
        import pygraphviz
    except ImportError:
        try:
            return dot.pipe(format=kind)
        except graphviz.ExecutableNotFound:
            raise RuntimeError(
                f"a picture as {kind} needs Graphviz: pip install 'dpexec[viz]', or install the "
                "program dot; .svg and .html work without"
            ) from None
    return pygraphviz.AGraph(string=dot.source).draw(format=kind, prog="dot")


def draw(graph: GraphLike, *, title: str | None = None, folded: bool | None = None) -> Drawing:
    """Draw a graph: a lane per device, collectives across them, in the order of execution.

    Args:
        graph: An SSAGraph.
        title: Heading; None for one that counts devices and operators.
        folded: Whether to draw stages instead of operators; None folds only graphs of more than
            `FOLD_ABOVE` operators. The picture says when it is folded.

    Returns:
        A drawing: `.save("graph.svg")`, or leave it at the end of a notebook cell.

    Raises:
        TypeError: Not a graph that can be drawn.
    """
    if not hasattr(graph, "ops"):
        raise TypeError(f"cannot draw a {type(graph).__name__}: draw takes an SSAGraph")
    diagram = from_ssa(graph, title)
    if folded is None:
        folded = len(diagram.boxes) > FOLD_ABOVE
    return Drawing(fold(diagram) if folded else diagram)
