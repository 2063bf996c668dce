"""Mirrors: copies of own state of replicas that members of a gang keep for each other.

Every member sends the new values of a step to the member that mirrors the replica, after the
updates and before any member stores them. So state and mirror of a replica are always of the same
steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.cluster.worker.versions import StepArrays, Versions
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.core.copies import values_on
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.messages import Message, decode, encode
from dpexec.engine.exchange.wire import Tag

__all__ = ["Mirroring"]

_NUMBER = (1 << 32) + 1  # greater than the numbers of collectives and of the barrier

_Item = tuple[str, int]
"""A variable of a device."""


class Mirroring:
    """The mirrors of a plan, as one member sees them.

    Args:
        group: the gang.
        plan: the plan that runs.
        mirrored: names of mirrored variables, per device.
        fed: names of feeds that also set a persistable variable.
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
        """The devices that this member mirrors."""
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

    def exchange(
        self, step: int, new_value: Callable[[int, str], Any], mirrors: Mapping[int, Versions]
    ) -> None:
        """Send the step's new values to their mirrors, and store those that come for mirrors here.

        Args:
            step: number of the step.
            new_value: gives the new value of a variable of a device; None: the step left it as it
                was.
            mirrors: the mirrors of this member, by device.

        Raises:
            GangError: a member failed, is gone, or does not answer.
        """
        if not self._to and not self._from:
            return
        tag = Tag(step + 1, _NUMBER, "mirrors of what only one replica has")
        sends = {other: encode(_packed(new_value, items)) for other, items in self._to.items()}
        found: dict[int, dict[str, Any]] = {device: {} for device in self.kept}
        for other, data in self._group.talk(tag, sends, self._from).items():
            message = decode(data, self._group.members[other].name)
            for (name, device), value in message.values.items():
                found[device][name] = value
        for device, values in found.items():
            # Values stay in the message, unless older ones would keep earlier messages, too.
            stay = values.keys() >= mirrors[device].values.keys()
            copied, placed = ({}, values) if stay else (values, {})
            mirrors[device].commit(step, copied, StepArrays(), placed)


def _packed(new_value: Callable[[int, str], Any], items: Sequence[_Item]) -> Message:
    """The message with the new values of some variables; unchanged ones are left out."""
    found = {(name, device): new_value(device, name) for name, device in items}
    known = {item: value for item, value in found.items() if value is not None}
    return Message(values=values_on(CPUPlace(), known))
