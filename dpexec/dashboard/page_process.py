"""The process of a page: a server that gets its data from the training process.

``dpexec.dashboard.serve`` starts it: ``python -m dpexec.dashboard.page_process PID ADDRESS PORT``.
"""

from __future__ import annotations

import sys
from typing import Any

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.server.server import Server
from tornado.web import RequestHandler

from dpexec.dashboard import metrics, pages
from dpexec.dashboard.board import Board, Boards
from dpexec.dashboard.child import Parent, end, stand_back
from dpexec.engine.core.hooks import draw_panel

__all__: list[str] = []


class ParentSource:
    """The state of the training in the parent process, requested when needed.

    Args:
        parent: the parent process.
    """

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._boards = Boards()
        self._viewers = 0

    def refresh(self) -> Board:
        """See :class:`dpexec.dashboard.pages.Source`."""
        self._parent.send(self._viewers)
        report = self._parent.receive()
        board = self._boards.latest if report is None else self._boards.take(report)
        board.memory = self._parent.memory
        return board

    def opened(self) -> None:
        """Count an opened page."""
        self._viewers += 1

    def closed(self) -> None:
        """Count a closed page; without pages, data for pages only is not recorded."""
        self._viewers -= 1
        self.refresh()


def main() -> None:
    """Serve until the training process has ended."""
    parent = Parent()
    source = ParentSource(parent)
    try:
        server = Server(
            {path: _application(page) for path, page in pages.applications(source).items()},
            address=sys.argv[2],
            port=int(sys.argv[3]),
            extra_patterns=_routes(source),
            use_index=False,
        )
    except OSError as error:
        parent.send(error)
        return
    server.start()
    draw_panel(None, "style")  # imports the drawing code before the priority is lowered
    stand_back()
    # The parent only answers requests, so readable data means that the connection has ended.
    server.io_loop.add_handler(parent.fileno(), end, server.io_loop.READ)
    parent.send(server.port)
    server.io_loop.start()


def _application(page: Any) -> Application:
    return Application(FunctionHandler(lambda doc: page(None, {}, doc)))


def _routes(source: ParentSource) -> list[tuple[str, type[RequestHandler]]]:
    """The routes that are not bokeh pages."""

    class Metrics(RequestHandler):
        def get(self) -> None:
            try:
                self.write(metrics.text([source.refresh()]))
                self.set_header("Content-Type", "text/plain; version=0.0.4")
            except RuntimeError as error:
                self.send_error(501, reason=str(error))

    class Plots(RequestHandler):
        def get(self) -> None:
            self.set_header("Access-Control-Allow-Origin", "*")
            self.write(pages.PLOTS)

    return [("/metrics", Metrics), ("/individual-plots.json", Plots)]


if __name__ == "__main__":
    main()
