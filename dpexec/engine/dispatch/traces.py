"""The trace of an engine: recorded events with the graph and the use of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpexec.engine.compile.bindings.kernel_listings import add_kernels
from dpexec.engine.compile.bindings.memory_use import stored
from dpexec.engine.compile.bindings.notes import CodeNotes
from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.core.places import available_cpus
from dpexec.engine.core.version import __version__
from dpexec.engine.graph.describe import describe
from dpexec.engine.run.trainers.exchange import TrainerExchange
from dpexec.engine.trace import between
from dpexec.engine.trace.events import Allocation, Trace
from dpexec.engine.trace.recorder import Notes, Recorder

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.binding import Binding
    from dpexec.engine.compile.plans.plan import Plan
    from dpexec.engine.dispatch.engine import Engine

__all__ = ["profile_of", "trace_of"]

_SAID = (bool, int, str)
"""The types of the fields of a BuildStrategy that traces tell."""


@no_cycles_sought()  # of a large net, the search took half of the time
def trace_of(engine: Engine, recorder: Recorder) -> Trace:
    """The trace of an engine's recorded steps.

    The graph is that of the plan of the last step, with the shapes of its batch.

    Args:
        engine: the engine that ran.
        recorder: it recorded this engine alone.
    """
    latest = recorder.latest
    if latest is None:
        return recorder.trace(**_facts(engine))
    binding: Binding = latest.binding
    plan = binding.plan
    passes = [record.to_json() for record in engine.pass_records]
    graph = describe(plan.graph, plan.tasks, passes, binding.specs)
    add_kernels(graph, binding, isinstance(latest, CodeNotes), isinstance(engine.scheduler, str))
    trace = recorder.trace(graph, **_facts(engine))
    trace = replace(trace, meta={**trace.meta, **_waits(engine, latest, *trace.span)})
    shared = engine.compilation.options.shared_memory or len(engine.places) == 1
    standing = _standing(binding, shared, trace.span[0])
    return replace(trace, memory=(*standing, *trace.memory))


def profile_of(recorder: Recorder) -> Trace:
    """The trace of recorded steps of any engines.

    The graph is that of the plan that took the most time; events of others refer to nothing.

    Args:
        recorder: the recorder of these steps.
    """
    seconds: dict[Plan, float] = {}
    latest: dict[Plan, Binding] = {}
    for binding, recorded in recorder.steps():
        rows = list(recorded.rows())
        took = max(row[5] for row in rows) - min(row[4] for row in rows)
        seconds[binding.plan] = seconds.get(binding.plan, 0.0) + took
        latest[binding.plan] = binding
    if not seconds:
        return recorder.trace()
    plan = max(seconds, key=seconds.__getitem__)
    graph = describe(plan.graph, plan.tasks, specs=latest[plan].specs)
    facts = {"version": __version__, "cpus": available_cpus(), "mode": plan.graph.mode}
    return recorder.trace(graph, lambda binding: binding.plan is plan, **facts)


def _facts(engine: Engine) -> dict[str, Any]:
    strategy, build = engine.execution_strategy, engine.build_strategy
    fields = () if build is None else build.fields()
    return {
        "version": __version__,
        "scheduler": engine.scheduler if isinstance(engine.scheduler, str) else "distributed",
        "num_threads": engine.num_threads if strategy is not None else 1,
        "cpus": available_cpus(),
        "devices": len(engine.places),
        "places": [str(place) for place in engine.places],
        "mode": engine.graph.mode,
        "native": dict(engine.compilation.native),
        "build": {name: value for name in fields if type(value := getattr(build, name)) in _SAID},
    }


def _waits(engine: Engine, latest: Notes, start: float, stop: float) -> dict[str, Any]:
    """Waits for processors, for other trainers and for batches, and when steps were prepared."""
    agreement = engine.runner.agreement
    meetings = agreement.meetings if isinstance(agreement, TrainerExchange) else ()
    samples = latest.processors
    found: dict[str, Any] = {
        "processors": samples.between(start, stop),
        "resident": samples.resident(start, stop),
    }
    apart = [("meetings", meetings), *between.spans.items()]
    for name, spans in apart:
        times = [[round(each * 1e-9, 6) for each in span] for span in spans]
        found[name] = [[begun, end] for begun, end in times if start <= begun <= stop]
    shapes = ((round(at * 1e-9, 6), name, list(shape)) for at, name, shape in between.shapes)
    found["shapes"] = [[at, name, shape] for at, name, shape in shapes if start <= at <= stop]
    return {name: rows for name, rows in found.items() if rows}


def _standing(binding: Binding, shared: bool, time: float) -> Iterator[Allocation]:
    """Memory that is in use all the time: parameters, states, and that of machine code."""
    plan = binding.plan
    yield from stored(plan, binding.specs, shared, time)
    for (use, number, *_), nbytes in binding.memory.sizes.items():
        task = plan.tasks[number] if number < len(plan.tasks) else None
        if nbytes and task is not None and use != "sum":  # sums are values themselves
            yield Allocation(time, task.device or 0, f"{use} of {task.key[0]}", nbytes, "arena")
