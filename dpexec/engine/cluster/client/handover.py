"""Variables that go from one run to another on the same workers, without dask and the client.

Programs that are trained in turn, such as the two of a GAN, read what the other one has written.
Each has replicas of its own. A worker copies variables that are equal on all replicas from those of
one run to those of the other. Variables that differ from replica to replica come to the client, and
go from there to all members.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.cluster.client.gang_runner import GangRunner
from dpexec.engine.cluster.gang_messages import Handover, Others
from dpexec.engine.cluster.worker import state as cluster_state
from dpexec.engine.run.fetch import host_copy

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.recovery import Recovery
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup
    from dpexec.engine.cluster.client.task_runner import TaskRunner

__all__ = ["Away", "Holder", "hand_over"]

_Given = list[dict[str, Any]]
"""Values by device and name."""


class Holder:
    """A run whose replicas keep values on workers.

    Args:
        group: the replicas.
        recovery: reads again if workers are lost meanwhile.
        runner: orders steps.
    """

    def __init__(
        self, group: ReplicaGroup, recovery: Recovery, runner: GangRunner | TaskRunner
    ) -> None:
        self.group, self.recovery = group, recovery
        self._runner = weakref.ref(runner)  # tensors that are read later need it no more

    @property
    def gang(self) -> GangRunner | None:
        """The members, if values may be handed over now: nothing is lost, under way, or closed."""
        runner, recovery = self._runner(), self.recovery
        if not isinstance(runner, GangRunner) or not runner.is_open:
            return None
        if any(member.gpu is not None for member in runner.members):
            return None
        return runner if recovery.is_calm and self.group.filled else None

    def pull(self, device: int, name: str) -> Any:
        """The value that a replica has of a variable; None if none of its steps has written it."""

        def load() -> Any:
            calls = [(self.group.homes.address[device], (device, [name]))]
            return self.group.call(cluster_state.values, calls, f"to read {name}")[0].get(name)

        return host_copy(self.recovery.read(load))


@dataclass(frozen=True, slots=True)
class Away:
    """Delivers the value of a user's tensor, which a replica has.

    It must not know the user's scope, or tensor and scope would keep each other alive.

    Args:
        holder: the run that wrote it last.
        device: the replica whose value the user sees.
        name: of the variable.
    """

    holder: Holder
    device: int
    name: str

    def __call__(self) -> Any:
        """Fetch the value, see :meth:`Holder.pull`."""
        return self.holder.pull(self.device, self.name)


def hand_over(
    wanted: Mapping[str, Away], reads: Sequence[Collection[str]], to: Holder, each_own: bool
) -> set[str]:
    """Let members of a run take variables that other runs wrote.

    Args:
        wanted: where the variables are.
        reads: per device, names of those that it reads.
        to: the run that takes them. The caller holds its lock.
        each_own: whether devices have values of their own. Runs that share variables have one lock;
            between these a device takes the value of the same device, else the user's.

    Returns:
        Names of the variables that all members have now; others must go another way.

    Raises:
        EnforceNotMet: an operator failed in a step that another run had only ordered.
        ClusterError: that run has lost workers that cannot be replaced.
    """
    found: set[str] = set()
    by_holder: dict[Holder, dict[str, int]] = {}
    for name, away in wanted.items():
        by_holder.setdefault(away.holder, {})[name] = away.device
    for holder, sources in by_holder.items():
        busy = holder.recovery.busy
        if holder is to or not busy.acquire(blocking=False):  # it may be waiting for this run
            continue
        try:
            if (settle := holder.recovery.settle) is not None:
                settle()
            own = each_own and busy is to.recovery.busy
            if _Passage(holder, to, reads, own).bring(sources):
                found.update(sources)
        finally:
            busy.release()
    return found


class _Passage:
    """The way from one run to another; see :func:`hand_over`."""

    def __init__(
        self, holder: Holder, to: Holder, reads: Sequence[Collection[str]], each_own: bool
    ) -> None:
        self._from, self._to, self._reads, self._each_own = holder, to, reads, each_own

    def bring(self, sources: Mapping[str, int]) -> bool:
        """Bring variables; returns whether all members have all of them.

        Args:
            sources: by variable, the replica whose value the user sees.
        """
        there, here = self._from.gang, self._to.gang
        if there is None or here is None:
            return False
        one, other = self._from.group, self._to.group
        differ = frozenset[str]().union(*one.own, *other.own)
        near = other.homes.workers.keys() <= one.homes.workers.keys()
        through = {n: device for n, device in sources.items() if n in differ or not near}
        found = self._read(there, through) if through else [{} for _ in self._reads]
        if found is None:
            return False
        alike = sources.keys() - through.keys()
        return here.hand_over([*self._orders(here, alike, found)]) is not None

    def _read(self, gang: GangRunner, sources: Mapping[str, int]) -> _Given | None:
        """Values for each device of the run that takes them; None if some cannot be read."""
        if self._each_own:
            wanted = {d: [n for n in sources if n in names] for d, names in enumerate(self._reads)}
        else:
            wanted = {d: [n for n in sources if sources[n] == d] for d in sources.values()}
        base = self._from.group.complete
        orders = [
            Handover(base, {d: wanted[d] for d in m.devices if d in wanted}, None, {}, {})
            for m in gang.members
        ]
        answers = gang.hand_over(orders)
        if answers is None or any(
            n not in answers[d] for d, names in wanted.items() for n in names
        ):
            return None
        # arrays lie in the memory of messages
        values = {(d, n): np.array(answers[d][n]) for d, names in wanted.items() for n in names}
        return [
            {n: values[d if self._each_own else sources[n], n] for n in sources if n in names}
            for d, names in enumerate(self._reads)
        ]

    def _orders(
        self, gang: GangRunner, alike: Collection[str], given: _Given
    ) -> Iterator[Handover]:
        """The order of each member: to copy what is alike, and to take what it is given."""
        one, other = self._from.group, self._to.group
        for member in gang.members:
            device = one.homes.workers.get(member.worker, (0,))[0]
            mine = {d: [n for n in alike if n in self._reads[d]] for d in member.devices}
            mirrored = {
                d: {name: value for name, value in given[d].items() if name in other.own[d]}
                for d, worker in other.mirrors
                if worker == member.worker
            }
            copied = Others(one.epoch, one.complete, device, mine) if alike else None
            values = {d: given[d] for d in member.devices if given[d]}
            yield Handover(other.complete, {}, copied, values, mirrored)
