"""Predicts the time of a step on other devices: recorded steps as jobs of a simulated machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from dpexec.viz.measured.machine import Job, makespan
from dpexec.viz.measured.template import Template, Work

from dpexec.engine.graph.kinds import Kind

Reason = Literal["link", "cores", "serial part", "stragglers"]
REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True)
class Link:
    """The connection of the devices.

    Args:
        latency: Seconds from one device to the next.
        bandwidth: Bytes per second of each device; None for the memory of the recorded machine.
    """

    latency: float = 0.0
    bandwidth: float | None = None

    def seconds(self, size: float, devices: int) -> float:
        """The time to pass each device's part of some bytes once around the ring."""
        assert self.bandwidth is not None
        return (devices - 1) * (self.latency + size / devices / self.bandwidth)


@dataclass(frozen=True)
class Prediction:
    """The prediction for a number of devices.

    Args:
        devices: Number of devices.
        step: Seconds of a step, the median over the recorded steps.
        throughput: Samples per second, as a multiple of one device's.
        efficiency: Throughput per device.
        without: By possible limit: how long a step would take without it.
    """

    devices: int
    step: float
    throughput: float
    efficiency: float
    without: dict[Reason, float]

    @property
    def reason(self) -> Reason | None:
        """The limit that costs most; None if none costs a twentieth of a step."""
        name = min(self.without, key=self.without.__getitem__)
        return name if self.without[name] < 0.95 * self.step else None


@dataclass(frozen=True)
class Model:
    """Converts the parts of a step to jobs of a machine.

    Args:
        recorded: How gradients were aggregated in the recording.
        mode: How they are aggregated now.
        link: The connection of the devices.
        cores: Number of cores that the devices share.
        threads: Largest number of threads that may have run the recorded tasks.
        elsewhere: Whether it is another machine, on which all of these threads may be busy, not
            only those that were busy in the recording.
        without: A limit that is taken to cost nothing.
    """

    recorded: Kind
    mode: Kind
    link: Link
    cores: float
    threads: float
    elsewhere: bool = False
    without: Reason | None = None

    def step(self, steps: Sequence[Template], devices: int) -> float:
        """The median step on a number of devices.

        If it is no multiple of the recorded number, each step is a mean over rotations of the
        recorded devices.
        """
        recorded = len(steps[0].segments)
        cores = math.inf if self.without == "cores" else self.cores
        if self.without == "stragglers":
            steps = [_evened(step) for step in steps]
        turns = recorded if devices % recorded else 1
        return statistics.median(
            statistics.fmean(
                self._serial(steps[at], devices)
                + makespan(
                    _Jobs(self, steps, at, turn, devices).jobs,
                    cores,
                    self._joins(steps[at], devices),
                )
                for turn in range(turns)
            )
            for at in range(len(steps))
        )

    def _joins(self, step: Template, devices: int) -> list[float]:
        """When each thread begins to work.

        If there are enough threads for the recorded devices, additional devices get their own.
        Additional threads begin at the times of the recorded ones.
        """
        recorded, joins = len(step.segments), step.joins
        if self.without == "serial part":
            joins = (0.0,) * len(joins)
        number = self.threads if self.elsewhere else float(len(joins))
        if self.threads > 1 and recorded <= self.threads:
            number *= devices / recorded
        return [joins[i % len(joins)] for i in range(math.ceil(number))] if joins else []

    def _serial(self, step: Template, devices: int) -> float:
        """The time of feeding and fetching, which is done for one device after another."""
        if self.without == "serial part":
            return 0.0
        scale = devices / len(step.segments)
        return (step.feed.seconds + step.fetch.seconds) * scale + step.fetch.delay


def _evened(step: Template) -> Template:
    """A step in which all devices take the same time for the same segment."""
    chains = {len(chain) for chain in step.segments}
    if len(chains) > 1:
        return step  # their segments are not the same
    segments = tuple(_mean(works) for works in zip(*step.segments, strict=True))
    count = len(step.segments)
    return replace(step, segments=(segments,) * count, updates=(_mean(step.updates),) * count)


def _mean(works: Sequence[Work]) -> Work:
    return Work(
        statistics.fmean(work.seconds for work in works),
        statistics.fmean(work.delay for work in works),
    )


class _Jobs:
    """The jobs of one step; additional devices do the work of recorded ones in other steps."""

    def __init__(
        self, model: Model, steps: Sequence[Template], at: int, turn: int, devices: int
    ) -> None:
        self.model, self.devices = model, devices
        self.jobs: list[Job] = []
        now = steps[at]
        self.recorded = len(now.segments)
        sources = [
            (steps[(at + i // self.recorded) % len(steps)], (i + turn) % self.recorded)
            for i in range(devices)
        ]
        segments = [self._chain(t.segments[d]) for t, d in sources]
        ends = [chain[-1] for chain in segments if chain]
        aggregated = []
        if devices > 1:
            for bucket in now.buckets:
                reached = [chain[min(bucket.after, len(chain)) - 1] for chain in segments if chain]
                aggregated += self._aggregate(bucket.bytes, bucket.parts, reached)
        updates = self._updates(sources, (*ends, *aggregated))
        if model.mode.has_root and devices > 1:
            size = sum(bucket.bytes for bucket in now.buckets)
            self._broadcast(size, now.broadcasts, updates or ends)

    def _add(self, job: Job) -> int:
        if self.model.without == "serial part":
            job = replace(job, delay=0.0)
        self.jobs.append(job)
        return len(self.jobs) - 1

    def _chain(self, works: Iterable[Work]) -> list[int]:
        chain: list[int] = []
        for work in works:
            chain.append(self._add(Job(work.seconds, tuple(chain[-1:]), work.delay)))
        return chain

    def _aggregate(self, size: int, parts: Sequence[Work], after: Iterable[int]) -> list[int]:
        """Sum a bucket over the devices: twice around the ring, or once if parts have owners."""
        before = tuple(after)
        if self.model.link.bandwidth is not None:
            return self._transfer(size, 1 if self.model.mode.has_root else 2, before)
        more = (self.devices - 1) / max(1, self.recorded - 1)
        factor = 0.0 if self.model.without == "link" else more
        return [self._add(Job(part.seconds * factor, before, part.delay)) for part in parts]

    def _transfer(self, size: int, rounds: int, after: tuple[int, ...]) -> list[int]:
        seconds = rounds * self.model.link.seconds(size, self.devices)
        seconds = 0.0 if self.model.without == "link" else seconds
        return [self._add(Job(seconds, after, 0.0, True))]

    def _updates(
        self, sources: Sequence[tuple[Template, int]], after: tuple[int, ...]
    ) -> list[int]:
        """The optimizer on every device: for all parameters, or for those that it owns."""
        found = []
        for template, device in sources:
            seconds = template.updates[device].seconds
            owners = self.model.recorded.has_root
            whole = sum(work.seconds for work in template.updates) if owners else seconds
            if not self.model.mode.has_root:
                seconds = whole
            elif not owners or self.devices != self.recorded:
                seconds = whole / self.devices
            delay = template.updates[device].delay
            if seconds or delay:
                found.append(self._add(Job(seconds, after, delay)))
        return found

    def _broadcast(self, size: int, recorded: Sequence[Work], after: Iterable[int]) -> list[int]:
        before = tuple(after)
        if self.model.link.bandwidth is not None:
            return self._transfer(size, 1, before)
        return [self._add(Job(work.seconds, before, work.delay)) for work in recorded]
