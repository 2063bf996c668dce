"""Which workers add up what, of values that all replicas have: as few bytes and hops as possible.

Sums go in the order of the replicas, ``((g0 + g1) + g2) + ...``, wherever they are computed, so
that they have the bits that they have in one process.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from dpexec.core.dtypes import VarType, to_numpy
from dpexec.runtime.bucket_size import TASKS
from dpexec.runtime.collectives import sums_of
from dpexec.runtime.partition import Task
from dpexec.runtime.plan import Plan
from dpexec.runtime.schedulers.home_table import HomeTable

__all__ = ["Adder", "adders_of"]


@dataclass(frozen=True)
class Adder:
    """A worker that adds values up.

    Args:
        device: the replica for which, and so on whose worker.
        adds: the replicas whose values it adds to what the adder before it has.
        gives: the replica in whose place it puts the sum.
    """

    device: int
    adds: tuple[int, ...]
    gives: int


def adders_of(plan: Plan, task: Task, homes: HomeTable, home: int) -> list[Adder]:
    """Who does the work of a collective task, one after another.

    Usually one worker takes the values of all replicas. But where workers have several of them and
    much to send, each adds its own to what those before it have added up: a single value leaves
    it, for one more hop on the way.

    Args:
        plan: what runs.
        task: one of its collectives.
        homes: the workers of the replicas.
        home: the device at whose worker the task runs otherwise.

    Returns:
        The workers; nothing if one does all of it.
    """
    chain = _chain(plan, task, homes, home)
    if not chain:
        return []
    counts = [len(adder.adds) for adder in chain]
    at = homes.address[home]
    alone = sum(c for c, a in zip(counts, chain, strict=True) if homes.address[a.device] != at)
    wanted = {homes.address[d] for *_, devices in _sums(plan, task) for d in devices}
    last = homes.address[chain[-1].device]
    less = alone + len(wanted - {at}) - (len(chain) - 1 + len(wanted - {last}))
    saved = less * _nbytes(plan, task) / TASKS.bandwidth
    return chain if saved > (len(chain) - 1) * TASKS.latency else []


def _chain(plan: Plan, task: Task, homes: HomeTable, home: int) -> list[Adder]:
    """The workers along which sums can go; nothing if they cannot."""
    if task.nodes[0].kind not in ("all_reduce", "reduce"):
        return []
    sums = _sums(plan, task)
    _, sources, _, receivers = sums[0]
    if any(found != sources or name != made for name, found, made, _ in sums):
        return []
    runs = [list(run) for _, run in itertools.groupby(sources, lambda d: homes.address[d])]
    workers = [homes.address[run[0]] for run in runs]
    if len(set(workers)) != len(workers) or len(workers) == len(sources):
        return []
    firsts = [home if home in run else run[0] for run in runs]
    return [Adder(d, tuple(run), receivers[0]) for d, run in zip(firsts, runs, strict=True)]


def _sums(plan: Plan, task: Task) -> list[tuple[str, list[int], str, list[int]]]:
    return [total for node in task.nodes for total in sums_of(node, plan.missing)]


def _nbytes(plan: Plan, task: Task) -> int:
    """The bytes of the values of one replica; sparse ones, of which nobody knows, do not count."""
    variables = plan.graph.program.global_block().vars
    specs = [variables[name].spec for name, *_ in _sums(plan, task)]
    dense = [spec for spec in specs if spec.kind != VarType.SELECTED_ROWS]
    return sum(abs(spec.size) * to_numpy(spec.dtype).itemsize for spec in dense)
