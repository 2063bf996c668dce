"""From a plan to a dask graph: one dask ``Task`` per task of the plan, and one for the fetch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef

from dpexec.engine.compile.plans.plan import Plan

__all__ = ["FETCH_KEY", "to_dask"]

FETCH_KEY = ("fetch", 0)


def to_dask(
    plan: Plan, run_task: Callable[..., Any], fetch: Callable[..., Any]
) -> dict[Any, DaskTask]:
    """The dask graph of a plan.

    Args:
        plan: the plan.
        run_task: called with the number of a task and the results of the tasks that it waits for.
        fetch: called with the results of the tasks that no other task waits for.
    """
    graph: dict[Any, DaskTask] = {}
    waited_for: set[int] = set()
    for task in plan.tasks:
        refs = [TaskRef(plan.tasks[index].key) for index in task.after]
        graph[task.key] = DaskTask(task.key, run_task, task.id, *refs)
        waited_for.update(task.after)
    ends = [TaskRef(task.key) for task in plan.tasks if task.id not in waited_for]
    graph[FETCH_KEY] = DaskTask(FETCH_KEY, fetch, *ends)
    return graph
