"""Feeds that a program takes from its own loaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpexec.engine.core.errors import EnforceNotMet, EOFException, see
from dpexec.engine.core.lod import LOD_SUFFIX, Lod
from dpexec.engine.core.places import CPUPlace, Place
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.feeds.splitting import Feeds, split_feed
from dpexec.engine.ir.block import Block
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
    partial: bool,
) -> list[Feeds]:
    """The feeds of every step of a run, see :func:`with_loaders`; fewer at the end of the data.

    Args:
        program: the program with the loaders.
        feed: the user's feed.
        feeds_of: turns it into the feeds of the devices.
        places: the devices.
        prepare: see :func:`with_loaders`.
        steps: number of steps of the run.
        partial: see :func:`with_loaders`.

    Raises:
        EOFException: there is no batch for the first step.
    """
    found: list[Feeds] = []
    for _ in range(steps):
        try:
            values = with_loaders(program, feed, places, prepare, partial)
        except EOFException:
            if not found:
                raise
            break
        same = found and values is feed  # no reader gives anything
        found.append(found[0] if same else feeds_of(values))
    return found


def with_loaders(
    program: Program,
    feed: Any,
    places: Sequence[Place],
    prepare: Prepare | None = None,
    partial: bool = True,
) -> Any:
    """A feed, completed by the loaders of a program.

    A loader is asked when the feed lacks all its variables; so the copy of a program for testing
    can still be fed.

    Args:
        program: the loaders were made while it, or the program that it was cloned from, was
            current.
        feed: dict, which is divided among the devices; list with a dict per device; or None.
        places: the devices.
        prepare: what loaders do with a batch in their thread, ahead of the steps.
        partial: whether some devices may get nothing at all (prediction). If not, batches that
            are too few for all devices are the end of the data, as in Paddle.

    Returns:
        The feed as it was (empty for None), or a list with a dict per device.

    Raises:
        EOFException: a loader has no more data.
        EnforceNotMet: a loader is not started, or the fed batch has fewer samples than devices.
        ValueError: the feed has some of the variables of a loader, or an unknown name.
    """
    named = _names(feed)
    asked = []
    for loader in program._loaders:
        names = set(loader.feed_names)
        both = names & named
        if both and both != names:
            raise ValueError(
                f"the feed has {', '.join(sorted(both))}, but lacks "
                f"{', '.join(sorted(names - both))} of the same reader: feed all of them or none"
            )
        if not both:
            asked.append(loader)
    if not asked:
        return {} if feed is None else feed
    block = program.global_block()
    shared = isinstance(feed, Mapping) and len(places) > 1
    given = _divided(block, feed, len(places)) if feed and shared else feed  # may raise
    parts = [loader.next_feeds(places, prepare) for loader in asked]
    count = min(len(part) for part in parts)
    if count < len(places) and not partial:
        problem = f"The last batches are {count}, too few for {len(places)} devices."
        raise see("the-end-of-the-data", EOFException(problem))
    if feed and shared and count < len(places):  # the last batches
        given = _divided(block, feed, count)
    if feed:
        parts.append([given] if isinstance(given, Mapping) else given)
        count = min(count, len(parts[-1]))
    return [
        {name: value for part in parts for name, value in part[device].items()}
        for device in range(count)
    ]


def _divided(block: Block, feed: Mapping[str, Any], devices: int) -> list[dict[str, Any]]:
    """The parts of a dict that is fed besides what readers give, a dict for each device.

    Args:
        block: the global block.
        feed: arrays, tensors or numbers by name.
        devices: number of devices.

    Raises:
        EnforceNotMet: there are fewer samples than devices.
        ValueError: an unknown name, or a checked variable got another shape or type.
    """
    parts = split_feed(block, feed, devices, partial=False)
    if parts.idle:
        raise EnforceNotMet(
            f"fed besides a reader, {', '.join(feed)} has {sum(parts.samples)} samples, too few "
            f"for {devices} devices"
        )
    return [_as_fed(values) for values in parts.values]


def _as_fed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays, and tensors of those with sequences, as users feed them."""
    fed = {name: array for name, array in values.items() if not isinstance(array, Lod)}
    for name, array in fed.items():
        lod = values.get(name + LOD_SUFFIX)
        if lod is not None:
            fed[name] = tensor = LoDTensor()
            tensor.set(array, CPUPlace())
            tensor.set_lod(lod.to_lists())
    return fed


def _names(feed: Any) -> set[str]:
    if isinstance(feed, Mapping):
        return set(feed)
    if isinstance(feed, (list, tuple)):
        return {name for item in feed if isinstance(item, Mapping) for name in item}
    return set()
