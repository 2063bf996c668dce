"""Chooses the workers that add up gradients, so that it takes the least time.

Values are added up in the order of the replicas, ``((g0 + g1) + g2) + ...``, wherever that is done.
So sums have the same bits as in one process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.compile.plans.bucket_size import Link
from dpexec.engine.compile.plans.collectives import NodeSum, sums_of
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.spec import Spec

__all__ = ["Adder", "Along", "Divided", "way_of"]


@dataclass(frozen=True)
class Adder:
    """A worker that adds values up.

    Args:
        device: a replica of this worker.
        adds: the replicas whose values it adds to the sum of the adder before it.
        gives: the replica under which the sum is stored.
    """

    device: int
    adds: tuple[int, ...]
    gives: int


@dataclass(frozen=True)
class Along:
    """Each worker adds its replicas to the sum of the workers before it, and sends one value.

    Args:
        adders: the workers.
    """

    adders: tuple[Adder, ...]


@dataclass(frozen=True)
class Divided:
    """One worker of every host adds up a share of the elements, so that all links carry the same.

    Args:
        devices: the replicas on whose workers the shares are added up.
        names: names of the values.
        made: names of the sums.
        gives: the replica under which shares of sums are stored.
    """

    devices: tuple[int, ...]
    names: tuple[str, ...]
    made: tuple[str, ...]
    gives: int


class _Way(NamedTuple):
    """A way to add up, and what it costs.

    Args:
        copies: how many values go through the busiest link, one after another.
        tasks: how many more dask tasks it takes than one worker that does everything.
        who: the workers and their work; None: one worker does everything.
    """

    copies: float
    tasks: int
    who: Along | Divided | None


def way_of(
    plan: Plan, task: Task, homes: HomeTable, home: int, link: Callable[[], Link]
) -> Along | Divided | None:
    """The workers that do the work of a task.

    Usually one worker takes the values of all replicas, and sends the sums. If workers have several
    replicas, or are on several hosts, and values are large, other ways take less time.

    Args:
        plan: the plan that runs.
        task: one of its tasks.
        homes: the workers of the replicas.
        home: the device on whose worker the task runs if one worker does it.
        link: gives the speed of the links between workers; called only if it matters.

    Returns:
        The workers and their work; None if one worker does all of it.
    """
    if not task.nodes[0].does.of_gradients:
        return None
    sums = [total for node in task.nodes for total in sums_of(node, plan.missing)]
    ways = _ways(plan, sums, homes, home)
    if len(ways) == 1:
        return None
    nbytes, between = _nbytes(plan, sums), link()
    return min(ways, key=lambda way: between.seconds(way.copies * nbytes, way.tasks)).who


def _ways(plan: Plan, sums: Sequence[NodeSum], homes: HomeTable, home: int) -> list[_Way]:
    """The ways in which sums can be added up; the first is that one worker does everything."""
    first = sums[0]
    wanted = {homes.address[device] for device in first.targets}

    def copies(at: str) -> int:
        """How many values and sums go to and from a worker."""
        return sum(homes.address[d] != at for d in first.sources) + len(wanted - {at})

    alone = copies(homes.address[home])
    ways = [_Way(alone, 0, None)]
    if any((s.sources, s.targets) != (first.sources, first.targets) for s in sums):
        return ways
    if along := _along(first, homes, home):
        hops = len(along.adders) - 1
        last = homes.address[along.adders[-1].device]
        ways.append(_Way(hops + len(wanted - {last}), hops, along))
    if divided := _divided(plan, sums, homes):
        hosts = len(divided.devices)
        cuts = len(homes.workers) * (hosts - 2)  # the first cut joins the task that makes values
        ways.append(_Way(alone / hosts, cuts + hosts - 1, divided))
    return ways


def _along(total: NodeSum, homes: HomeTable, home: int) -> Along | None:
    """The workers in whose order a sum can be passed on; None if there is no such order."""
    runs = [list(run) for _, run in itertools.groupby(total.sources, lambda d: homes.address[d])]
    workers = [homes.address[run[0]] for run in runs]
    if total.name != total.made or not len(set(workers)) == len(workers) < len(total.sources):
        return None
    firsts = [home if home in run else run[0] for run in runs]
    return Along(
        tuple(Adder(d, tuple(run), total.targets[0]) for d, run in zip(firsts, runs, strict=True))
    )


def _divided(plan: Plan, sums: Sequence[NodeSum], homes: HomeTable) -> Divided | None:
    """The hosts among which sums are divided; None if they are sparse, or not of all for all."""
    hosts, first = tuple(homes.hosts), sums[0]
    everybody = list(range(len(homes.address)))
    if len(hosts) == 1 or not sorted(first.sources) == sorted(first.targets) == everybody:
        return None
    if any(_spec(plan, total.name).kind == VarType.SELECTED_ROWS for total in sums):
        return None
    names, made = tuple(total.name for total in sums), tuple(total.made for total in sums)
    return Divided(hosts, names, made, first.targets[0])


def _nbytes(plan: Plan, sums: Sequence[NodeSum]) -> int:
    """The bytes of one replica's dense values; the size of sparse ones is not known."""
    specs = [_spec(plan, total.name) for total in sums]
    dense = [spec for spec in specs if spec.kind != VarType.SELECTED_ROWS]
    return sum(abs(spec.size) * to_numpy(spec.dtype).itemsize for spec in dense)


def _spec(plan: Plan, name: str) -> Spec:
    return plan.graph.program.global_block().vars[name].spec
