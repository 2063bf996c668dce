"""Runs replicas of one worker at the same time, as far as the worker has threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from dpexec.engine.compile.plans.partition import Task

__all__ = ["Phase", "helpers", "phases", "side_by_side"]

Phase = list[list[int]]
"""Lists of numbers of tasks; the lists may run at the same time."""


def phases(tasks: Iterable[Task]) -> list[Phase]:
    """Divide tasks into phases: a collective, or the tasks of devices between two collectives.

    Args:
        tasks: in a topological order; different devices depend on each other only by collectives.
    """
    found: list[dict[int | None, list[int]]] = []
    for task in tasks:
        device = None if task.is_collective else task.device
        if device is None or not found or None in found[-1]:
            found.append({})
        found[-1].setdefault(device, []).append(task.id)
    return [list(lists.values()) for lists in found]


def helpers(lists: int, threads: int) -> ThreadPoolExecutor | None:
    """Threads that help a thread with lists of tasks.

    Args:
        lists: how many lists there are at the same time.
        threads: how many threads may work, the helped one included.

    Returns:
        The helping threads; None if they would have nothing to do.
    """
    number = min(lists, threads) - 1
    return ThreadPoolExecutor(number, thread_name_prefix="dpexec-gang") if number > 0 else None


def side_by_side(
    run: Callable[[Sequence[int]], None], phase: Phase, pool: ThreadPoolExecutor | None
) -> None:
    """Run a phase; all of it has ended when this returns or raises.

    Args:
        run: runs one list.
        phase: the lists.
        pool: helping threads; None: there are none.

    Raises:
        BaseException: the error of the first list that failed.
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
