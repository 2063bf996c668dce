"""What is kept of training while somebody watches: counters, the last steps, now and then a sample.

A step costs one entry of a bounded ring. About once a second, and only while a page is open, a step
is recorded operator by operator. Reports are made for who asks, on their thread; at most two a
second are asked for.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import psutil

from dpexec.dashboard.board import Board
from dpexec.dashboard.boxes import boxes, collective_bytes, loss_names
from dpexec.dashboard.reports import Current, Report, Sample, Slice
from dpexec.graph.describe import task_key
from dpexec.trace.recorder import Recorded, Recorder

__all__ = ["INTERVAL", "Monitor"]

INTERVAL = 0.5
"""Seconds between two updates of a page."""

_RING = 1024  # steps that nobody counted yet
_SAMPLE_EVERY = 1.0  # seconds
_SAMPLE_SHARE = 0.003  # of the time: what a page may spend on reading samples
_SLICES = 500  # of a sample: the longest are kept
_LOSSES = 4096  # kept until somebody asks
_LOSSES_SENT = 50  # points of a report
_SMALL = 64  # elements: a larger fetch is no loss

_Entry = tuple[float, float, Sequence[int], int, Any, Recorded | None]
"""Of a step: its start and end, samples per device, bytes, loss, and what was recorded."""


class Monitor:
    """What is known of the training of one engine.

    Args:
        engine: which.

    Attributes:
        viewers: how many pages elsewhere show it.
        listener: called after each step.
        began: when the step that runs began; None between steps.
    """

    def __init__(self, engine: Any) -> None:
        self.run = uuid.uuid4().hex[:12]
        self.trains = bool(engine.is_training)
        self.devices = [str(place) for place in engine.places]
        self.mode = str(engine.graph.mode)
        self.viewers = 0
        self.listener: Callable[[], None] | None = None
        self.began: float | None = None
        self.board = Board()
        self.last = 0.0
        self._replicas = engine.graph.replicas
        self._lock = threading.Lock()
        self._read = 0.0
        self._steps = self._failed = self._samples = self._bytes = 0
        self._seconds = 0.0
        self._ring: deque[_Entry] = deque()
        self._losses: deque[tuple[int, Any]] = deque(maxlen=_LOSSES)
        self._facts: WeakKeyDictionary[Any, tuple[int, int | None]] = WeakKeyDictionary()
        self._binding: Any = None
        self._described: Any = None
        self._loss_at: int | None = None
        self._bytes_a_step = 0
        self._recorder: Recorder | None = None
        self._sample: tuple[int, float, float, Recorded] | None = None
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
        loss = None if self._loss_at is None else results[self._loss_at]
        record = None
        if self._recorder is not None:
            record, self._recorder = self._recorder.latest, None
            self._due = time.perf_counter() + _SAMPLE_EVERY
        ring = self._ring
        ring.append((began, time.perf_counter(), samples, self._bytes_a_step, loss, record))
        if len(ring) >= _RING and self._lock.acquire(blocking=False):
            self._count()
            self._lock.release()
        if self.listener is not None:
            self.listener()

    def _take(self, binding: Any) -> None:
        """Find out what every step of a binding has in common."""
        if binding not in self._facts:
            plan, specs = binding.plan, binding.specs
            losses = loss_names(plan)
            found = [index for index, name in enumerate(plan.fetch) if name in losses]
            if self.trains and plan.fetch:
                found.append(0)  # whose gradient comes from elsewhere: the first that is fetched
            small = (at for at in found[:1] if abs(specs[0][plan.fetch[at]].size) <= _SMALL)
            self._facts[binding] = collective_bytes(plan.nodes, specs), next(small, None)
        self._bytes_a_step, self._loss_at = self._facts[binding]
        self._binding = binding

    # ---- on the thread of who asks

    def _count(self) -> None:
        """Add up what the ring holds; the lock is held."""
        for _ in range(len(self._ring)):
            began, ended, samples, moved, loss, record = self._ring.popleft()
            self._steps += 1
            self._seconds += ended - began
            self._samples += sum(samples[device] for device in self._replicas)
            self._bytes += moved
            self.last = ended
            if loss is not None:
                self._losses.append((self._steps, loss))
            if record is not None:
                self._sample = self._steps, began, ended, record

    @property
    def has_run(self) -> bool:
        """Whether a step ended."""
        if self._ring and self._lock.acquire(blocking=False):
            self._count()
            self._lock.release()
        return self._steps > 0

    def refresh(self, now: bool = False) -> Board:
        """The state for pages of this process; it changes twice a second at most.

        Args:
            now: whether what changed since the last time counts, however short that is ago.
        """
        if now or time.perf_counter() - self._read > 0.9 * INTERVAL:
            self._read = time.perf_counter()
            self.board.apply(self.report())
        return self.board

    def report(self) -> Report:
        """The state, and what is new since the last report."""
        with self._lock:
            self._count()
            return self._report()

    def _report(self) -> Report:
        binding = self._binding
        graph = None
        if binding is not None and binding is not self._described:
            graph = boxes(binding.plan, binding.specs)
            self._described = binding
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
            "loss": self._read_losses(),
            "sample": self._read_sample(),
            "current": self._current(),
            "memory": {f"process {os.getpid()}": _own_memory()},
        }

    @property
    def _loss_name(self) -> str:
        at, binding = self._loss_at, self._binding
        return "" if at is None or binding is None else binding.plan.fetch[at]

    def _read_losses(self) -> list[list[float]]:
        """Some of the losses since the last report, evenly chosen; the last is always there."""
        points = list(self._losses)
        self._losses.clear()
        thin = max(1, -(-len(points) // _LOSSES_SENT))
        return [[step, _mean(value)] for step, value in points[::-thin][::-1]]

    def _read_sample(self) -> Sample | None:
        taken, self._sample = self._sample, None
        if taken is None:
            return None
        step, began, ended, record = taken
        start = time.perf_counter()
        nodes = self._binding.plan.graph.ops
        rows = sorted(record.rows(), key=lambda row: (row[1] != "task", row[4] - row[5]))
        if not rows:  # of a cluster, whose scheduler sees the tasks itself
            return None
        slices: list[Slice] = [
            [
                device,
                "" if node is None else nodes[node].role,
                kind,
                name,
                key,
                begin - began,
                stop - began,
            ]
            for name, kind, device, key, begin, stop, _, _, node in rows[:_SLICES]
        ]
        cost = time.perf_counter() - start
        self._due = max(self._due, time.perf_counter() + cost / _SAMPLE_SHARE)
        return {
            "step": step,
            "seconds": ended - began,
            "slices": slices,
            "left_out": max(0, len(rows) - _SLICES),
        }

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
    parts = value if isinstance(value, list) else [value]
    return float(np.mean([np.mean(np.asarray(part)) for part in parts]))


def _own_memory() -> tuple[int, int]:
    """What this process uses, and what the machine has."""
    return int(psutil.Process().memory_info().rss), int(psutil.virtual_memory().total)
