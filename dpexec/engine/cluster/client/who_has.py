"""The state of replicas that workers have when an epoch has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpexec.engine.cluster.worker.state import Held

__all__ = ["common_step", "having"]


def common_step(held: Mapping[str, Held], complete: int, allowed: Sequence[int]) -> int:
    """The last step that all remaining replicas have made: the complete one, or an allowed one.

    For lost replicas, their mirrors count. States older than the complete step do not count: they
    are on workers that were silent for some time.
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
