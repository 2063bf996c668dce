"""Figures of comparisons in words: differences with signs and intervals, times side by side."""

from __future__ import annotations

from dpexec.viz.comparing.causes import Cause
from dpexec.viz.comparing.changes import Change
from dpexec.viz.pages.units import ratio_text, seconds_text


def signed(seconds: float) -> str:
    """Return a difference of times with its sign."""
    return f"{'−' if seconds < 0 else '+'}{seconds_text(abs(seconds))}"


def spread(cause: Cause) -> str:
    """Return the difference that a cause makes, with the interval of it if that is known."""
    text = signed(cause.difference)
    if cause.low is None or cause.high is None:
        return text
    return f"{text} ({signed(cause.low)} to {signed(cause.high)})"


def figures(change: Change, wide: int = 0) -> str:
    """Return both times of an operator, and their ratio."""
    ratio = "" if change.ratio is None else f"  {ratio_text(change.ratio)}"
    before, after = seconds_text(change.before), seconds_text(change.after)
    return f"{before:>{wide}} → {after:>{wide}}{ratio}" if wide else f"{before} → {after}{ratio}"
