"""What a step would take on other devices: the parts of recorded steps as jobs of a machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from .machine import Job, makespan
from .template import Template, Work

Mode = Literal["all_reduce", "reduce"]
Reason = Literal["link", "cores", "serial part", "stragglers"]
REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True)
class Link:
    """What connects the devices.

    Args:
        latency: Seconds from one device to the next.
        bandwidth: Bytes per second of each device; None for the memory of the recorded machine.
    """

    latency: float = 0.0
    bandwidth: float | None = None

    def seconds(self, size: float, devices: int) -> float:
        """How long every device takes to pass its part of some bytes once around the ring."""
        assert self.bandwidth is not None
        return (devices - 1) * (self.latency + size / devices / self.bandwidth)


@dataclass(frozen=True)
class Prediction:
    """What a number of devices is worth.

    Args:
        devices: How many.
        step: Seconds, the median over the recorded steps.
        throughput: Samples per second, as a multiple of one device's.
        efficiency: Throughput per device.
        without: By what might limit it: how long a step would take without.
    """

    devices: int
    step: float
    throughput: float
    efficiency: float
    without: dict[Reason, float]

    @property
    def reason(self) -> Reason | None:
        """What costs most; None if nothing makes a difference of a twentieth."""
        name = min(self.without, key=self.without.__getitem__)
        return name if self.without[name] < 0.95 * self.step else None


@dataclass(frozen=True)
class Model:
    """How the parts of a step become jobs of a machine.

    Args:
        recorded: How gradients were aggregated in the recording.
        mode: How they are aggregated now.
        link: What connects the devices.
        cores: How many the devices share.
        threads: How many ran the recorded tasks.
        without: What costs nothing, to see what it costs.
    """

    recorded: Mode
    mode: Mode
    link: Link
    cores: float
    threads: float
    without: Reason | None = None

    def step(self, steps: Sequence[Template], devices: int) -> float:
        """The median step on a number of devices; fewer than recorded: on each in its turn."""
        recorded = len(steps[0].segments)
        threads = self.threads
        if 1 < threads < math.inf and recorded <= threads:  # enough for each device, as now
            threads = threads / recorded * devices
        cores = math.inf if self.without == "cores" else self.cores
        if self.without == "stragglers":
            steps = [_evened(step) for step in steps]
        turns = recorded if devices % recorded else 1
        return statistics.median(
            statistics.fmean(
                makespan(_Jobs(self, steps, at, turn, devices).jobs, cores, max(1.0, threads))
                for turn in range(turns)
            )
            for at in range(len(steps))
        )


def _evened(step: Template) -> Template:
    """A step in which all devices take the same time for the same."""
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
    """The jobs of one step; devices beyond the recorded ones do what these did in other steps."""

    def __init__(
        self, model: Model, steps: Sequence[Template], at: int, turn: int, devices: int
    ) -> None:
        self.model, self.devices = model, devices
        self.jobs: list[Job] = []
        now = steps[at]
        self.recorded = len(now.segments)
        scale = devices / self.recorded
        feed = self._serial(now.feed, scale, ())
        sources = [
            (steps[(at + i // self.recorded) % len(steps)], (i + turn) % self.recorded)
            for i in range(devices)
        ]
        segments = [self._chain(t.segments[d], feed) for t, d in sources]
        ends = [chain[-1] for chain in segments if chain]
        aggregated = []
        if devices > 1:
            for bucket in now.buckets:
                reached = [chain[min(bucket.after, len(chain)) - 1] for chain in segments if chain]
                aggregated += self._aggregate(bucket.bytes, bucket.parts, reached)
        updates = self._updates(sources, (*ends, *aggregated))
        last = [*updates, *ends, *aggregated]
        if model.mode == "reduce" and devices > 1:
            size = sum(bucket.bytes for bucket in now.buckets)
            last += self._broadcast(size, now.broadcasts, updates or ends)
        self._serial(now.fetch, scale, tuple(last))

    def _add(self, job: Job) -> int:
        if self.model.without == "serial part":
            job = replace(job, delay=0.0)
        self.jobs.append(job)
        return len(self.jobs) - 1

    def _serial(self, work: Work, scale: float, after: tuple[int, ...]) -> int:
        free = self.model.without == "serial part"
        seconds = 0.0 if free else work.seconds * scale
        return self._add(Job(seconds, after, work.delay))

    def _chain(self, works: Iterable[Work], first: int) -> list[int]:
        chain: list[int] = []
        for work in works:
            chain.append(self._add(Job(work.seconds, (chain[-1] if chain else first,), work.delay)))
        return chain

    def _aggregate(self, size: int, parts: Sequence[Work], after: Iterable[int]) -> list[int]:
        """Sum a bucket over the devices: a ring twice around, or once for an owner each."""
        before = tuple(after)
        if self.model.link.bandwidth is not None:
            return self._transfer(size, 1 if self.model.mode == "reduce" else 2, before)
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
        """The optimizer on every device: all of it, or what it owns."""
        found = []
        for template, device in sources:
            seconds = template.updates[device].seconds
            owners = self.model.recorded == "reduce"
            whole = sum(work.seconds for work in template.updates) if owners else seconds
            if self.model.mode == "all_reduce":
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
