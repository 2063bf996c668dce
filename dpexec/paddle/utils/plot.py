"""``paddle.utils.plot``: curves that are updated during training."""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["Ploter"]

_OFF = "DISABLE_PLOT"


class Ploter:
    """Curves of losses over steps, in a file or in a notebook.

    With ``DISABLE_PLOT=True`` in the environment nothing is drawn.

    Args:
        titles: names of the curves.

    Raises:
        ImportError: matplotlib is missing.

    Example:
        >>> from dpexec.paddle.utils import Ploter
        >>> curves = Ploter("train", "test")  # doctest: +SKIP
        >>> for step, loss in enumerate([1.2, 0.7, 0.5]):  # doctest: +SKIP
        ...     curves.append("train", step, loss)
        >>> curves.plot("losses.png")  # doctest: +SKIP
    """

    def __init__(self, *titles: str) -> None:
        self._curves: dict[str, tuple[list[Any], list[Any]]] = {t: ([], []) for t in titles}
        self._draws = os.environ.get(_OFF) != "True"
        if self._draws:
            _figure()

    def append(self, title: str, step: Any, value: Any) -> None:
        """Add a point to a curve.

        Args:
            title: name of the curve.
            step: x coordinate of the point.
            value: y coordinate of the point.

        Raises:
            AssertionError: there is no such curve.
        """
        if title not in self._curves:
            raise AssertionError(f"no curve is called {title!r}: {list(self._curves)} are")
        steps, values = self._curves[title]
        steps.append(step)
        values.append(value)

    def plot(self, path: str | None = None) -> None:
        """Draw all curves that have points.

        Args:
            path: the file to write; None shows the picture in the notebook, replacing the previous
                one. Without a notebook it does nothing.
        """
        notebook = sys.modules.get("IPython")
        if not self._draws or (path is None and notebook is None):
            return
        figure = _figure()
        axes = figure.add_subplot()
        for title, (steps, values) in self._curves.items():
            if steps:
                axes.plot(steps, values, label=title)
        if axes.lines:
            axes.legend(loc="upper left")
        if path is not None:
            figure.savefig(path)
        elif notebook is not None:
            notebook.display.clear_output(wait=True)
            notebook.display.display(figure)

    def reset(self) -> None:
        """Remove all points."""
        for steps, values in self._curves.values():
            steps.clear()
            values.clear()


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "Ploter draws with matplotlib, which is not installed: pip install 'dpexec[demo]', or "
            f"set {_OFF}=True to run without pictures"
        ) from None
    return Figure()
