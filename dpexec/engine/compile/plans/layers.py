"""A plan as dask's tools see it: a ``HighLevelGraph`` with a layer for each role and device."""

from __future__ import annotations

import functools
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef
from dask.base import dont_optimize
from dask.highlevelgraph import HighLevelGraph
from dask.local import get_sync

from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.core.errors import EnforceNotMet

__all__ = ["Layered"]


class Layered:
    """Tasks as a dask collection, to look at: ``dask.visualize(plan, color="order")`` draws them.

    It cannot be computed, as it has no feeds: see :meth:`Executor.delayed`.
    """

    tasks: Sequence[Task]

    @functools.cached_property
    def dask(self) -> HighLevelGraph:
        """The graph, with layers such as ``forward_backward_dev0`` and ``all_reduce``.

        Where tasks of two layers wait for each other in turn, as those around the collectives of a
        forward pass do, a layer becomes several, so that layers have an order, too.
        """
        rounds: list[int] = []
        places: dict[str, int] = {}  # of roles, in the order in which the plan comes to them
        layers: dict[str, dict[Any, DaskTask]] = defaultdict(dict)
        waits: dict[str, set[str]] = defaultdict(set)
        names: list[str] = []
        for task in self.tasks:
            place = places.setdefault(task.layer, len(places))
            before = ((rounds[n], places[self.tasks[n].layer]) for n in task.after)
            rounds.append(max((r + (other > place) for r, other in before), default=0))
            turn = f"-{rounds[-1]}" if rounds[-1] else ""
            names.append(f"{task.layer}{turn}-{self._token}")
            refs = (TaskRef(self._key(number)) for number in task.after)
            key = self._key(task.id)
            layers[names[-1]][key] = DaskTask(key, _without_feeds, *refs)
            waits[names[-1]] |= {names[n] for n in task.after} - {names[-1]}
        return HighLevelGraph(dict(layers), dict(waits))

    @functools.cached_property
    def _token(self) -> str:
        return uuid.uuid4().hex  # in keys, so that graphs of several plans can be put together

    def _key(self, number: int) -> tuple[str, int]:
        word, position = self.tasks[number].key
        return f"{word}-{self._token}", position

    def __dask_graph__(self) -> HighLevelGraph:
        return self.dask

    def __dask_keys__(self) -> list[tuple[str, int]]:
        awaited = {number for task in self.tasks for number in task.after}
        return [self._key(task.id) for task in self.tasks if task.id not in awaited]

    def __dask_layers__(self) -> tuple[str, ...]:
        return tuple(self.dask.layers)

    def __dask_tokenize__(self) -> str:
        return self._token

    __dask_optimize__ = staticmethod(dont_optimize)
    __dask_scheduler__ = staticmethod(get_sync)

    def __dask_postcompute__(self) -> tuple[Callable[[Any], Any], tuple[()]]:
        return list, ()


def _without_feeds(*before: Any) -> None:
    raise EnforceNotMet(
        "a plan is a graph to look at, without feeds: compute what Executor.delayed(program, feed, "
        "fetch_list) returns"
    )
