"""The page for training without a cluster, served by a separate process."""

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

    A thread of this process answers the requests of the page's process: twice a second while a page
    is open, otherwise when metrics are read.

    Args:
        source: source of the data to show.
        address: address to listen on.
        port: port to listen on; 0 takes a free one.

    Attributes:
        url: address of the page.

    Raises:
        OSError: the port is taken, or the process cannot be started.

    Example:
        >>> from dpexec import dashboard
        >>> server = dashboard.serve(replicas)  # doctest: +SKIP
        >>> server.url  # doctest: +SKIP
        'http://127.0.0.1:40217/dpexec'
        >>> server.close()  # doctest: +SKIP
    """

    def __init__(self, source: LocalSource, address: str, port: int) -> None:
        self._source = source
        self._closing = False
        self._process = Child("dpexec.dashboard.page_process", address, str(port))
        try:
            started = self._process.receive()  # its port, or an error
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
        """Stop serving; training continues."""
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
    """Serve the live view of this process's training, drawn by a separate process.

    Args:
        executor: a ``ParallelExecutor`` or ``CompiledProgram``; None shows any training.
        port: port to listen on; 0 takes a free one.
        address: address to listen on; by default reachable from this machine only.

    Returns:
        The server, with its ``url``; Prometheus finds ``/metrics`` beside the page, and
        dask-labextension its panels.

    Raises:
        RuntimeError: bokeh is not installed.
        OSError: the port is taken, or the server's process did not start.
        TypeError: the executor is of another kind.
        ValueError: the executor trains on a cluster, whose dashboard has the page.

    Example:
        >>> from dpexec import dashboard
        >>> with dashboard.serve(replicas, port=8000) as server:  # doctest: +SKIP
        ...     print("watch", server.url)
        ...     for batch in batches:
        ...         exe.run(replicas, feed=batch, fetch_list=[loss])
    """
    if importlib.util.find_spec("bokeh") is None:
        raise RuntimeError(f"the live view cannot be served: {pages.REQUIREMENT}")
    return LiveServer(LocalSource(executor), address, port)
