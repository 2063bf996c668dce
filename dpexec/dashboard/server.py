"""The page for training without a cluster: served by a process of its own."""

from __future__ import annotations

import importlib.util
import threading
import warnings
from typing import Any

from dpexec.dashboard import pages
from dpexec.dashboard.child import Child
from dpexec.dashboard.source import LocalSource

__all__ = ["LiveServer", "serve"]


class LiveServer:
    """A running server; close it, or leave its ``with`` block, to stop it.

    A thread of this process answers what the page's process asks: twice a second while a page is
    open, else when metrics are read.

    Args:
        source: what is shown.
        address: where to listen.
        port: 0 takes a free one.

    Attributes:
        url: of the page.

    Raises:
        OSError: the port is taken, or the process cannot be started.
    """

    def __init__(self, source: LocalSource, address: str, port: int) -> None:
        self._source = source
        self._closing = False
        self._process = Child("dpexec.dashboard.page_process", address, str(port))
        try:
            started = self._process.receive()  # its port, or what went wrong
            if isinstance(started, OSError):
                raise started
        except BaseException:
            self._end()
            raise
        self.url = f"http://{address}:{started}/dpexec"
        self._thread = threading.Thread(target=self._answer, name="dpexec-live", daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        try:
            while True:
                self._source.show(self._process.receive())
                self._process.send(self._source.report())
        except ChildProcessError as error:
            if not self._closing:
                warnings.warn(f"{self.url} is gone, training goes on: {error}", stacklevel=2)
        finally:
            self._end()

    def _end(self) -> None:
        self._process.end()
        self._source.close()

    def close(self) -> None:
        """Stop serving; training goes on."""
        self._closing = True
        self._process.end()
        self._thread.join()

    def __enter__(self) -> LiveServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LiveServer: {self.url}>"

    def _repr_html_(self) -> str:
        return f'Live view of training: <a href="{self.url}" target="_blank">{self.url}</a>'


def serve(executor: Any = None, port: int = 0, address: str = "127.0.0.1") -> LiveServer:
    """Serve the live view of training in this process, from another one that draws it.

    Args:
        executor: a ``ParallelExecutor`` or ``CompiledProgram``; None shows whatever trains.
        port: 0 takes a free one.
        address: where to listen; the default is reached from this machine alone.

    Returns:
        The server, with its ``url``; Prometheus finds ``/metrics`` beside the page, and
        dask-labextension its panels.

    Raises:
        RuntimeError: bokeh is not installed.
        OSError: the port is taken, or the server's process did not start.
        TypeError: an executor of another kind.
        ValueError: it trains on a cluster, whose dashboard has the page.
    """
    if importlib.util.find_spec("bokeh") is None:
        raise RuntimeError(f"the live view cannot be served: {pages.REQUIREMENT}")
    return LiveServer(LocalSource(executor), address, port)
