"""What members of a gang keep for each other: state that only one replica has.

Every member sends what a step made of it to the member that mirrors the replica, after the updates
and before anybody stores them: state and mirror of a replica always are of the same steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.cluster.worker.versions import StepArrays, Versions
from dpexec.engine.compile.env import Env
from dpexec.engine.compile.plan import Plan
from dpexec.engine.core.dtypes import to_numpy
from dpexec.engine.exchange.buckets import Sum
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.payload import Item, swap
from dpexec.engine.exchange.staged import on_host
from dpexec.engine.exchange.wire import Tag
from dpexec.engine.ir.spec import Spec

__all__ = ["Mirroring"]

_NUMBER = (1 << 32) + 1  # behind those of collectives and of the barrier


class Mirroring:
    """The mirrors of a plan, as one member sees them.

    Args:
        group: the gang.
        plan: the plan.
        specs: of its values, per device.
        mirrored: names of what is mirrored, per device.
        fed: names of what is fed that also sets a variable.
    """

    def __init__(
        self,
        group: Group,
        plan: Plan,
        specs: Sequence[Mapping[str, Spec]],
        mirrored: Sequence[Collection[str]],
        fed: Collection[str],
    ) -> None:
        self._group = group
        self._to: dict[int, list[Item]] = {}
        self._from: dict[int, list[Item]] = {}
        self.kept: list[int] = []
        """The devices whose mirrors are here."""
        homes = HomeTable([group.members[group.home[d]].worker for d in range(len(mirrored))])
        ranks = {member.worker: rank for rank, member in enumerate(group.members)}
        written = {*plan.commits, *plan.overwritten}
        for device, names in enumerate(mirrored):
            buddy, home = homes.buddy(device), group.home[device]
            if not names or buddy is None or group.rank not in (home, ranks[buddy]):
                continue
            made = [name for name in sorted(names) if (device, name) in written or name in fed]
            items = [(_of_one(name, device, specs[device][name]), device) for name in made]
            if home == group.rank:
                self._to.setdefault(ranks[buddy], []).extend(items)
            else:
                self.kept.append(device)
                self._from.setdefault(home, []).extend(items)

    def exchange(self, step: int, envs: Sequence[Env], mirrors: Mapping[int, Versions]) -> None:
        """Send what a step made here to the mirrors, and store what is mirrored here.

        Args:
            step: its number.
            envs: the values per device.
            mirrors: those that are here, by device.

        Raises:
            GangError: a member failed, is gone, or does not answer.
        """
        tag = Tag(step, _NUMBER, "mirrors of what only one replica has")
        found: dict[int, dict[str, Any]] = {device: {} for device in self.kept}
        sent = on_host(envs, [item for items in self._to.values() for item in items])
        came = swap(self._group, "mirror", self._to, self._from, sent, tag)
        for (name, device), value in came.items():
            found[device][name] = value
        for device, values in found.items():
            mirrors[device].commit(step, values, StepArrays())


def _of_one(name: str, device: int, spec: Spec) -> Sum:
    """A value that is just sent."""
    return Sum(name, (device,), name, (), to_numpy(spec.dtype), tuple(spec.shape), None)
