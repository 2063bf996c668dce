"""Figures of comparisons in words: differences with signs and intervals, times side by side."""

from __future__ import annotations

from dpexec.viz.comparing.causes import Cause
from dpexec.viz.comparing.changes import Change
from dpexec.viz.pages.units import ratio_text, seconds_text, signed_percent


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


_MULTIPLE = 2.0
"""Differences above this share are said as multiples: nobody pictures 1806%."""


def times_longer(share: float) -> str | None:
    """Return a large difference as a multiple; None for others.

    Example:
        >>> times_longer(18.06), times_longer(0.5)
        ('19.1 times as long', None)
    """
    return f"{1 + share:.3g} times as long" if share >= _MULTIPLE else None


def ends_text(share: float, low: float, high: float) -> str:
    """Return the ends of a difference's interval, in the form of the difference.

    Example:
        >>> ends_text(18.06, 13.11, 23.01), ends_text(0.5, 0.4, 0.6)
        ('(14.1 to 24 times)', '(+40.0% to +60.0%)')
    """
    if times_longer(share):
        return f"({1 + low:.3g} to {1 + high:.3g} times)"
    return f"({signed_percent(low)} to {signed_percent(high)})"
