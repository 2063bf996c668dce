"""Monitoring of training while there are watchers: counters, some losses, occasional samples.

A step costs a few additions. It stores no data, because that would compete for the processor's
caches; of many fast steps, only some losses are kept. About once a second, and only if a page shows
the reports, a step is recorded operator by operator. Reports are made on the thread of the caller.
It holds Python's lock meanwhile, so reports are small, and requested at most twice a second.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dpexec.dashboard.boxes import boxes, collective_bytes, loss_names
from dpexec.dashboard.reports import Current, Report, Sample
from dpexec.dashboard.samples import Taken
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.graph.describe import task_key
from dpexec.engine.trace.recorder import Notes, OpenNotes, Steps

__all__ = ["INTERVAL", "Monitor", "Told"]

INTERVAL = 0.5
"""Seconds between two updates of a page."""

_SAMPLE_EVERY = 1.0  # seconds
_SAMPLE_SHARE = 0.003  # share of the time that may be spent on reading samples
_LOSSES = 256  # the most losses kept for the next report
_LOOK_EVERY = 0.01  # seconds between two kept losses when there are that many
_LOSSES_SENT = 50  # the most points of a report
_SMALL = 64  # elements; a larger fetched variable is not taken for a loss


@dataclass(slots=True)
class Told:
    """The data that a reader of reports has already received.

    Args:
        binding: the binding whose tasks were sent.
        losses: number of the step with the latest loss sent.
        sample: number of the latest recorded step sent.
    """

    binding: Any = None
    losses: int = 0
    sample: int = 0


@dataclass(frozen=True, slots=True)
class _Sums:
    """Running sums over steps while all steps add the same amounts.

    Args:
        steps: number of earlier steps.
        samples: number of samples in earlier steps.
        bytes: bytes that collectives read in earlier steps.
        batch: samples per step since then.
        dense: bytes per step since then.
    """

    steps: int = 0
    samples: int = 0
    bytes: int = 0
    batch: int = 0
    dense: int = 0

    def after(self, steps: int, batch: int, dense: int) -> _Sums:
        """The sums after a number of steps, as a base for further equal steps.

        Args:
            steps: number of steps so far.
            batch: samples per further step.
            dense: bytes per further step.
        """
        more = steps - self.steps
        samples, read = self.samples + more * self.batch, self.bytes + more * self.dense
        return _Sums(steps, samples, read, batch, dense)


class Monitor:
    """Monitors the training of one engine.

    Args:
        engine: the engine to monitor.

    Attributes:
        listener: called after each step.
        began: start time of the running or latest step.
        ended: end time of the latest step.
    """

    def __init__(self, engine: Any) -> None:
        self.run = uuid.uuid4().hex[:12]
        self.trains = bool(engine.graph.is_training)
        self.devices = [str(place) for place in engine.places]
        self.mode = str(engine.graph.mode)
        self.listener: Callable[[], None] | None = None
        self.began = self.ended = 0.0
        self._replicas = engine.graph.replicas
        self._all_count = len(self._replicas) == len(self.devices)
        self._runner = engine.runner
        self._observers = engine.observers
        self._lock = threading.Lock()
        self._steps = self._failed = 0
        self._seconds = 0.0
        self._samples: Sequence[int] = ()  # of the latest step, per device
        self._sums = _Sums()
        self._sparse = 0  # bytes
        self._losses: deque[tuple[int, Any]] = deque(maxlen=_LOSSES)
        self._look_at = 0.0  # time of the next look at an ending step
        self._facts: WeakKeyDictionary[Any, tuple[int, int, int | None]] = WeakKeyDictionary()
        self._binding: Any = None
        self._loss_at: int | None = None
        self._most_sparse = 0
        self._following: Steps | None = None
        self._taken: Taken | None = None
        self._sample: Sample | None = None
        self._due = 0.0
        self._recorded_from: float | None = None  # record steps that begin after this time
        self._asked = 0.0

    # ---- on the training thread

    def begin(self, binding: Any) -> None:
        """See :class:`dpexec.engine.trace.live.Counter`."""
        if binding is not self._binding:
            self._take(binding)
        self.began = time.perf_counter()

    def end(self, samples: Sequence[int], results: Sequence[Any] | None) -> None:
        """See :class:`dpexec.engine.trace.live.Counter`."""
        self.ended = ended = time.perf_counter()
        if results is None:
            self._failed += 1
            return
        if samples is not self._samples:
            self._count(samples)
        self._steps += 1
        self._seconds += ended - self.began
        if ended >= self._look_at:
            self._look(results, ended)

    def _look(self, results: Sequence[Any], now: float) -> None:
        """Do the work that is not needed after each of many short steps."""
        loss = None if self._loss_at is None else results[self._loss_at]
        if loss is not None:
            self._losses.append((self._steps, loss))
        if self._following is not None:
            self.keep(self._following.notes)
        if self._most_sparse:
            self._sparse += self._read_sparse()
        if self.listener is not None:
            self.listener()
        elif not self._most_sparse and (self._loss_at is None or len(self._losses) == _LOSSES):
            self._look_at = now + _LOOK_EVERY

    def follow(self, notes: OpenNotes) -> Steps:
        """See :class:`dpexec.engine.trace.live.Keeper`."""
        self._following = Steps(notes, notes.count)
        self._look_at = 0.0
        return self._following

    def keep(self, notes: Notes) -> None:
        """Store the ending step as a sample.

        Args:
            notes: its notes, as the latest ones.
        """
        began, now = self.began, time.perf_counter()
        number = self._steps + (began > self.ended)  # it may be counted already
        self._taken = Taken(number, began, now, notes, notes.count - 1)
        self._due = now + _SAMPLE_EVERY
        self._following = None
        self._observers.remove(self)
        if now - began < _SAMPLE_EVERY or now - self._asked > _SAMPLE_EVERY:
            self._recorded_from = None
        else:  # pages show the progress of the next step, too
            self._observers.add(self)

    def _count(self, samples: Sequence[int]) -> None:
        """Update the number of samples per step; equal batches come in the same list object."""
        self._samples = samples
        counted = samples if self._all_count else [samples[device] for device in self._replicas]
        self._sums = self._sums.after(self._steps, sum(counted), self._sums.dense)

    def _read_sparse(self) -> int:
        """The bytes of sparse values that the step reduced; an upper bound if unknown."""
        found: int | None = self._runner.joined_bytes
        return self._most_sparse if found is None else found

    def _take(self, binding: Any) -> None:
        """Store the properties shared by all steps of a binding."""
        home = binding.opened or binding
        found = self._facts.get(home) or self._facts.get(binding)
        if found is None:
            found = self._facts_of(binding)
            # reduced values have the same size in all batches, unless they are sparse
            alike = found[2] is None or not _fetched(home, found[2]).is_open
            self._facts[home if alike and not found[1] else binding] = found
        dense, self._most_sparse, self._loss_at = found
        if self._most_sparse:
            self._look_at = 0.0
        self._sums = self._sums.after(self._steps, self._sums.batch, dense)
        self._binding = binding

    def _facts_of(self, binding: Any) -> tuple[int, int, int | None]:
        """Bytes of dense and sparse sums, and which fetch is the loss."""
        plan = binding.plan
        losses = loss_names(plan)
        found = [index for index, name in enumerate(plan.fetch) if name in losses]
        if self.trains and plan.fetch:
            found.append(0)  # no known loss: take the first fetched variable
        small = (at for at in found[:1] if abs(_fetched(binding, at).size) <= _SMALL)
        return *collective_bytes(plan.nodes, binding), next(small, None)

    # ---- on the caller's thread

    @property
    def has_run(self) -> bool:
        """Whether any step has ended."""
        return self._steps > 0

    def report(self, told: Told, samples: bool) -> Report:
        """The state, and the news since a reader's last report.

        Args:
            told: the data that the reader has; updated here.
            samples: whether to record a step for the next report, if one is due.
        """
        with self._lock:
            report = self._report(told)
            if samples:
                self._ask()
            return report

    def _report(self, told: Told) -> Report:
        binding = self._binding
        graph = None
        if binding is not told.binding:
            graph = boxes(binding)
            told.binding = binding
        sums = self._sums.after(self._steps, 0, 0)
        return {
            "run": self.run,
            "time": time.time(),
            "trains": self.trains,
            "devices": self.devices,
            "mode": self.mode,
            "graph": graph,
            "loss_name": self._loss_name,
            "steps": self._steps,
            "failed": self._failed,
            "samples": sums.samples,
            "bytes": sums.bytes + self._sparse,
            "seconds": self._seconds,
            "loss": self._new_losses(told),
            "sample": self._new_sample(told),
            "current": self._current(),
        }

    @property
    def _loss_name(self) -> str:
        at, binding = self._loss_at, self._binding
        return "" if at is None or binding is None else binding.plan.fetch[at]

    def _new_losses(self, told: Told) -> list[list[float]]:
        """Some of the new losses, evenly spaced."""
        points = [point for point in list(self._losses) if point[0] > told.losses]
        if points:
            told.losses = points[-1][0]
        thin = max(1, -(-len(points) // _LOSSES_SENT))
        return [[step, _mean(value)] for step, value in points[::-thin][::-1]]

    def _new_sample(self, told: Told) -> Sample | None:
        taken, self._taken = self._taken, None
        if taken is not None:
            start = time.perf_counter()
            self._sample = taken.read()
            now = time.perf_counter()
            self._due = max(self._due, now + (now - start) / _SAMPLE_SHARE)
        if self._sample is None or self._sample["step"] == told.sample:
            return None
        told.sample = self._sample["step"]
        return self._sample

    def _ask(self) -> None:
        """Request the recording of a step if one is due."""
        self._asked = now = time.perf_counter()
        if now >= self._due and self._recorded_from is None:
            self._observers.add(self)
            self._recorded_from = time.perf_counter()

    def _current(self) -> Current | None:
        """The running step, if it has run long enough to be shown."""
        began, since, now = self.began, self._recorded_from, time.perf_counter()
        if began <= self.ended or now - began < INTERVAL / 2:
            return None
        done = None
        recording = vars(self._binding).get("recording")  # on a cluster there is none here
        if since is not None and since <= began and recording is not None:
            tasks = self._binding.plan.tasks
            done = [task_key(tasks[number]) for number in recording.ended]
        return {
            "step": self._steps + 1,
            "since": now - began,
            "done": done,
            "running": None,
        }


def _fetched(binding: Any, at: int) -> Any:
    """The spec of a fetch, on a device that computes it: in Reduce mode moments have one home."""
    name = binding.plan.fetch[at]
    return next(specs[name] for specs in binding.specs if name in specs)


def _mean(value: Any) -> float:
    """The mean of a fetched loss over the devices."""
    parts = [np.ravel(part).tolist() for part in (value if isinstance(value, list) else [value])]
    return sum(sum(part) / len(part) for part in parts) / len(parts)
