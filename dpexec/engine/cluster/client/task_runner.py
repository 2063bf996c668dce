"""The client's side of mode tasks: several steps as one dask graph, which dask's scheduler runs.

Dask's latency is paid once for a graph. Everything that workers need for the steps is sent with it,
so they go from one step to the next without the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from dpexec.engine.dask.annotations import of_ours
from dpexec.engine.dask.deliveries import fed_to
from dpexec.engine.dask.packed import Packed

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup
    from dpexec.engine.dask.waiting import Contact
    from dpexec.engine.feeds.coming import Coming
    from dpexec.engine.feeds.splitting import Feeds

__all__ = ["TaskRunner"]

_STEPS = 20
_TASKS = 2000
"""The most steps and tasks of one graph: scheduler and client hold all of it at once."""


class TaskRunner:
    """Runs steps as dask graphs.

    Args:
        contact: talks to the workers.
        group: the replicas.
        coming: not used: batches travel with the graph of their steps.
    """

    tells = False
    """Whether graphs also tell of new bindings: no, workers are told before."""

    is_open = False
    """Whether steps can be ordered without waiting for them."""

    def __init__(self, contact: Contact, group: ReplicaGroup, coming: Coming | None = None) -> None:
        self._contact, self._group = contact, group
        self._homes = group.homes
        self._between: Link | None = None
        self._measured: tuple[frozenset[str], Link] | None = None  # for which hosts, and what
        self._jobs: WeakKeyDictionary[Plan, Jobs] = WeakKeyDictionary()

    @staticmethod
    def together(bindings: Sequence[Binding]) -> int:
        """How many of some steps one graph takes."""
        sizes = [len(binding.plan.tasks) for binding in bindings[:_STEPS]]
        return max(1, min(len(sizes), _TASKS // max(sizes)))

    def part(self) -> None:
        """Nothing to do: nothing stays on workers between graphs."""

    def start(
        self, steps: Sequence[StepRequest], first: int, wait: bool
    ) -> Callable[[], StepOutcome] | None:
        """None: graphs are not sent before they are waited for."""
        return None

    def ahead(self, batches: Sequence[Feeds]) -> None:
        """Send rows of later steps to the workers that make these.

        Args:
            batches: the feeds of later steps; rows are sent as long as these objects exist.
        """
        fed_to(self._contact, self._sent(batches), True, self._group.epoch)

    def run(
        self, steps: Sequence[StepRequest], first: int, recorded: bool, news: News
    ) -> StepOutcome:
        """Make some steps.

        Args:
            steps: the steps.
            first: number of the first step.
            recorded: whether to note when tasks run.
            news: not used: workers have been told.

        Raises:
            ClusterError: workers or the scheduler are lost.
            StaleTaskError: dask has repeated a task.
            Exception: an operator's error.
        """
        group = self._group
        graphs: list[StepGraph] = []
        sent = self._sent([wanted.feeds for wanted in steps])
        fed = fed_to(self._contact, sent, until=group.epoch)
        devices = len(group.homes.address)
        for index, wanted in enumerate(steps):
            before = graphs[-1] if graphs else None
            base = first + index - 1 if graphs else group.complete
            step = StepOf(group.epoch, first + index, base)
            last, plan, feeds = index == len(steps) - 1, wanted.binding.plan, wanted.feeds
            plan.exchange = how_exchanged(plan.graph.places[0], group.homes.workers)
            jobs, mirrored = self._jobs_of(plan), group.mirrored
            graph = StepGraph(plan, jobs, wanted.key, step, group.homes, mirrored, before, last)
            parts = fed[index * devices : (index + 1) * devices]
            graphs.append(graph.fill(parts, feeds.persistable, wanted.shards, recorded))
        futures, what = self._send(graphs), f"to make step {first}"
        holders = frozenset[str]().union(*(part.holders for part in fed))
        returned = self._contact.gather(futures, group.homes.workers, what, holders)
        ended = returned[: len(graphs[-1].ends)]  # the results of mirrors are not needed
        return StepOutcome(
            len(graphs), [fetched for fetched, _ in ended], [noted for _, noted in ended]
        )

    def _sent(self, batches: Sequence[Feeds]) -> list[tuple[str, Mapping[str, Any]]]:
        """The worker and the feed of each replica, step after step."""
        address = self._group.homes.address
        return [pair for feeds in batches for pair in zip(address, feeds.values, strict=True)]

    def _jobs_of(self, plan: Plan) -> Jobs:
        """The jobs of a plan while replicas keep their homes."""
        if self._homes is not self._group.homes:
            self._homes, self._between = self._group.homes, None
            self._jobs.clear()
        if plan not in self._jobs:
            self._jobs[plan] = jobs_of(plan, self._homes, self._link)
        return self._jobs[plan]

    def _link(self) -> Link:
        """The speed of the links; measured when replicas are on other hosts than ever before.

        Measuring takes six round trips, for which a recovery would wait. Fewer hosts have no slower
        links than they had among others.
        """
        if self._between is None:
            hosts, before = self._homes.host_names, self._measured
            if len(self._homes.hosts) == 1:
                return link_between(self._contact, self._homes)  # known, not measured
            if before is None or not hosts <= before[0]:
                self._measured = before = hosts, link_between(self._contact, self._homes)
            self._between = before[1]
        return self._between

    def _send(self, graphs: Sequence[StepGraph]) -> list[Any]:
        """Let dask run the graphs of all steps as one; returns futures of the last step's ends."""
        tasks = Packed((key, task) for graph in graphs for key, task in graph.tasks.items())
        where = Packed((key, home) for graph in graphs for key, home in graph.where.items())
        last = graphs[-1]
        ends = [*(last.ends[d] for d in sorted(last.ends)), *last.mirrors.values()]
        with (
            dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}),  # feeds
            of_ours(takes_resources=True),
            dask.annotate(workers=where),
        ):
            futures: list[Any] = self._contact.client.get(tasks, ends, sync=False)
        return futures
