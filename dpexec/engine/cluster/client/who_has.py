"""What workers have of the replicas of a run, when an epoch has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpexec.engine.cluster.worker.state import Held

__all__ = ["common_step", "having"]


def common_step(held: Mapping[str, Held], complete: int, allowed: Sequence[int]) -> int:
    """The last step that all replicas have made which are left: a complete or an allowed one.

    Of replicas that are not left, their mirrors say what they have made. Workers that were silent
    for some time may have states that are older than that.
    """
    there = {device for found in held.values() for device in found.stores}
    made = [max(steps) for found in held.values() for steps in found.stores.values()]
    for found in held.values():
        made += [max(steps) for device, steps in found.mirrors.items() if device not in there]
    least = min((step for step in made if step >= complete), default=complete)
    return max(step for step in (complete, *allowed) if step <= least)


def having(held: Mapping[str, Held], device: int, step: int, mirrored: bool) -> list[str]:
    """The workers that have the state of a replica after a step, or its mirror."""
    return [
        worker
        for worker, found in held.items()
        if step in (found.mirrors if mirrored else found.stores).get(device, ())
    ]
