"""Tells who counts an engine's steps of those that were made together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpexec.runtime.binding import Binding
    from dpexec.runtime.feeds.splitting import Feeds
    from dpexec.trace.live import Counter

__all__ = ["count_all"]


def count_all(
    counter: Counter,
    steps: Sequence[tuple[Binding, Feeds]],
    done: int,
    results: Sequence[Any] | None,
) -> None:
    """Tell a counter, who knows that the first step began, of steps that workers made together.

    Args:
        counter: who.
        steps: what was to run, on what.
        done: how many steps are complete.
        results: what the last one gave; None: a step failed.
    """
    for index, (binding, feeds) in enumerate(steps[: done + (results is None)]):
        if index:
            counter.begin(binding)
        unknown = [None for _ in binding.plan.fetch]
        last = results is not None and index == done - 1
        counter.end(feeds.samples, results if last else unknown if index < done else None)
