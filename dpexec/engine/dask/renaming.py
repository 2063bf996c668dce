"""New names for the tasks of a graph, so that dask computes them again."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from distributed.shuffle._core import P2PBarrierTask

__all__ = ["new_names"]


def new_names(tasks: Mapping[Any, Any]) -> dict[Any, Any]:
    """Names that no task has had, by the keys that have the same places among each other.

    Shuffles and what they read keep their names: dask finds the tasks of a shuffle by these.

    Args:
        tasks: by key.
    """
    token, shuffles = secrets.token_hex(8), _of_shuffles(tasks)
    return {
        key: (f"{key[0]}-{token}", *key[1:]) if isinstance(key, tuple) else f"{key}-{token}"
        for key in tasks
        if key not in shuffles
    }


def _of_shuffles(tasks: Mapping[Any, Any]) -> set[Any]:
    """The keys of the tasks of shuffles between workers, and of all that these need."""
    barriers = {key for key, task in tasks.items() if isinstance(task, P2PBarrierTask)}
    left = [key for key, task in tasks.items() if not barriers.isdisjoint(task.dependencies)]
    found: set[Any] = set()
    while left:
        key = left.pop()
        if key in tasks and key not in found:
            found.add(key)
            left += tasks[key].dependencies
    return found
