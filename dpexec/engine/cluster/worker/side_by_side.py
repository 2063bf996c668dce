"""Replicas of one worker at the same time, as far as the worker has threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from dpexec.engine.compile.plans.partition import Task

__all__ = ["Phase", "helpers", "phases", "side_by_side"]

Phase = list[list[int]]
"""Lists of tasks, by their numbers; the lists may be worked through at the same time."""


def phases(tasks: Iterable[Task]) -> list[Phase]:
    """What comes one after another: a collective, or what devices do between two of them.

    Args:
        tasks: in a topological order; those of different devices meet in collectives alone.
    """
    found: list[dict[int | None, list[int]]] = []
    for task in tasks:
        device = None if task.is_collective else task.device
        if device is None or not found or None in found[-1]:
            found.append({})
        found[-1].setdefault(device, []).append(task.id)
    return [list(lists.values()) for lists in found]


def helpers(lists: int, threads: int) -> ThreadPoolExecutor | None:
    """What helps a thread that works through lists of tasks.

    Args:
        lists: how many there are at the same time.
        threads: how many may work, the helped one included.

    Returns:
        Threads; None if there is nothing to help with.
    """
    number = min(lists, threads) - 1
    return ThreadPoolExecutor(number, thread_name_prefix="dpexec-gang") if number > 0 else None


def side_by_side(
    run: Callable[[Sequence[int]], None], phase: Phase, pool: ThreadPoolExecutor | None
) -> None:
    """Work through a phase; all of it has ended when this returns or raises.

    Args:
        run: works through one list.
        phase: the lists.
        pool: threads that help.

    Raises:
        BaseException: what the first list that failed raised.
    """
    if pool is None or len(phase) == 1:
        for numbers in phase:
            run(numbers)
        return
    others = [pool.submit(run, numbers) for numbers in phase[1:]]
    try:
        run(phase[0])
    finally:
        wait(others)
    for other in others:
        other.result()
