"""A loss curve, as PNG where matplotlib is installed, and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

_BLOCKS = " ▁▂▃▄▅▆▇█"  # a character cell, filled from below


def png(losses: Sequence[float], title: str, path: Path) -> bool:
    """Draw the losses of all steps.

    Args:
        losses: One per step.
        title: Heading.
        path: File to write.

    Returns:
        Whether matplotlib is there; nothing is written otherwise.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(np.arange(1, len(losses) + 1), losses, linewidth=1.2, color="#0072b2")
    axes.set(xlabel="step", ylabel="loss", title=title)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    return True


def terminal(losses: Sequence[float], width: int = 60, height: int = 8) -> str:
    """Return the curve as lines of text: mean loss of each stretch of steps.

    Example:
        >>> print(terminal([4, 3, 2, 1], width=4, height=2))
        4 █▃
        1 ██▆▁
    """
    values = np.asarray(losses, dtype=float)
    stretches = np.array_split(values, min(width, len(values)))
    means = np.array([stretch.mean() for stretch in stretches])
    low, high = float(means.min()), float(means.max())
    span = (high - low) or 1.0
    steps = len(_BLOCKS) - 1
    filled = np.rint((means - low) / span * (height * steps - 1)).astype(int) + 1
    labels = {height - 1: f"{high:.3g}", 0: f"{low:.3g}"}
    margin = max(map(len, labels.values()))
    lines = []
    for row in reversed(range(height)):
        cells = "".join(_BLOCKS[int(np.clip(level - row * steps, 0, steps))] for level in filled)
        lines.append(f"{labels.get(row, ''):>{margin}} {cells}".rstrip())
    return "\n".join(lines)
