"""Advice on tables that Reduce mode sends whole, although steps change a few of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from dpexec.viz.advising.waits import Advice, worth
from dpexec.viz.measured.graph_facts import GraphFacts
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.what_if import WhatIf
from dpexec.viz.pages.units import bytes_text, shortened

from dpexec.engine.graph.kinds import BROADCAST, REDUCE
from dpexec.engine.ir.roles import GRAD_SUFFIX

_MORE = 2
"""How many times the bytes of its gradient a table must have to be worth a sentence."""

_NAME = 40


def tables_advice(schedule: Schedule, what_if: WhatIf) -> Iterator[Advice]:
    """Say what a step would save if the rows of sparse gradients were sent, and not tables.

    Args:
        schedule: The trace.
        what_if: Replays of steps.
    """
    facts = schedule.facts
    if facts is None:
        return
    tables = _tables(facts)
    if not tables:
        return
    size = sum(tables.values())
    rows = _bytes_of_rows(schedule, facts)
    if rows is None or size < _MORE * rows:
        return
    nodes = tuple(n["id"] for n in facts.nodes if n["kind"] == BROADCAST.name)
    saved = what_if.saved(lambda replay: _without(replay, facts, tables))
    name, more = shortened(next(iter(tables)), _NAME), len(tables) - 1
    which = f"{name} and {more} more tables" if more else name
    text = (
        f"Reduce mode sends {which} to all devices after each update, {bytes_text(size)}, though "
        f"the gradients are sparse: their rows take {bytes_text(rows)}; AllReduce mode "
        "(BuildStrategy.reduce_strategy) sends these alone"
    )
    yield Advice(worth(text, saved), nodes, saved)


def sparse_gradients(schedule: Schedule) -> bool:
    """Whether collectives combine gradients of unknown size: rows of tables."""
    facts = schedule.facts
    if facts is None:
        return False
    combined = (node for node in facts.nodes if node["role"] == "collective")
    return any(var["bytes"] is None for node in combined for var in _variables(facts, node))


def _tables(facts: GraphFacts) -> dict[str, int]:
    """Bytes of parameters that are broadcast and have a sparse gradient, by name."""
    sparse = {
        var["name"].partition(GRAD_SUFFIX)[0]
        for var in facts.vars
        if GRAD_SUFFIX in var["name"] and var["bytes"] is None
    }
    found: dict[str, int] = {}
    for node in facts.nodes:
        if node["kind"] == BROADCAST.name:
            for var in _variables(facts, node):
                if var["name"] in sparse and var["bytes"]:
                    found[var["name"]] = var["bytes"]
    return found


def _variables(facts: GraphFacts, node: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [facts.vars[number] for number in node["outputs"]]


def _bytes_of_rows(schedule: Schedule, facts: GraphFacts) -> int | None:
    """Bytes of the sparse gradients that a device gives in a step; None if they are unknown."""
    sparse = {
        node["id"]
        for node in facts.nodes
        if node["kind"] == REDUCE.name
        and any(var["bytes"] is None for var in _variables(facts, node))
    }
    sums = []
    for step in schedule.middle:
        events = (schedule.by_id[index].event for index in step.slices)
        sizes: dict[int, int] = {}
        for event in events:
            if event.node in sparse and event.args.get("bytes"):
                sizes[event.node] = event.args["bytes"]
        sums.append(sum(sizes.values()))
    return round(median(sums)) or None if sums else None


def _without(replay: Replay, facts: GraphFacts, tables: Mapping[str, int]) -> float:
    """Seconds of a step in which broadcasts of tables take the time of their other bytes."""
    times = replay.recorded.copy()
    for at, one in enumerate(replay.activities.all):
        node = facts.by_id.get(-1 if one.piece.event.node is None else one.piece.event.node)
        if node is None or node["kind"] != BROADCAST.name:
            continue
        sizes = {var["name"]: var["bytes"] or 0 for var in _variables(facts, node)}
        whole = sum(sizes.values())
        left = sum(size for name, size in sizes.items() if name not in tables)
        times[at] *= left / whole if whole else 1.0
    return replay.seconds(times)
