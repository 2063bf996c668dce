"""The picture that an object of dpexec shows at the end of a notebook cell."""

from __future__ import annotations

from typing import Any

from dpexec.viz.draw import draw
from dpexec.viz.timeline import timeline

from dpexec.engine.trace import Trace


def picture(shown: Any) -> dict[str, str]:
    """A MIME bundle: the timeline of a trace, the graph of anything else.

    Args:
        shown: A program, graph, plan or trace.
    """
    view = timeline(shown) if isinstance(shown, Trace) else draw(shown)
    return view._repr_mimebundle_()
