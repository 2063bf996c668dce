"""Lost workers: what the others have, texts of errors and logs, and how many a run survives."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.cluster.worker.state import Held
from dpexec.engine.cluster.worker.worker import Kind

__all__ = ["ATTEMPTS", "common_step", "having", "named", "report", "what_is_lost", "whole"]

ATTEMPTS = 5
"""How often a step or the set-up of a run may lose workers before it is given up.

It may be what kills them. A task of the user that does so has killed four when dask gives it up.
"""

_Place = tuple[str, int, Kind]
_logger = logging.getLogger(__name__)


def common_step(held: Mapping[str, Held], complete: int, allowed: Sequence[int]) -> int:
    """The last step that all remaining replicas have made: the complete one, or an allowed one.

    For lost replicas, their mirrors and what closed workers left count. States older than the
    complete step do not: they are on workers that were silent for some time.
    """
    there = {device for found in held.values() for device in found.steps["stores"]}
    made = [
        max(steps)
        for found in held.values()
        for kind, known in found.steps.items()
        for device, steps in known.items()
        if kind == "stores" or device not in there
    ]
    least = min((step for step in made if step >= complete), default=complete)
    return max(step for step in (complete, *allowed) if step <= least)


def having(held: Mapping[str, Held], device: int, step: int, kind: Kind) -> list[str]:
    """The workers that have the state of a replica after a step, as a certain kind of state."""
    return [worker for worker, found in held.items() if step in found.steps[kind].get(device, ())]


def whole(held: Mapping[str, Held], devices: Iterable[int], step: int) -> list[_Place]:
    """Where all variables of replicas are after a step: with replicas, or left by closed workers.

    Returns:
        Workers, replicas and kinds of state; those with replicas first.
    """
    kinds: tuple[Kind, ...] = "stores", "left"
    return [(w, d, kind) for kind in kinds for d in devices for w in having(held, d, step, kind)]


def what_is_lost(device: int, homes: HomeTable, mirrored: bool) -> str:
    """Why there is no copy of a replica's state, and what to do.

    Args:
        device: the replica.
        homes: the workers of all replicas.
        mirrored: whether own state of replicas is mirrored.
    """
    if len(homes.workers) < 2:
        why = "all replicas lived on one worker"
    elif mirrored:
        why = "the worker that mirrored it is gone, too (closed, killed, or for want of memory)"
    else:
        why = "ExecutionStrategy.recovery = 'checkpoint' keeps no mirrors"
    return (
        f"the state of replica {device} is lost with worker {homes.address[device]}: {why}"
        ". Steps since the last checkpoint are lost; go on from it with "
        "dpexec.checkpoint.Checkpoints.resume(), or set all variables anew"
    )


def named(workers: Mapping[str, str], homes: HomeTable) -> str:
    """Workers with their replicas and what is wrong with them.

    Args:
        workers: what is wrong, by address.
        homes: the workers of all replicas.
    """
    known = {w: ", ".join(map(str, homes.workers.get(w, ()))) or "none" for w in workers}
    return "; ".join(f"worker {w} (replicas {known[w]}) {why}" for w, why in workers.items())


def report(before: HomeTable, after: HomeTable, gone: Mapping[str, str]) -> None:
    """Log which replicas have moved, and why.

    Args:
        before: the workers of all replicas until now.
        after: the workers that they have from now on.
        gone: what is wrong with workers that are lost, by address.
    """
    changes = enumerate(zip(before.address, after.address, strict=True))
    moved = [f"replica {device} to {new}" for device, (old, new) in changes if old != new]
    if moved:
        why = (
            "; ".join(f"worker {w} {text}" for w, text in gone.items())
            or "workers joined, or others are wanted"
        )
        level = logging.WARNING if gone else logging.INFO
        _logger.log(level, "%s: moved %s; nothing was lost", why, ", ".join(moved))
