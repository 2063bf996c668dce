"""The client's side of mode tasks: steps as one dask graph, which dask's scheduler leads through.

Dask's own latency is paid once for a graph. All that workers need for a step is known before it,
so that they go from one step to the next without the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import dask

from dpexec.engine.cluster.client.binding_registry import News
from dpexec.engine.cluster.client.jobs import Jobs, jobs_of
from dpexec.engine.cluster.client.links import link_between
from dpexec.engine.cluster.client.step_graph import StepGraph
from dpexec.engine.cluster.client.step_outcome import StepOutcome, StepRequest
from dpexec.engine.cluster.messages import StepOf
from dpexec.engine.cluster.worker.exports import how_exchanged
from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.bucket_size import Link
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.dask.held import Fed

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup
    from dpexec.engine.dask.waiting import Contact

__all__ = ["TaskRunner"]

_STEPS = 20
_TASKS = 2000
"""Of one graph at most: scheduler and client hold all of it at once."""


class TaskRunner:
    """Runs steps as dask graphs.

    Args:
        contact: how workers are talked to.
        group: the replicas.
    """

    tells = False
    """Workers know all bindings before its graphs come."""

    def __init__(self, contact: Contact, group: ReplicaGroup) -> None:
        self._contact, self._group = contact, group
        self._homes = group.homes
        self._between: Link | None = None
        self._jobs: WeakKeyDictionary[Plan, Jobs] = WeakKeyDictionary()

    @staticmethod
    def together(bindings: Sequence[Binding]) -> int:
        """How many of some steps go into one graph."""
        sizes = [len(binding.plan.tasks) for binding in bindings[:_STEPS]]
        return max(1, min(len(sizes), _TASKS // max(sizes)))

    def part(self) -> None:
        """Nothing is left on workers between graphs."""

    def run(
        self, steps: Sequence[StepRequest], first: int, recorded: bool, news: News
    ) -> StepOutcome:
        """Make some steps.

        Args:
            steps: which.
            first: number of the first.
            recorded: whether to note when tasks run.
            news: of bindings; the workers know them.

        Raises:
            ClusterError: workers or the scheduler are lost.
            StaleTaskError: dask has repeated a task.
            Exception: an operator's error.
        """
        group = self._group
        graphs: list[StepGraph] = []
        holders: set[str] = set()
        for index, wanted in enumerate(steps):
            before = graphs[-1] if graphs else None
            base = first + index - 1 if graphs else group.complete
            step = StepOf(group.epoch, first + index, base)
            last, plan, feeds = index == len(steps) - 1, wanted.binding.plan, wanted.feeds
            plan.exchange = how_exchanged(plan.graph.places[0], group.homes.workers)
            jobs, mirrored = self._jobs_of(plan), group.mirrored
            graph = StepGraph(plan, jobs, wanted.key, step, group.homes, mirrored, before, last)
            pairs = zip(feeds.values, group.homes.address, strict=True)
            fed = [Fed.of(self._contact, values, worker) for values, worker in pairs]
            holders.update(*(part.holders for part in fed))
            graphs.append(graph.fill(fed, feeds.persistable, wanted.shards, recorded))
        futures, what = self._send(graphs), f"to make step {first}"
        returned = self._contact.gather(futures, group.homes.workers, what, holders)
        ended = returned[: len(graphs[-1].ends)]  # mirrors have nothing to tell
        return StepOutcome(
            len(graphs), [fetched for fetched, _ in ended], [noted for _, noted in ended]
        )

    def _jobs_of(self, plan: Plan) -> Jobs:
        """The jobs of a plan while replicas keep their homes."""
        if self._homes is not self._group.homes:
            self._homes, self._between = self._group.homes, None
            self._jobs.clear()
        if plan not in self._jobs:
            self._jobs[plan] = jobs_of(plan, self._homes, self._link)
        return self._jobs[plan]

    def _link(self) -> Link:
        """What is between the workers while replicas keep their homes."""
        if self._between is None:
            self._between = link_between(self._contact, self._homes)
        return self._between

    def _send(self, graphs: Sequence[StepGraph]) -> list[Any]:
        """Let dask run the graphs of all steps as one; returns the ends of the last."""
        tasks = {key: task for graph in graphs for key, task in graph.tasks.items()}
        where = {key: worker for graph in graphs for key, worker in graph.where.items()}
        last = graphs[-1]
        ends = [*(last.ends[d] for d in sorted(last.ends)), *last.mirrors.values()]
        with (
            dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}),  # feeds
            dask.annotate(workers=lambda k: [where[k]], allow_other_workers=False, retries=0),
        ):
            futures: list[Any] = self._contact.client.get(tasks, ends, sync=False)
        return futures
