"""Copies that recorded steps of a cluster make of variables, before they update them.

A worker must be able to go back to the step before, so updates work on copies. Steps of machine
code mostly need none, or copy the rows that changed. Recorded steps run task by task and copy whole
variables: of large ones this takes most of the step, and is no wait for a scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from dpexec.viz.measured.activities import activities_of
from dpexec.viz.measured.graph_facts import GraphFacts
from dpexec.viz.measured.schedule import Schedule, Step
from dpexec.viz.pages.units import bytes_text, percent, seconds_text

_LEAST = 1 << 20
"""Bytes of a device; copies of fewer take less than a tenth of a millisecond."""

_UPDATES = "optimizer"  # so begin the names of tasks of updates

_SHARE = 0.1
"""The share of a step from which on copies are said to be a part of it."""


@dataclass(frozen=True)
class Copies:
    """What the devices of a cluster copy in a recorded step.

    Args:
        bytes: Bytes by device; those that copy little are left out.
        seconds: The time from when the first updates are ready until they begin, the longest of
            the devices; the median over the steps.
        share: Its share of the step.
    """

    bytes: dict[int, int]
    seconds: float = 0.0
    share: float = 0.0

    def why(self, task: str, device: int | None) -> str:
        """Why a task began late, in a clause; "" if it copied little or nothing before.

        Args:
            task: Its name.
            device: Its device.
        """
        if device is None or device not in self.bytes or not task.startswith(_UPDATES):
            return ""
        return f"it first copied what it updates, {bytes_text(self.bytes[device])}"

    def __str__(self) -> str:
        """A sentence; "" if copies hardly matter."""
        if self.share < _SHARE:
            return ""
        most = bytes_text(max(self.bytes.values()))
        return (
            f"{percent(self.share)} of a step, {seconds_text(self.seconds)}, pass before updates "
            f"begin: steps that are recorded on a cluster first copy the variables that they "
            f"update, {most} a device. Other steps mostly need no such copies, and take less."
        )


def copies_of(schedule: Schedule) -> Copies:
    """Return what recorded steps of a cluster copied; nothing elsewhere. It is found once."""
    return schedule.once(("copies", 0), lambda: _copies_of(schedule))


def _copies_of(schedule: Schedule) -> Copies:
    facts = schedule.facts
    if facts is None or schedule.trace.meta.get("scheduler") != "distributed":
        return Copies({})
    sizes = _updated(facts)
    if not sizes:
        return Copies({})
    late = [(_late(schedule, step, sizes), step.seconds) for step in schedule.middle]
    shares = [seconds / whole for seconds, whole in late if whole]
    return Copies(sizes, median(s for s, _ in late), median(shares or [0.0]))


def _updated(facts: GraphFacts) -> dict[int, int]:
    """Bytes of the variables that the updates of each device overwrite, if they are many."""
    found: dict[int, dict[str, int]] = {}
    for node in facts.nodes:
        if node["role"] == "optimize" and node["device"] is not None:
            for var in (facts.vars[number] for number in node["outputs"]):
                if var["persistable"]:
                    found.setdefault(node["device"], {})[var["name"]] = var["bytes"] or 0
    sums = {device: sum(sizes.values()) for device, sizes in found.items()}
    return {device: size for device, size in sums.items() if size >= _LEAST}


def _late(schedule: Schedule, step: Step, sizes: dict[int, int]) -> float:
    """How long the first updates of a step were ready before they began."""
    activities = activities_of(schedule, step)
    seen: set[int] = set()
    longest = 0.0
    for at, one in enumerate(activities.all):
        run = activities.runs.runs[one.run]
        device = run.piece.event.device
        is_update = activities.is_first(at) and run.name.startswith(_UPDATES)
        if is_update and device in sizes and device not in seen:
            seen.add(device)
            longest = max(longest, activities.delays[at])
    return longest
