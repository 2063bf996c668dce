"""What members of a gang keep for each other: state that only one replica has.

Every member sends what a step made of it to the member that mirrors the replica, after the updates
and before anybody stores them: state and mirror of a replica always are of the same steps.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.cluster.worker.versions import StepArrays, Versions
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.copies import values_on
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.payload import bytes_of_values, values_in
from dpexec.engine.exchange.shared import Bytes
from dpexec.engine.exchange.wire import Tag

__all__ = ["Mirroring"]

_NUMBER = (1 << 32) + 1  # behind those of collectives and of the barrier

_Item = tuple[str, int]
"""A variable of a device."""


class Mirroring:
    """The mirrors of a plan, as one member sees them.

    Args:
        group: the gang.
        plan: the plan.
        mirrored: names of what is mirrored, per device.
        fed: names of what is fed that also sets a variable.
    """

    def __init__(
        self,
        group: Group,
        plan: Plan,
        mirrored: Sequence[Collection[str]],
        fed: Collection[str],
    ) -> None:
        self._group = group
        self._to: dict[int, list[_Item]] = {}
        self._from: set[int] = set()
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
            if home == group.rank:
                self._to.setdefault(ranks[buddy], []).extend((name, device) for name in made)
            else:
                self.kept.append(device)
                self._from.add(home)

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
        came: dict[int, Bytes] = {}

        def place(other: int, nbytes: int) -> list[memoryview]:
            came[other] = self._group.own(("mirror", other), nbytes)[:nbytes]
            return [came[other].data]

        self._group.exchange(
            tag,
            {other: list(self._made(envs, items)) for other, items in self._to.items()},
            {other: functools.partial(place, other) for other in self._from},
        )
        found: dict[int, dict[str, Any]] = {device: {} for device in self.kept}
        for other, memory in came.items():
            member = self._group.members[other].name
            for (name, device), value in values_in(memory, member, tag).items():
                found[device][name] = value
        for device, values in found.items():
            mirrors[device].commit(step, values, StepArrays())

    def _made(self, envs: Sequence[Env], items: Sequence[_Item]) -> Iterator[memoryview]:
        """What a step made of some variables; it may have left some as they were."""
        made = {(n, device): envs[device][n] for n, device in items if n in envs[device]}
        return bytes_of_values(values_on(CPUPlace(), made))
