"""The live view of training: its panels as HTML, and as an output of a notebook cell.

The page of the dask dashboard, the server of `dpexec.dashboard.serve` and the notebook show the
same panels. They need no scripts and follow the reader's light or dark setting; roles differ in
pattern as well as in colour.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from dpexec.viz.live_panels.live_figures import figures, loss, memory, moved, throughput
from dpexec.viz.live_panels.live_groups import groups
from dpexec.viz.live_panels.live_parts import css
from dpexec.viz.live_panels.live_tasks import graph, lanes

from dpexec.dashboard.board import Board
from dpexec.dashboard.child import Child

__all__ = ["PANELS", "LiveView", "css", "live", "panel"]

PANELS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "figures": ("Training with dpexec", figures),
    "graph": ("The tasks of a step", graph),
    "groups": ("What steps consist of", groups),
    "loss": ("Loss", loss),
    "throughput": ("Samples per second", throughput),
    "bytes": ("Bytes per second that collectives read", moved),
    "memory": ("Memory", memory),
    "lanes": ("The latest recorded step", lanes),
}
"""The panels by name, with their headings."""

_SIDE_BY_SIDE = "display: flex; flex-wrap: wrap; gap: 16px 32px; align-items: flex-start;"


def panel(board: Any, name: str) -> str:
    """Return one panel as HTML.

    Args:
        board: A `dpexec.dashboard.board.Board`.
        name: One of `PANELS`.
    """
    heading, draw = PANELS[name]
    if board.run:
        body = draw(board)
    else:
        hint = "Nothing trains yet: the first step shows here."
        body = f'<p class="note">{hint}</p>' if name == "figures" else '<p class="note">–</p>'
    return f'<div class="dpl"><h3>{heading}</h3>{body}</div>'


def overview(board: Any) -> str:
    """Return all panels, with their style sheet."""
    rest = "".join(panel(board, name) for name in PANELS if name != "figures")
    return (
        f"<div><style>{css()}</style>{panel(board, 'figures')}"
        f'<div style="{_SIDE_BY_SIDE}">{rest}</div></div>'
    )


def ended(content: str) -> str:
    """Return panels with the remark that they are no longer updated; a notebook stores these."""
    text = f"This view ended at {time.strftime('%H:%M:%S on %Y-%m-%d')} and follows no training."
    said = f'<div class="dpl"><p class="note" role="status">{text}</p></div>'
    return f'<div class="dpl-ended">{said}{content}</div>'


class LiveView:
    """A live view below a notebook cell; it follows training in the background.

    Another process draws it. This process only sends reports to it, and puts the result below the
    cell.

    Args:
        source: Source of the data: `dpexec.dashboard.source.LocalSource`.
        display: The output to update: the result of IPython's `display(..., display_id=True)`.
        interval: Seconds between updates.

    Example:
        >>> from dpexec import viz
        >>> view = viz.live(replicas)  # in a cell of a notebook  # doctest: +SKIP
        >>> view.close()  # doctest: +SKIP
    """

    def __init__(self, source: Any, display: Any, interval: float) -> None:
        self._source, self._display = source, display
        self._process = Child("dpexec.viz.live_panels.live_process")
        self._stopped = threading.Event()
        source.show(1)
        self._thread = threading.Thread(
            target=self._follow, args=(interval,), name="dpexec-live", daemon=True
        )
        self._thread.start()

    def _follow(self, interval: float) -> None:
        last, shown = False, overview(Board())
        try:
            while not last:
                last = self._stopped.wait(interval) or self._source.gone
                self._process.send(self._source.report())
                content = self._process.receive()
                shown = content or shown
                if last:
                    self._display.update({"text/html": ended(shown)}, raw=True)
                elif content is not None:
                    self._display.update({"text/html": content}, raw=True)
        except ChildProcessError as error:
            self._display.update({"text/html": ended(shown)}, raw=True)
            warnings.warn(f"training is no longer shown, but goes on: {error}", stacklevel=2)
        finally:
            self._stopped.set()
            self._process.end()
            self._source.close()

    def close(self) -> None:
        """Update the view for the last time, and end it."""
        self._stopped.set()
        self._thread.join()

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LiveView: {'closed' if self._stopped.is_set() else 'following'}>"


def live(executor: Any = None) -> LiveView:
    """Show training while it runs, below the notebook cell that calls this.

    The call returns immediately; train in the same cell or in a later one. The view is updated at
    most twice a second, and needs neither a server nor an extension of JupyterLab.

    Args:
        executor: A ParallelExecutor or CompiledProgram; None shows any training.

    Returns:
        The view; close it, or leave its `with` block, to end it. It also ends when the executor no
        longer exists, for example after running the cell that makes it again.

    Raises:
        RuntimeError: IPython is not installed, or this is no notebook.
        TypeError: The executor is of another kind.
        ValueError: The executor trains on a cluster, whose dashboard has the page.

    Example:
        >>> from dpexec import viz
        >>> with viz.live(replicas):  # in a cell of a notebook  # doctest: +SKIP
        ...     for batch in batches:
        ...         exe.run(replicas, feed=batch, fetch_list=[loss])
    """
    elsewhere = "viz.live shows training in a notebook and {}; elsewhere use "
    elsewhere += "dpexec.dashboard.serve(executor)"
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError as error:
        raise RuntimeError(elsewhere.format("needs IPython")) from error
    if get_ipython() is None:
        raise RuntimeError(elsewhere.format("this is none"))
    from dpexec.dashboard.monitor import INTERVAL
    from dpexec.dashboard.source import LocalSource

    source = LocalSource(executor)
    start = {"text/html": overview(Board()), "text/plain": "live view of training"}
    return LiveView(source, display(start, raw=True, display_id=True), INTERVAL)
