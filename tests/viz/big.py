"""A graph of 10,000 operators and a trace of 100,000 slices, for tests of size limits."""

from __future__ import annotations

from functools import cache
from typing import Any

from dpexec.engine.trace import Event, Trace
from tests.viz.graphs import mlp

LAYERS = 555
STEPS = 10


@cache
def graph() -> dict[str, Any]:
    """The graph file of a perceptron with 2 replicas and 10,002 operators."""
    return mlp(devices=2, layers=LAYERS).data()


@cache
def trace() -> Trace:
    """Every operator once per step, each a few microseconds, on a thread per device."""
    events = []
    clocks = [0.0, 0.0]
    for step in range(STEPS):
        for node in graph()["nodes"]:
            start = max(clocks) if node["device"] is None else clocks[node["device"]]
            stop = start + (1 + node["id"] % 7) * 1e-6
            clocks = [stop if node["device"] in (None, d) else clocks[d] for d in (0, 1)]
            kind = "collective" if node["device"] is None else "op"
            thread = node["device"] or 0
            events.append(
                Event(
                    node["name"],
                    kind,
                    node["device"],
                    f"op-{node['id']}",
                    start,
                    stop,
                    thread,
                    node=node["id"],
                    step=step,
                )
            )
    events.sort(key=lambda event: event.start)
    return Trace(tuple(events), {"steps": STEPS}, graph())
