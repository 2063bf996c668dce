"""What is kept of training while somebody watches: counters, the last steps, now and then a sample.

A step costs a few additions; it leaves nothing in memory, which would have to come into the caches
of the processor: of its losses a fast training keeps a part. About once a second, and only while a
page is open, a step is recorded operator by operator. Reports are made for who asks, on their
thread, which keeps training from Python for as long as that takes: so they hold little, and whoever
asks does it twice a second at most.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dpexec.dashboard.boxes import boxes, collective_bytes, loss_names
from dpexec.dashboard.reports import Current, Report, Sample
from dpexec.dashboard.samples import Taken
from dpexec.graph.describe import task_key
from dpexec.trace.recorder import Recorder

__all__ = ["INTERVAL", "Monitor", "Told"]

INTERVAL = 0.5
"""Seconds between two updates of a page."""

_SAMPLE_EVERY = 1.0  # seconds
_SAMPLE_SHARE = 0.003  # of the time: what a page may spend on reading samples
_LOSSES = 256  # kept for who asks: when there are more,
_LOSS_EVERY = 0.01  # only one in so many seconds
_LOSSES_SENT = 50  # points of a report
_SMALL = 64  # elements: a larger fetch is no loss


@dataclass(slots=True)
class Told:
    """What somebody who asks for reports knows already.

    Args:
        binding: whose tasks.
        losses: number of the step whose loss is the latest.
        sample: number of the latest step that was recorded.
    """

    binding: Any = None
    losses: int = 0
    sample: int = 0


class Monitor:
    """What is known of the training of one engine.

    Args:
        engine: which.

    Attributes:
        viewers: how many pages elsewhere show it.
        listener: called after each step.
        began: when the step that runs began; None between steps.
        last: when the latest one ended.
    """

    def __init__(self, engine: Any) -> None:
        self.run = uuid.uuid4().hex[:12]
        self.trains = bool(engine.is_training)
        self.devices = [str(place) for place in engine.places]
        self.mode = str(engine.graph.mode)
        self.viewers = 0
        self.listener: Callable[[], None] | None = None
        self.began: float | None = None
        self.last = 0.0
        self._replicas = engine.graph.replicas
        self._all_count = len(self._replicas) == len(self.devices)
        self._runner = engine.local
        self._lock = threading.Lock()
        self._steps = self._failed = self._samples = self._bytes = 0
        self._seconds = 0.0
        self._losses: deque[tuple[int, Any]] = deque(maxlen=_LOSSES)
        self._loss_due = 0.0
        self._facts: WeakKeyDictionary[Any, tuple[int, int, int | None]] = WeakKeyDictionary()
        self._binding: Any = None
        self._loss_at: int | None = None
        self._dense_bytes = self._sparse_bytes = 0
        self._recorder: Recorder | None = None
        self._taken: Taken | None = None
        self._sample: Sample | None = None
        self._due = 0.0

    # ---- on the training thread

    def begin(self, binding: Any, watched: bool) -> Recorder | None:
        """A step begins; returns a recorder when it is to be a sample.

        Args:
            binding: what runs.
            watched: whether a page of this process is open.
        """
        if binding is not self._binding:
            self._take(binding)
        self.began = now = time.perf_counter()
        if not (watched or self.viewers):
            return None
        self._recorder = Recorder() if now >= self._due else None
        return self._recorder

    def end(self, samples: Sequence[int], results: Sequence[Any] | None) -> None:
        """The step is over.

        Args:
            samples: how many every device had.
            results: what was fetched; None when the step failed.
        """
        began, self.began = self.began, None
        assert began is not None
        if results is None:
            self._failed += 1
            return
        self.last = ended = time.perf_counter()
        self._steps += 1
        self._seconds += ended - began
        counted = samples if self._all_count else [samples[device] for device in self._replicas]
        self._samples += sum(counted)
        self._bytes += self._dense_bytes + (self._read_sparse() if self._sparse_bytes else 0)
        if self._loss_at is not None and results[self._loss_at] is not None:
            self._keep_loss(results[self._loss_at], ended)
        if self._recorder is not None:
            self._keep_sample(self._recorder, began, ended)
        if self.listener is not None:
            self.listener()

    def _keep_loss(self, loss: Any, now: float) -> None:
        """Keep the latest one, and of those before it what a curve can show."""
        losses = self._losses
        if now >= self._loss_due or len(losses) < _LOSSES:
            losses.append((self._steps, loss))
            self._loss_due = now + _LOSS_EVERY
        else:
            losses[-1] = self._steps, loss

    def _keep_sample(self, recorder: Recorder, began: float, ended: float) -> None:
        self._recorder = None
        self._due = ended + _SAMPLE_EVERY
        record = recorder.latest
        if record is not None:
            self._taken = Taken(self._steps, began, ended, self._binding, record)

    def _read_sparse(self) -> int:
        """The bytes of sparse values that the step added up; where nobody knows, at most."""
        found: int | None = self._runner.joined_bytes
        return self._sparse_bytes if found is None else found

    def _take(self, binding: Any) -> None:
        """Find out what every step of a binding has in common."""
        if binding not in self._facts:
            plan, specs = binding.plan, binding.specs
            read = collective_bytes(plan.nodes, binding)
            losses = loss_names(plan)
            found = [index for index, name in enumerate(plan.fetch) if name in losses]
            if self.trains and plan.fetch:
                found.append(0)  # whose gradient comes from elsewhere: the first that is fetched
            small = (at for at in found[:1] if abs(specs[0][plan.fetch[at]].size) <= _SMALL)
            self._facts[binding] = *read, next(small, None)
        self._dense_bytes, self._sparse_bytes, self._loss_at = self._facts[binding]
        self._binding = binding

    # ---- on the thread of who asks

    @property
    def has_run(self) -> bool:
        """Whether a step ended."""
        return self._steps > 0

    def report(self, told: Told) -> Report:
        """The state, and what is new to somebody.

        Args:
            told: what that one knows; it is brought up to date.
        """
        with self._lock:
            return self._report(told)

    def _report(self, told: Told) -> Report:
        binding = self._binding
        graph = None
        if binding is not told.binding:
            graph = boxes(binding)
            told.binding = binding
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
            "samples": self._samples,
            "bytes": self._bytes,
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
        """Some of the new losses, evenly chosen; the last is always there."""
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

    def _current(self) -> Current | None:
        """The step that runs, if it has run for long enough to be looked at."""
        began, recorder, now = self.began, self._recorder, time.perf_counter()
        if began is None or now - began < INTERVAL / 2:
            return None
        done = None
        recording = vars(self._binding).get("recording")  # on a cluster there is none here
        if recorder is not None and recording is not None:
            tasks = self._binding.plan.tasks
            done = [task_key(tasks[number]) for number in recording.ended]
        return {
            "step": self._steps + 1,
            "since": now - began,
            "done": done,
            "running": None,
        }


def _mean(value: Any) -> float:
    """The mean of a fetched loss over the devices."""
    parts = [np.ravel(part).tolist() for part in (value if isinstance(value, list) else [value])]
    return sum(sum(part) / len(part) for part in parts) / len(parts)
