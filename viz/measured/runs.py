"""The runs of a step (tasks, and events outside tasks) and their dependencies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

from dpexec.viz.measured.graph_facts import without_device
from dpexec.viz.measured.nesting import TOLERANCE
from dpexec.viz.measured.schedule import DATA, Schedule, Slice, Step


@dataclass(frozen=True, slots=True)
class Run:
    """A task that ran, or an event outside of one.

    Args:
        piece: Its slice.
        key: Key of its task in the graph; None if it is not a task.
        devices: The devices that take part.
    """

    piece: Slice
    key: str | None
    devices: frozenset[int]

    @property
    def start(self) -> float:
        """Seconds."""
        return self.piece.event.start

    @property
    def stop(self) -> float:
        """Seconds."""
        return self.piece.event.stop

    @property
    def name(self) -> str:
        """Its name, without the number of its task."""
        event = self.piece.event
        if self.is_transfer:
            return f"the transfer of {event.name.split('-')[0]}"
        return event.name if event.kind != "task" else event.name.split("-")[0]

    @property
    def worker(self) -> str | None:
        """The worker of a cluster that ran it."""
        return self.piece.event.args.get("worker")

    @property
    def is_transfer(self) -> bool:
        """Whether it brings values from another worker."""
        return self.piece.event.kind == "transfer"

    @property
    def keys(self) -> list[str]:
        """Its task; for a transfer, the tasks whose values it brings."""
        if self.is_transfer:
            return self.piece.event.args.get("keys") or [self.piece.event.key]
        return [] if self.key is None else [self.key]

    @property
    def is_feed(self) -> bool:
        """Whether it brings feeds in."""
        return self.piece.event.kind == "feed"

    @property
    def is_data(self) -> bool:
        """Whether it brings feeds in or fetches out."""
        return self.piece.event.kind in DATA


class StepRuns:
    """The runs of a step in order of their start, and their dependencies.

    Args:
        schedule: The trace.
        step: One of its steps.
    """

    def __init__(self, schedule: Schedule, step: Step) -> None:
        self.schedule, self.step = schedule, step
        pieces = [schedule.by_id[index] for index in step.slices]
        self.parts: dict[int, list[Slice]] = {}
        for piece in pieces:
            if piece.parent is not None:
                self.parts.setdefault(piece.parent, []).append(piece)
        self.runs = [self._run(piece) for piece in pieces if piece.depth == 0]
        self._divide()

    def _run(self, piece: Slice) -> Run:
        device, facts = piece.event.device, self.schedule.facts
        key = None
        if facts is not None:
            key = piece.event.key
            if key not in facts.tasks:
                pieces = (*self.parts.get(piece.id, ()), piece)
                nodes = (p.event.node for p in pieces if p.event.node is not None)
                key = next((facts.task_of[node] for node in nodes if node in facts.task_of), None)
        if device is not None:
            return Run(piece, key, _alone(device))
        if piece.event.kind == "transfer":
            here = self.schedule.devices_of_thread.get(piece.event.thread)
            return Run(piece, key, here or frozenset(self.schedule.devices))
        if facts is not None and key is not None:
            taking = [facts.participants(node) for node in facts.tasks[key]["nodes"]]
            return Run(piece, key, frozenset().union(*taking))
        return Run(piece, key, frozenset(self.schedule.devices))

    def _divide(self) -> None:
        """Leave to a collective that ran on every worker of a gang the devices of its worker."""
        homes: dict[str, set[int]] = {}
        everywhere: dict[str, set[str]] = {}  # by key of a task of all devices: its workers
        for run in self.runs:
            device, worker = run.piece.event.device, run.worker
            if worker is not None and device is not None:
                homes.setdefault(worker, set()).add(device)
            elif worker is not None and run.key is not None and not run.is_transfer:
                everywhere.setdefault(run.key, set()).add(worker)
        for index, run in enumerate(self.runs):
            if run.piece.event.device is None and len(everywhere.get(run.key or "", ())) > 1:
                here = run.devices & homes.get(run.worker or "", set())
                self.runs[index] = replace(run, devices=here or run.devices)

    @property
    def is_ordered(self) -> bool:
        """Whether the trace says what its tasks wait for."""
        return self.schedule.facts is not None and bool(self.schedule.facts.tasks)

    @cached_property
    def before(self) -> list[list[int]]:
        """By position of a run: the runs that it depends on, according to the graph.

        Tasks without predecessors wait for the feeds, and fetches for all tasks. A transfer waits
        for the tasks that made its values, and tasks that need them wait for the transfer to their
        worker.
        """
        facts = self.schedule.facts
        if facts is None:
            return [[] for _ in self.runs]
        made: dict[str, list[int]] = {}
        moved: dict[str, list[int]] = {}
        for index, run in enumerate(self.runs):
            for key in run.keys:
                (moved if run.is_transfer else made).setdefault(key, []).append(index)
        feeds = [i for i, run in enumerate(self.runs) if run.piece.event.kind == "feed"]

        def results(key: str, run: Run) -> list[int]:
            """The runs of a task; of one that every worker of a gang ran, those of its worker."""
            found = made.get(key, [])
            return [i for i in found if self.runs[i].worker == run.worker] or found

        def sources(run: Run) -> list[int]:
            if run.piece.event.kind == "fetch":
                return [i for members in made.values() for i in members]
            if run.is_transfer:
                return [i for key in run.keys for i in made.get(key, ())]
            if run.key is None:
                return []
            keys = facts.tasks[run.key]["after"]
            came = [i for key in keys for i in moved.get(key, ()) if self._before(i, run)]
            fed = [i for i in feeds if self.runs[i].devices & run.devices]
            return [*(i for key in keys for i in results(key, run)), *came, *fed]

        return [sources(run) for run in self.runs]

    def _before(self, index: int, run: Run) -> bool:
        """Whether a transfer brought values to the place of a run, before the run."""
        transfer = self.runs[index]
        return transfer.stop <= run.start + TOLERANCE and bool(transfer.devices & run.devices)

    def signature(self, run: Run) -> object:
        """A run's identity without the device, equal for its twins on other devices."""
        facts = self.schedule.facts
        if facts is not None and run.key is not None and not run.is_transfer:
            return facts.task_signature(run.key)
        return run.piece.event.kind, without_device(run.piece.event.key)

    def twin(self, run: Run, device: int) -> Run | None:
        """The twin of a run on a device."""
        same = self._by_signature.get(self.signature(run), ())
        there = [other for other in same if other.piece.event.device == device]
        return next((other for other in there if other.key == run.key), next(iter(there), None))

    @cached_property
    def _by_signature(self) -> dict[object, list[Run]]:
        found: dict[object, list[Run]] = {}
        for run in self.runs:
            found.setdefault(self.signature(run), []).append(run)
        return found


@cache
def _alone(device: int) -> frozenset[int]:
    return frozenset([device])


def runs_of(schedule: Schedule, step: Step) -> StepRuns:
    """Return the runs of a step; they are computed once."""
    return schedule.once(("runs", step.number), lambda: StepRuns(schedule, step))
