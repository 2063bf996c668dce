"""`dpexec.viz.simulate`: a recorded run on another number of devices, replayed.

The work of each device is taken from the recording, step by step, with its delays. Collectives
follow a model: a ring, if a latency and a bandwidth are given, else the sums of the recorded
machine, whose time grows with the number of devices. Every device gets as many samples as in the
recording, so N devices do N times the work.

Errors of predictions, measured with `python -m tests.benchmarks.whatif`: 0 to 3% for replays of the
recorded machine (up to 10% if other programs interrupt short steps); 5% to 20% for two devices from
a trace of one, and for one from a trace of two, on a free machine. Other programs are not in the
model: when one of them occupied the second of two cores that the replicas needed, two devices took
twice as long as predicted.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from dpexec.viz.measured.contention import contention
from dpexec.viz.measured.predict import REASONS, Link, Model, Prediction, Reason
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.template import cores_of, templates, threads_of
from dpexec.viz.pages.load import as_trace
from dpexec.viz.pages.page_data import ChartData, StackData, TableData, Unit
from dpexec.viz.pages.units import (
    bytes_text,
    counted,
    percent,
    seconds_text,
    signed_percent,
    wrapped,
)
from dpexec.viz.pages.view import View
from dpexec.viz.simulate_svg import render

from dpexec.engine.graph.kinds import ALL_REDUCE, MODES
from dpexec.engine.trace import Trace

SCANNED = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of devices that are tried."""

_WORTH_IT = 0.5
"""Scaling ends where further devices add less than this share of their ideal throughput."""


class Simulation(View):
    """A run on other devices.

    Args:
        trace: The trace, with its graph.
        devices: Number of devices to replay it on; None for the recorded number.
        mode: How gradients are aggregated; None for the recorded mode.
        link: The connection of the devices.
        cores: Number of cores that the devices share; None for those of the recorded machine, or
            for as many as they need if the link has a bandwidth.
        threads: Number of threads that run tasks; None for those of the recording.

    Raises:
        ValueError: The trace cannot be replayed, or an argument is impossible.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import viz
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
        >>> how = fluid.ExecutionStrategy()
        >>> how.trace = True
        >>> two = fluid.CompiledProgram(main).with_data_parallel(
        ...     loss.name, exec_strategy=how, places=fluid.cpu_places(2)
        ... )
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     for step in range(3):
        ...         _ = exe.run(two, feed={"x": np.ones([4, 2], "float32")}, fetch_list=[loss])
        >>> viz.simulate(two, mode="reduce").save("reduce.html")  # doctest: +SKIP
    """

    def __init__(
        self,
        trace: Trace,
        devices: int | None,
        mode: str | None,
        link: Link,
        cores: int | None,
        threads: int | None = None,
    ) -> None:
        schedule = Schedule(trace)
        recorded = len(schedule.devices)
        self.recorded_devices = recorded
        told = trace.meta.get("mode")
        self.recorded_mode = told if told in MODES else ALL_REDUCE.name
        self.devices, self.mode = devices or recorded, mode or self.recorded_mode
        self.link = link
        recorded_threads = threads_of(trace)
        self._threads = recorded_threads if threads is None else float(threads)
        self._others = threads is not None
        recorded_cores = self._recorded_cores = cores_of(trace)
        default = math.inf if link.bandwidth is not None else recorded_cores
        self.cores = float(cores) if cores is not None else default
        self._templates = templates(schedule, recorded_cores, recorded_threads)
        self._left_out = schedule.left_out
        self._crowded = contention(schedule)
        self.measured = statistics.median(template.measured for template in self._templates)
        sums = any(template.buckets for template in self._templates)
        self._alone = recorded == 1 and sums and link.bandwidth is None
        if self._alone and self.devices > 1:
            raise ValueError(
                "a trace of one device does not tell how fast devices aggregate gradients: give a "
                "bandwidth in bytes per second"
            )
        kind = MODES[self.recorded_mode]
        own = Model(kind, kind, Link(), recorded_cores, recorded_threads)
        self.replayed = own.step(self._templates, recorded)
        self.title = (
            f"What if · {counted(self.devices, 'device')}, {self.mode}: step "
            f"{seconds_text(self.prediction.step)}, {self.prediction.throughput:.2f} times one "
            "device"
        )

    @property
    def error(self) -> float:
        """The relative error of the replay of the recorded machine: 0.1 means 10% too long."""
        return self.replayed / self.measured - 1 if self.measured else 0.0

    @cached_property
    def prediction(self) -> Prediction:
        """The prediction for the chosen number of devices."""
        return next(p for p in self.scan if p.devices == self.devices)

    @cached_property
    def scan(self) -> tuple[Prediction, ...]:
        """Predictions for 1, 2, 4, ... devices; for 1 only, if the speed of a link is unknown."""
        numbers = [1] if self._alone else sorted({*SCANNED, self.devices})
        others = self.link.bandwidth is not None or self.cores != self._recorded_cores
        model = Model(
            MODES[self.recorded_mode],
            MODES[self.mode],
            self.link,
            self.cores,
            self._threads,
            others or self._others,
        )
        one = model.step(self._templates, 1)
        return tuple(self._predict(model, number, one) for number in numbers)

    def _predict(self, model: Model, devices: int, one: float) -> Prediction:
        step = model.step(self._templates, devices)
        gain = devices * one / step if step else 0.0
        without: dict[Reason, float] = {
            reason: replace(model, without=reason).step(self._templates, devices)
            for reason in REASONS
        }
        return Prediction(devices, step, gain, gain / devices, without)

    @cached_property
    def end(self) -> Prediction | None:
        """The prediction for the number of devices where scaling ends; None if it does not."""
        for now, following in pairwise(self.scan):
            possible = following.devices / now.devices - 1
            if following.throughput / now.throughput - 1 < _WORTH_IT * possible:
                return now
        return None

    @property
    def _cores(self) -> str:
        return "one core" if self.cores == 1 else f"{self.cores:g} cores"

    @property
    def verdict(self) -> str:
        """Where scaling ends and why, in a sentence."""
        if len(self.scan) < 2:
            return "One device was recorded; give a bandwidth to see what more are worth."
        if self.end is None:
            last = self.scan[-1]
            return (
                f"Scaling does not end before {last.devices} devices: they do "
                f"{last.throughput:.1f} times the work of one."
            )
        following = self.scan[self.scan.index(self.end) + 1]
        why = {
            "link": "aggregating gradients takes the time",
            "cores": f"the devices share {self._cores}",
            "serial part": "feeding, fetching and starting tasks take the time",
            "stragglers": "the slowest device decides",
            None: "of all causes together",
        }[following.reason]
        gain = following.throughput / self.end.throughput
        if self.end.devices == 1:
            own = "; with cores= they share more, with bandwidth= each has its own machine"
            if self.link.bandwidth is not None:
                own = ""
            return (
                f"More than one device is not worth it: {following.devices} would do {gain:.2f} "
                f"times the work of one, because {why} ({following.reason or 'none alone'}){own}."
            )
        return (
            f"Scaling ends at {counted(self.end.devices, 'device')}: {following.devices} do "
            f"{gain:.2f} times the work, because {why} ({following.reason or 'none alone'})."
        )

    @property
    def notes(self) -> list[str]:
        """Sentences with the assumptions."""
        link = self.link
        connection = "gradients are summed as on the recorded machine"
        if link.bandwidth is not None:
            latency = seconds_text(link.latency)
            connection = f"a ring of {bytes_text(link.bandwidth)}/s with {latency} latency"
        cores = "cores for all" if math.isinf(self.cores) else self._cores
        return [
            self.verdict,
            f"Replay of the recorded {counted(self.recorded_devices, 'device')} "
            f"({self.recorded_mode}): {seconds_text(self.replayed)}, measured "
            f"{seconds_text(self.measured)} ({signed_percent(self.error)}). Assumed: {self.mode}, "
            f"{connection}, {cores}; every device gets as many samples as recorded, and is fed and "
            "fetched from one after another.",
            *self._left_out,
            *([str(self._crowded)] if str(self._crowded) else []),
        ]

    @cached_property
    def svg(self) -> str:
        """Step time and efficiency over the number of devices as an SVG document."""
        return render(self.title, self.notes, self.scan, self.devices, self.end)

    def payload(self) -> StackData:
        """Return what the interactive page draws."""
        steps = self._chart("Step time", "step", "seconds", [p.step for p in self.scan])
        shares = [p.efficiency for p in self.scan]
        efficiency = self._chart("Efficiency", "throughput per device", "fraction", shares)
        steps["notes"] = self.notes
        table: TableData = {
            "type": "table",
            "title": "Predictions",
            "notes": [],
            "columns": [
                {"label": "devices", "unit": "count"},
                {"label": "step", "unit": "seconds"},
                {"label": "throughput", "unit": "ratio"},
                {"label": "efficiency", "unit": "fraction"},
                {"label": "limited by", "unit": "text"},
            ],
            "rows": [
                [p.devices, p.step, p.throughput, p.efficiency, p.reason or ""] for p in self.scan
            ],
        }
        return {
            "type": "stack",
            "title": self.title,
            "notes": [],
            "views": [steps, efficiency, table],
        }

    def _chart(self, title: str, label: str, unit: Unit, values: list[float]) -> ChartData:
        numbers = [float(p.devices) for p in self.scan]
        return {
            "type": "chart",
            "title": title,
            "notes": [],
            "x": {"label": "devices", "unit": "count"},
            "y": {"label": label, "unit": unit},
            "series": [{"name": label, "x": numbers, "y": values}],
        }

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "devices": self.devices,
            "mode": self.mode,
            "measured": self.measured,
            "replayed": self.replayed,
            "scan": [{**asdict(p), "reason": p.reason} for p in self.scan],
            "end": self.end.devices if self.end else None,
            "verdict": self.verdict,
        }

    def __str__(self) -> str:
        lines = [
            *wrapped(self.title, *self.notes),
            "",
            "devices       step  throughput  efficiency  limited by",
        ]
        lines += [
            f"{p.devices:>7}  {seconds_text(p.step):>9}  {p.throughput:>10.2f}  "
            f"{percent(p.efficiency):>10}  {p.reason or ''}".rstrip()
            for p in self.scan
        ]
        return "\n".join(lines)


def simulate(
    trace: Any,
    *,
    devices: int | None = None,
    mode: str | None = None,
    latency: float = 0.0,
    bandwidth: float | None = None,
    cores: int | None = None,
    threads: int | None = None,
) -> Simulation:
    """Replay a recorded run on another number of devices, and see where scaling ends.

    Args:
        trace: A Trace with its graph, an executor that recorded one, or the path of a saved one.
        devices: Number of devices; None for the recorded number.
        mode: "all_reduce" or "reduce"; None for the recorded mode.
        latency: Seconds that a message takes from one device to another.
        bandwidth: Bytes per second between devices; None if they share the memory of the recorded
            machine.
        cores: Number of cores that the devices share; None for those of the recorded machine, or
            for as many as they need if a bandwidth is given, since then each is its own machine.
        threads: Number of threads that run tasks; None for those of the recording.

    Returns:
        A view: a chart of step time and efficiency; `print` it for the figures.

    Raises:
        FileError: The file is damaged, empty, or no trace.
        ValueError: The trace cannot be replayed, or an argument is impossible.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import viz
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
        >>> how = fluid.ExecutionStrategy()
        >>> how.trace = True
        >>> two = fluid.CompiledProgram(main).with_data_parallel(
        ...     loss.name, exec_strategy=how, places=fluid.cpu_places(2)
        ... )
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     for step in range(3):
        ...         _ = exe.run(two, feed={"x": np.ones([4, 2], "float32")}, fetch_list=[loss])
        >>> eight = viz.simulate(two, devices=8)
        >>> isinstance(eight, viz.Simulation)
        True
    """
    if devices is not None and devices < 1:
        raise ValueError(f"devices must be at least 1, not {devices}")
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode must be {' or '.join(map(repr, MODES))}, not {mode!r}")
    if latency < 0 or (bandwidth is not None and bandwidth <= 0):
        raise ValueError(f"impossible link: latency {latency}, bandwidth {bandwidth}")
    if latency and bandwidth is None:
        raise ValueError("a link with a latency needs a bandwidth, too")
    if cores is not None and cores < 1:
        raise ValueError(f"cores must be at least 1, not {cores}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    return Simulation(as_trace(trace), devices, mode, Link(latency, bandwidth), cores, threads)
