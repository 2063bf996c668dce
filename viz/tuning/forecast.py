"""Forecasts of the savings by settings, from a recorded trace: simulated, or as upper bounds.

Modes and threads are simulated (`viz.simulate`). A pass replaces operators by others, whose time is
unknown before they run. But it saves at most the time that a step would save if the replaced
operators took no time, and a replay tells that (`viz.analyse(...).what_if`). Settings without a
model have no forecast and are only tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpexec.viz.measured.graph_facts import GraphFacts
from dpexec.viz.measured.predict import Link, Model
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.template import cores_of, templates, threads_of
from dpexec.viz.measured.what_if import what_if
from dpexec.viz.tuning.settings import Setting
from dpexec.viz.tuning.trial import Subject

from dpexec.engine.graph.kinds import ALL_REDUCE, MODES, REDUCE, Kind
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.passes.changes import label
from dpexec.engine.strategy.strategies import BuildStrategy
from dpexec.engine.trace import Trace

Basis = Literal["simulated", "at most", "no model"]

_TASKS = ("memory_optimize", "native_kernels", "enable_inplace", "skip_dead_ops")
"""Fields that are not passes: they change how tasks run."""


@dataclass(frozen=True)
class Forecast:
    """The expected saving by a setting.

    Args:
        saved: The saved share of a step; negative if it takes longer, None without a model.
        basis: The source of the forecast.
    """

    saved: float | None
    basis: Basis


_UNKNOWN = Forecast(None, "no model")


class Forecaster:
    """Forecasts for settings of a program.

    Args:
        subject: The program to tune.
        trace: A trace of some of its steps, with the user's settings.
    """

    def __init__(self, subject: Subject, trace: Trace) -> None:
        self.subject, self.trace = subject, trace
        self.schedule = Schedule(trace)
        assert self.schedule.facts is not None  # an engine's trace has its graph
        graph, self._ran = self._compiled(Setting())
        known = {label(node) for node in graph.ops}  # runs also know offsets that operators write
        labels = _labels_of(self.schedule.facts)
        self._nodes = {node: text for node, text in labels.items() if text in known}

    def of(self, setting: Setting) -> Forecast | None:
        """Return the forecast for a setting; None if it changes nothing."""
        threads = setting.execution.get("num_threads")
        if setting.execution.get("scheduler") == "sync":
            threads = 1
        if threads is not None:
            return self._simulated(threads=float(threads))
        if "reduce_strategy" in setting.build:
            reduces = setting.build["reduce_strategy"] == BuildStrategy.ReduceStrategy.Reduce
            return self._simulated(mode=REDUCE if reduces else ALL_REDUCE)
        if not setting.flags and setting.fields.keys() & {*_TASKS, "task_granularity"}:
            return _UNKNOWN
        return self._of_pass(setting)

    def _simulated(self, mode: Kind | None = None, threads: float | None = None) -> Forecast:
        """A forecast by the model of `viz.simulate`.

        Where some of the threads found no work, as tasks are short, further ones find none either.
        """
        cores, recorded = cores_of(self.trace), threads_of(self.trace)
        try:
            steps = templates(self.schedule, cores, recorded)
        except ValueError:  # collectives in the middle of a step: there is no model
            return _UNKNOWN
        kind, devices = MODES[self.trace.meta["mode"]], len(self.schedule.devices)
        now = Model(kind, kind, Link(), cores, recorded).step(steps, devices)
        used = max(len(step.joins) for step in steps)
        elsewhere = threads is not None and not (used < recorded and threads >= used)
        other = Model(kind, mode or kind, Link(), cores, threads or recorded, elsewhere)
        return Forecast(1 - other.step(steps, devices) / now if now else None, "simulated")

    def _of_pass(self, setting: Setting) -> Forecast | None:
        graph, modified = self._compiled(setting)
        passes = {name for name in setting.build if name in modified | self._ran}
        present = {label(node) for node in graph.ops}
        gone = {node for node, text in self._nodes.items() if text not in present}
        if not gone and not passes:
            return None
        if not gone:  # it only changes the order of operators, or the buckets of collectives
            return _UNKNOWN
        replays = what_if(self.schedule)
        return Forecast(replays.saved(lambda replay: _without(replay, gone)), "at most")

    def _compiled(self, setting: Setting) -> tuple[SSAGraph, set[str]]:
        graph, records = self.subject.compiled(setting)
        return graph, {record.name for record in records if record.modified}


def _labels_of(facts: GraphFacts) -> dict[int, str]:
    """By operator of a trace: the label that passes give it."""
    found = {}
    for node in facts.nodes:
        made = (facts.vars[var] for var in node["outputs"])
        names = dict.fromkeys(var["name"] for var in made if var["kind"] == "var" and var["name"])
        device = node["device"]
        where = "all devices" if device is None else f"device {device}"
        found[node["id"]] = f"{node['name']} -> {', '.join(names)} on {where}"
    return found


def _without(replay: Replay, gone: set[int]) -> float:
    """The seconds of a step if some operators, and tasks with only these, take no time."""
    activities = replay.activities
    runs, schedule = activities.runs.runs, activities.runs.schedule
    left = _left(schedule, gone)
    times, delays = replay.recorded.copy(), list(activities.delays)
    for at, one in enumerate(activities.all):
        nodes, key = schedule.nodes_of(one.piece), runs[one.run].key
        of_task = 1.0 if key is None else left[key]
        if not of_task:
            delays[at] = min(0.0, delays[at])
        times[at] *= sum(node not in gone for node in nodes) / len(nodes) if nodes else of_task
    return replay.seconds(times, delays)


def _left(schedule: Schedule, gone: set[int]) -> dict[str, float]:
    """By task: the share of its operators that remain."""
    tasks = schedule.facts.tasks if schedule.facts else {}
    return {
        key: sum(node not in gone for node in task["nodes"]) / len(task["nodes"])
        for key, task in tasks.items()
    }
