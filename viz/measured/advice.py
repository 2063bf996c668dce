"""What to change, in sentences: the largest parts of a step that need not be there."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from dpexec.viz.measured import intervals
from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.pages.units import percent

if TYPE_CHECKING:
    from dpexec.viz.measured.analysis import DeviceUse, StepTime, Wait
    from dpexec.viz.measured.critical_path import CriticalPath

WORTH_SAYING = 0.03
"""The share of a step from which on something is worth a sentence."""

_AT_MOST = 6
_OF_ONE_CAUSE = 2
_FUSED = "machine code (the `fast` extra) and BuildStrategy.enable_auto_fusion make fewer of them"


@dataclass(frozen=True)
class Advice:
    """What to change.

    Args:
        text: A sentence.
        nodes: The operators of the graph that it speaks of, where it speaks of some.
        share: Of the time of the steps: what there is to gain at most.
    """

    text: str
    nodes: tuple[int, ...]
    share: float

    def __str__(self) -> str:
        return self.text


def advice(
    schedule: Schedule,
    steps: Sequence[StepTime],
    devices: Sequence[DeviceUse],
    waits: Sequence[Wait],
    path: CriticalPath,
) -> tuple[Advice, ...]:
    """Return what to change: what need not be there, largest first, then the longest operator.

    Each sentence names its share of the time of the steps. Shares of different sentences may
    overlap: what one device waits for, another one does.
    """
    found = [
        *_waits(waits, schedule),
        *_devices(devices),
        *_between_steps(steps),
        *_too_few_cores(schedule, steps),
    ]
    found.sort(key=lambda one: -one.share)
    found = [*found[:_AT_MOST], *_hot_spot(schedule, steps, path)]
    return tuple(one for one in found if one.share >= WORTH_SAYING)


def _waits(waits: Sequence[Wait], schedule: Schedule) -> Iterator[Advice]:
    said: dict[str, int] = {}
    for wait in waits:
        said[wait.cause] = said.get(wait.cause, 0) + 1
        if said[wait.cause] > _OF_ONE_CAUSE:
            continue
        nodes = _nodes_of(wait, schedule)
        who = f"device {wait.device} waits {percent(wait.share)} of the step"
        where = "" if wait.on_device is None else f" of device {wait.on_device}"
        if wait.cause == "straggler":
            longer = (
                f"takes {wait.ratio:.1f} times as long" if (wait.ratio or 0) > 1.05 else "is late"
            )
            text = (
                f"{who} for device {wait.on_device}, whose {wait.task} {longer}: see what else "
                "runs on its core, or whether it gets more samples"
            )
        elif wait.cause == "dependency":
            text = f"{who} for {wait.task}{where}, whose result it needs"
        elif wait.cause == "no_free_thread":
            threads = schedule.trace.meta.get("num_threads")
            now = f" (now {threads})" if threads else ""
            text = (
                f"{who} for a thread that could start {wait.task}: all are at work; raise "
                f"ExecutionStrategy.num_threads{now}, if there are cores for them"
            )
        elif wait.cause == "scheduler":
            text = (
                f"{who} until {wait.task} starts, though it is ready and a thread is free: larger "
                "batches make this smaller"
            )
        else:
            continue
        yield Advice(text, nodes, wait.share)


def _nodes_of(wait: Wait, schedule: Schedule) -> tuple[int, ...]:
    """The operators of the task that a device waited for; its name lacks the number."""
    tasks = schedule.facts.tasks.values() if schedule.facts else ()
    named = [task["nodes"] for task in tasks if task["key"].partition("-")[0] == wait.task]
    return tuple(node for nodes in named for node in nodes)


def _devices(devices: Sequence[DeviceUse]) -> Iterator[Advice]:
    if not devices:
        return
    worst = max(devices, key=lambda use: use.communication)
    share = worst.communication
    hidden = f" ({percent(worst.overlap)} of all its communication)" if worst.overlap else ""
    yield Advice(
        f"communication that no computation hides{hidden} takes {percent(share)} of the step of "
        f"device {worst.device}: larger batches need it less often, and Reduce mode spreads it",
        (),
        share,
    )
    worst = max(devices, key=lambda use: use.data)
    yield Advice(
        f"feeding and fetching take {percent(worst.data)} of the step of device {worst.device}: "
        "fetch less often, and let a DataLoader prepare batches",
        (),
        worst.data,
    )
    worst = max(devices, key=lambda use: use.overhead)
    yield Advice(
        f"device {worst.device} spends {percent(worst.overhead)} of the step between the operators "
        f"of its tasks: {_FUSED}",
        (),
        worst.overhead,
    )


def _between_steps(steps: Sequence[StepTime]) -> Iterator[Advice]:
    gaps = sum(step.gap or 0.0 for step in steps)
    whole = gaps + sum(step.seconds for step in steps)
    share = gaps / whole if whole else 0.0
    yield Advice(
        f"{percent(share)} of the whole time passes between the steps, outside of the network: a "
        "DataLoader with use_double_buffer reads while the step runs",
        (),
        share,
    )


def _too_few_cores(schedule: Schedule, steps: Sequence[StepTime]) -> Iterator[Advice]:
    meta = schedule.trace.meta
    cores, places = meta.get("cpus"), meta.get("places") or ()
    if not cores or meta.get("scheduler") == "distributed" or "CUDA" in str(places):
        return
    first = steps[0].step if steps else 0
    outer = [p for p in schedule.slices if p.depth == 0 and p.event.step >= first]
    times = [(p.event.start, p.event.stop) for p in outer]
    crowded = intervals.length(intervals.at_least(times, cores + 1))
    share = crowded / sum(step.seconds for step in steps) if crowded else 0.0
    yield Advice(
        f"during {percent(share)} of the step more tasks run than there are processors ({cores}), "
        f"which slows all of them: {cores} replicas would do as much",
        (),
        share,
    )


def _hot_spot(
    schedule: Schedule, steps: Sequence[StepTime], path: CriticalPath
) -> Iterator[Advice]:
    """The type of operator that takes longest on the critical path, in the time it usually takes.

    What took long in this step alone was interrupted; there is nothing to save.
    """
    usual = _usual_times(schedule, {step.step for step in steps})
    times: dict[str, float] = {}
    made_by: dict[str, dict[int, None]] = {}
    for index in path.slices:
        piece = schedule.by_id[index]
        if piece.event.kind == "op":
            name = piece.event.name
            times[name] = times.get(name, 0.0) + usual.get(_operator(piece), piece.own)
            made_by.setdefault(name, {}).update(dict.fromkeys(schedule.nodes_of(piece)))
    whole = median(step.seconds for step in steps) if steps else 0.0
    if not times or not whole:
        return
    name = max(times, key=times.__getitem__)
    share = times[name] / whole
    yield Advice(
        f"{name} alone is {percent(share)} of the step on the critical path: every millisecond "
        "saved there is one of the step",
        tuple(made_by[name]),
        share,
    )


def _usual_times(schedule: Schedule, steps: Collection[int]) -> dict[Hashable, float]:
    """Seconds of their own that operators take in some steps, in the median."""
    found: dict[Hashable, list[float]] = {}
    for piece in schedule.slices:
        if piece.event.kind == "op" and piece.event.step in steps:
            found.setdefault(_operator(piece), []).append(piece.own)
    return {operator: median(times) for operator, times in found.items()}


def _operator(piece: Slice) -> Hashable:
    """What is the same in every step."""
    return piece.event.name, piece.event.node, piece.event.device
