"""A small server in the training process: the page for training without a cluster."""

from __future__ import annotations

import socket
import threading
import weakref
from typing import Any

from dpexec.dashboard import metrics, pages
from dpexec.dashboard.board import Board
from dpexec.dashboard.hub import HUB
from dpexec.dashboard.monitor import Monitor

__all__ = ["LiveServer", "LocalSource", "serve"]


class LocalSource:
    """What an executor of this process does, or whatever trains in it.

    Args:
        executor: a ``ParallelExecutor`` or ``CompiledProgram``; None follows what trains.

    Raises:
        TypeError: an executor of another kind.
        ValueError: it trains on a cluster, whose scheduler has the page.
    """

    def __init__(self, executor: Any = None) -> None:
        compiled = getattr(executor, "_compiled_program", executor)
        if compiled is not None and not hasattr(compiled, "_compile"):
            raise TypeError(
                "the live view takes a ParallelExecutor or a CompiledProgram, but received "
                f"{type(executor).__name__}; without an argument it shows whatever trains"
            )
        strategy = getattr(compiled, "_exec_strategy", None)
        client: Any = getattr(strategy, "scheduler", None)
        if hasattr(client, "dashboard_link"):
            link = str(client.dashboard_link).removesuffix("/status")
            raise ValueError(f"it trains on a cluster, whose dashboard has the page: {link}/dpexec")
        self._compiled = compiled
        number = HUB.join()
        self.close = weakref.finalize(self, HUB.leave, number)

    def refresh(self, now: bool = False) -> Board:
        """See :class:`dpexec.dashboard.pages.Source` and :meth:`Monitor.refresh`."""
        monitor = self._monitor()
        return Board() if monitor is None else monitor.refresh(now)

    def _monitor(self) -> Monitor | None:
        if self._compiled is None:
            return HUB.latest()
        engine = self._compiled._engine
        return None if engine is None else HUB.monitor(engine)

    def opened(self) -> None:
        """Somebody opened a page."""
        HUB.viewers += 1

    def closed(self) -> None:
        """Somebody closed a page."""
        HUB.viewers -= 1


class LiveServer:
    """A running server; close it, or leave its ``with`` block, to stop it.

    Attributes:
        url: of the page.
    """

    def __init__(self, source: LocalSource, address: str, port: int) -> None:
        self._source = source
        ready = threading.Event()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(
            target=self._run, args=(address, port, ready), name="dpexec-live", daemon=True
        )
        self._thread.start()
        ready.wait()
        if self._failures:
            source.close()
            raise self._failures[0]
        self.url = f"http://{address}:{self._server.port}/dpexec"

    def _run(self, address: str, port: int, ready: threading.Event) -> None:
        from bokeh.application import Application
        from bokeh.application.handlers.function import FunctionHandler
        from bokeh.server.server import Server
        from tornado.ioloop import IOLoop

        def application(page: Any) -> Any:
            return Application(FunctionHandler(lambda doc: page(None, {}, doc)))

        self._loop = IOLoop(make_current=False)

        async def start() -> None:
            try:
                self._server = Server(
                    {p: application(page) for p, page in pages.applications(self._source).items()},
                    io_loop=self._loop,
                    address=address,
                    port=port,
                    extra_patterns=_routes(self._source),
                    use_index=False,
                )
                self._server.start()
            except BaseException as error:
                self._failures.append(error)
                self._loop.stop()
            ready.set()

        self._loop.add_callback(start)
        self._loop.start()
        self._loop.close()

    def close(self) -> None:
        """Stop serving; training goes on."""
        if self._thread.is_alive():
            self._loop.add_callback(self._stop)
            self._thread.join()
        self._source.close()

    def _stop(self) -> None:
        self._server.stop()
        self._loop.stop()

    def __enter__(self) -> LiveServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LiveServer: {self.url}>"

    def _repr_html_(self) -> str:
        return f'Live view of training: <a href="{self.url}" target="_blank">{self.url}</a>'


def serve(executor: Any = None, port: int = 0, address: str = "127.0.0.1") -> LiveServer:
    """Serve the live view of training in this process.

    Args:
        executor: a ``ParallelExecutor`` or ``CompiledProgram``; None shows whatever trains.
        port: 0 takes a free one.
        address: where to listen; the default is reached from this machine alone.

    Returns:
        The server, with its ``url``; Prometheus finds ``/metrics`` beside the page, and
        dask-labextension its panels.

    Raises:
        RuntimeError: bokeh is not installed.
        OSError: the port is taken.
        TypeError: an executor of another kind.
        ValueError: it trains on a cluster, whose dashboard has the page.
    """
    try:
        import bokeh.server.server  # noqa: F401
    except ImportError as error:
        raise RuntimeError(f"the live view cannot be served: {pages.REQUIREMENT}") from error
    with socket.socket() as probe:  # an error here leaves no half of a server behind
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))
    return LiveServer(LocalSource(executor), address, port)


def _routes(source: LocalSource) -> list[tuple[str, type[Any]]]:
    """The routes that are no bokeh pages."""
    from tornado.web import RequestHandler

    class Metrics(RequestHandler):
        def get(self) -> None:
            try:
                self.write(metrics.text([source.refresh(now=True)]))
                self.set_header("Content-Type", "text/plain; version=0.0.4")
            except RuntimeError as error:
                self.send_error(501, reason=str(error))

    class Plots(RequestHandler):
        def get(self) -> None:
            self.set_header("Access-Control-Allow-Origin", "*")
            self.write(pages.PLOTS)

    return [("/metrics", Metrics), ("/individual-plots.json", Plots)]
