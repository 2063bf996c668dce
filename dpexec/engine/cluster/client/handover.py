"""Values of replicas that the client reads or sets, or that go from one run to another.

Members of a gang take orders for it, like those to make steps. While there are none, as in mode
tasks, or when a step has failed, dask tasks read and set values.

Programs that are trained in turn, such as the two of a GAN, read what the other one has written.
Each has replicas of its own. A worker copies variables that are equal on all replicas from those of
one run to those of the other. Variables that differ from replica to replica come to the client, and
go from there to all members.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpexec.engine.cluster.client.gang_runner import GangRunner
from dpexec.engine.cluster.gang_messages import Handover, OtherRun
from dpexec.engine.cluster.worker import state as cluster_state
from dpexec.engine.core.errors import WorkerLostError
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.run.fetch import host_copy

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.recovery import Recovery
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup
    from dpexec.engine.cluster.client.task_runner import TaskRunner

__all__ = ["Holder", "RemoteValue", "hand_over"]

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
        """The members, if they take orders, nothing is lost, and no steps are under way."""
        runner = self._runner()
        if not isinstance(runner, GangRunner) or not runner.is_open:
            return None
        return runner if self.recovery.is_calm and self.group.filled else None

    def pull(self, wanted: Mapping[int, Sequence[str]]) -> dict[int, dict[str, Any]]:
        """Values that replicas have, on the host, by device; what no step has written is left out.

        Args:
            wanted: names of variables, by device.

        Raises:
            StateLostError: the state is lost.
            EnforceNotMet: a step that was only ordered has failed.
        """

        def load() -> dict[int, dict[str, Any]]:
            busy = self.recovery.busy
            if busy.acquire(blocking=False):  # else another thread may be ordering steps
                try:
                    found = self.read(wanted)
                finally:
                    busy.release()
                if found is not None:
                    return found
            address = self.group.homes.address
            names = [name for own in wanted.values() for name in own]
            calls = [(address[device], (device, wanted[device])) for device in wanted]
            what = names[0] if len(names) == 1 else f"{len(names)} variables"
            loaded = self.group.call(cluster_state.values, calls, f"to read {what}")
            pairs = zip(wanted, loaded, strict=True)
            return {d: {n: host_copy(value) for n, value in own.items()} for d, own in pairs}

        return self.recovery.read(load)

    def pull_several(self, sources: Sequence[RemoteValue]) -> list[Any]:
        """:meth:`pull` for the values that several tensors get."""
        wanted: dict[int, list[str]] = {}
        for source in sources:
            wanted.setdefault(source.device, []).append(source.name)
        found = self.pull(wanted)
        return [found[source.device].get(source.name) for source in sources]

    def read(self, wanted: Mapping[int, Sequence[str]]) -> dict[int, dict[str, Any]] | None:
        """Values that members have, on the host, by device; None if they take no orders.

        Args:
            wanted: names of variables, by device. The caller holds the lock of the run.
        """
        gang = self.gang
        if gang is None:
            return None
        shares = [{d: wanted[d] for d in m.devices if d in wanted} for m in gang.members]
        base = self.group.complete
        answers = gang.hand_over([Handover(base, share, None, {}, {}) for share in shares])
        if answers is None:
            return None
        # arrays lie in the memory of messages
        return {d: {n: host_copy(value) for n, value in answers[d].items()} for d in wanted}

    def store(self, values: Sequence[Mapping[str, Any]]) -> None:
        """Set variables of replicas, and of the mirrors of their own state.

        A worker takes all values in one message, so that equal values of its replicas are one
        array.

        Args:
            values: by device. The caller holds the lock of the run.
        """
        group, gang = self.group, self.gang
        given = {w: {d: values[d] for d in devices} for w, devices in group.homes.workers.items()}
        mirrored: dict[str, dict[int, dict[str, Any]]] = {}
        for device, worker in group.mirrors:
            kept = {n: value for n, value in values[device].items() if n in group.own[device]}
            mirrored.setdefault(worker, {})[device] = kept
        if gang is not None:
            parts = [(given[m.worker], mirrored.get(m.worker, {})) for m in gang.members]
            orders = [Handover(group.complete, {}, None, *part) for part in parts]
            if gang.hand_over(orders) is not None:
                return
        calls: list[tuple[str, tuple[Any, ...]]] = [(w, (False, part)) for w, part in given.items()]
        calls += [(worker, (True, part)) for worker, part in mirrored.items()]
        group.call(cluster_state.store, calls, "to take values")


@dataclass(frozen=True, slots=True)
class RemoteValue:
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
        """Fetch the value, see :meth:`Holder.pull`; None if there is none."""
        return self.holder.pull({self.device: [self.name]})[self.device].get(self.name)

    @property
    def together(self) -> Callable[[Sequence[RemoteValue]], list[Any]]:
        """Fetches several values of the same run."""
        return self.holder.pull_several


def hand_over(
    wanted: Mapping[str, RemoteValue], reads: Sequence[Collection[str]], to: Holder, each_own: bool
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
        except WorkerLostError as lost:
            to.recovery.suspect(lost)
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
        here = self._to.gang
        if self._from.gang is None or here is None:
            return False
        one, other = self._from.group, self._to.group
        differ = frozenset[str]().union(*one.own, *other.own)
        near = other.homes.workers.keys() <= one.homes.workers.keys()
        near = near and all(member.gpu is None for member in here.members)
        through = {n: device for n, device in sources.items() if n in differ or not near}
        epoch = one.epoch
        found = self._read(through) if through else [{} for _ in self._reads]
        if found is None or epoch != one.epoch:  # replicas have moved meanwhile
            return False
        alike = sources.keys() - through.keys()
        return here.hand_over([*self._orders(here, alike, found)]) is not None

    def _read(self, sources: Mapping[str, int]) -> _Given | None:
        """Values for each device of the run that takes them; None if some cannot be read."""
        if self._each_own:
            wanted = {d: [n for n in sources if n in names] for d, names in enumerate(self._reads)}
        else:
            wanted = {d: [n for n in sources if sources[n] == d] for d in sources.values()}
        found = self._from.pull(wanted)
        if any(n not in found[d] for d, names in wanted.items() for n in names):
            return None
        return [
            {n: found[d if self._each_own else sources[n]][n] for n in sources if n in names}
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
            copied = OtherRun(one.epoch, one.complete, device, mine) if alike else None
            values = {d: given[d] for d in member.devices if given[d]}
            yield Handover(other.complete, {}, copied, values, mirrored)
