"""The pages on a bokeh server: ``/dpexec`` with everything, and a page for every panel.

The pages of single panels are called ``/individual-dpexec-...``: dask-labextension lists pages with
this prefix and opens them as panels of JupyterLab.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from dpexec.dashboard.board import Board
from dpexec.dashboard.monitor import INTERVAL
from dpexec.engine.core.hooks import draw_panel

__all__ = ["PLOTS", "REQUIREMENT", "Drawings", "Source", "applications"]

REQUIREMENT = "bokeh is not installed in this environment: pip install 'dpexec[dashboard]'"

PLOTS = {
    f"dpexec {name}": f"/individual-dpexec-{name}"
    for name in ("figures", "graph", "groups", "lanes", "loss", "throughput", "bytes", "memory")
}
"""Pages of single panels by the name that dask-labextension shows."""

_WIDTH = 480  # width of curves and least width of other panels, in pixels
_CURVES = ("loss", "throughput", "bytes", "memory")
_BODY = """<style>
  html, body { background: #ffffff; }
  @media (prefers-color-scheme: dark) { html, body { background: #14191f; } }
</style>"""


class Source(Protocol):
    """A source of the data that pages show."""

    def refresh(self) -> Board:
        """The current state."""

    def opened(self) -> None:
        """Count an opened page."""

    def closed(self) -> None:
        """Count a closed page."""


class Drawings:
    """The panels, drawn at most twice a second for any number of pages.

    Args:
        source: source of the pages' data.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._drawn: dict[str, str] = {}
        self._board = Board()
        self._since = -INTERVAL

    def panel(self, name: str) -> str:
        """A panel as HTML.

        Args:
            name: name of the panel.
        """
        now = time.perf_counter()
        if now - self._since > 0.9 * INTERVAL:
            self._board, self._since = self.source.refresh(), now
            self._drawn.clear()
        if name not in self._drawn:
            self._drawn[name] = draw_panel(self._board, name)
        return self._drawn[name]


def applications(source: Source) -> dict[str, Callable[..., None]]:
    """The pages by path: functions of (server, template variables, document).

    Args:
        source: source of the pages' data.
    """
    drawings = Drawings(source)
    pages = {path: partial(_plot, drawings, name.split()[1]) for name, path in PLOTS.items()}
    return {"/dpexec": partial(_page, drawings), **pages}


def _plot(drawings: Drawings, name: str, _server: Any, _extra: Any, doc: Any) -> None:
    doc.title = f"dpexec: {name}"
    doc.template = f"{{% block postamble %}}{_BODY}{{% endblock %}}"
    doc.add_root(_panels(drawings, doc, [name])[name])


def _page(drawings: Drawings, _server: Any, extra: dict[str, Any], doc: Any) -> None:
    from bokeh.layouts import column, row

    doc.title = "dpexec"
    doc.template = f"{{% block postamble %}}{_BODY}{{% endblock %}}"
    if "pages" in extra:  # on the scheduler: with the bar that leads to dask's own pages
        from distributed.dashboard.components.scheduler import env

        body = f"{{% block extra_resources %}}{_BODY}{{% endblock %}}"
        doc.template = env.from_string(f'{{% extends "simple.html" %}}{body}')
        doc.template_variables.update(extra)
    panels = _panels(drawings, doc, ["figures", "graph", "groups", *_CURVES, "lanes"])
    side = column(*(panels[name] for name in _CURVES), sizing_mode="stretch_width")
    main = column(panels["graph"], panels["groups"], panels["lanes"], sizing_mode="stretch_width")
    for part, grows in ((side, 0), (main, 1)):  # in a narrow window one below the other
        part.styles = {"flex": f"{grows} 1 {_WIDTH}px", "min-width": f"min({_WIDTH}px, 100%)"}
    upper = row(main, side, sizing_mode="stretch_width", spacing=24, styles={"flex-wrap": "wrap"})
    doc.add_root(column(panels["figures"], upper, sizing_mode="stretch_width", margin=12))


def _panels(drawings: Drawings, doc: Any, names: Sequence[str]) -> dict[str, Any]:
    """Panels that are updated until the page is closed; only changes are sent."""
    from bokeh.models.css import InlineStyleSheet
    from bokeh.models.widgets import Div

    style = InlineStyleSheet(css=draw_panel(None, "style"))
    panels = {name: Div(sizing_mode="stretch_width", stylesheets=[style]) for name in names}

    def update() -> None:
        for name, div in panels.items():
            text = drawings.panel(name)
            if text != div.text:
                div.text = text

    drawings.source.opened()
    doc.on_session_destroyed(lambda _: drawings.source.closed())
    doc.add_periodic_callback(update, int(INTERVAL * 1000))
    update()
    return panels
