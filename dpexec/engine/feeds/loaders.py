"""Feeds that a program takes from its own loaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpexec.engine.core.errors import EOFException
from dpexec.engine.core.places import Place
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.program import Program

__all__ = ["loaded", "with_loaders"]

Prepare = Callable[[Mapping[str, Any]], dict[str, Any]]


def loaded(
    program: Program,
    feed: Any,
    feeds_of: Callable[[Any], Feeds],
    places: Sequence[Place],
    prepare: Prepare | None,
    steps: int,
) -> list[Feeds]:
    """The feeds of every step of a run, see :func:`with_loaders`; fewer at the end of the data.

    Args:
        program: the program with the loaders.
        feed: the user's feed.
        feeds_of: turns it into the feeds of the devices.
        places: the devices.
        prepare: see :func:`with_loaders`.
        steps: number of steps of the run.

    Raises:
        EOFException: there is no batch for the first step.
    """
    found: list[Feeds] = []
    for _ in range(steps):
        try:
            values = with_loaders(program, feed, places, prepare)
        except EOFException:
            if not found:
                raise
            break
        same = found and values is feed  # no reader gives anything
        found.append(found[0] if same else feeds_of(values))
    return found


def with_loaders(
    program: Program, feed: Any, places: Sequence[Place], prepare: Prepare | None = None
) -> Any:
    """A feed, completed by the loaders of a program.

    A loader is asked when the feed lacks all its variables; so the copy of a program for testing
    can still be fed.

    Args:
        program: the loaders were made while it, or the program that it was cloned from, was
            current.
        feed: dict, list with a dict per device, or None.
        places: the devices.
        prepare: what loaders do with a batch in their thread, ahead of the steps.

    Returns:
        The feed as it was (empty for None), or a list with a dict per device.

    Raises:
        EOFException: a loader has no more data.
        EnforceNotMet: a loader is not started.
        ValueError: the feed has some of the variables of a loader, or is one dict for several
            devices besides a loader.
    """
    given = _names(feed)
    asked = []
    for loader in program._loaders:
        names = set(loader.feed_names)
        both = names & given
        if both and both != names:
            raise ValueError(
                f"the feed has {', '.join(sorted(both))}, but lacks "
                f"{', '.join(sorted(names - both))} of the same reader: feed all of them or none"
            )
        if not both:
            asked.append(loader)
    if not asked:
        return {} if feed is None else feed
    if feed and len(places) > 1 and isinstance(feed, Mapping):
        raise ValueError(
            f"besides a reader, feed a list with a dict for each of the {len(places)} devices, "
            "not one dict"
        )
    parts = [loader.next_feeds(places, prepare) for loader in asked]
    if feed:
        parts.append([feed] if isinstance(feed, Mapping) else feed)
    count = min(len(part) for part in parts)
    return [
        {name: value for part in parts for name, value in part[device].items()}
        for device in range(count)
    ]


def _names(feed: Any) -> set[str]:
    if isinstance(feed, Mapping):
        return set(feed)
    if isinstance(feed, (list, tuple)):
        return {name for item in feed if isinstance(item, Mapping) for name in item}
    return set()
