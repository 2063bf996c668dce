"""Rows on every device of ParallelDos, found out before a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpexec.engine.compile.plans.check import check_run
from dpexec.engine.compile.plans.collective_specs import samples_of
from dpexec.engine.compile.plans.collectives import on_place
from dpexec.engine.compile.plans.partition import Busy, live_nodes
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.places import CPUPlace, Place
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.feeds.splitting import Feeds, SplitTensor, even_rows
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.spec import array_spec

__all__ = ["busy_devices", "count_rows", "parts_of_rows", "split_pre_fetched", "splitter"]


def split_pre_fetched(graph: SSAGraph, feeds: Feeds) -> Feeds:
    """Feed the devices of ParallelDos: each its rows of the variables that are pre-fetched.

    Args:
        graph: the graph.
        feeds: the feeds of the device that the program runs on.

    Raises:
        EnforceNotMet: variables for one ParallelDo have different numbers of rows.
    """
    (outer,) = feeds.values
    values: list[dict[str, Any]] = [outer, *({} for _ in graph.places[1:])]
    rows: dict[int, int] = {}
    for body, names in graph.pre_fetched.items():
        fed = {name: outer[name] for name in names if name in outer}
        counts = {name: len(array) for name, array in fed.items()}
        if len(set(counts.values())) > 1:
            shown = " and ".join(f"{name} has {count}" for name, count in counts.items())
            raise EnforceNotMet(
                f"the inputs of a ParallelDo must have the same number of rows, but {shown}"
            )
        for name, array in fed.items():
            rows[body] = len(array)
            places = _places(graph, body)
            tensor = feeds.split.get(name)
            if tensor is None or tensor.places != places:
                at = CPUPlace() if isinstance(array, np.ndarray) else graph.places[0]
                tensor = _split(array, at, places)
            for device, part in zip(graph.bodies[body], tensor.parts, strict=True):
                if len(part):
                    values[device][name] = part
    samples = feeds.samples * len(graph.places)  # outside of a body they work for all of these
    return replace(feeds, values=values, samples=samples, rows=rows)


def splitter(graph: SSAGraph) -> Callable[[Mapping[str, LoDTensor]], dict[str, LoDTensor]] | None:
    """A function that splits the pre-fetched variables of a batch and copies rows to devices.

    Readers call it in their thread; None if nothing is pre-fetched.
    """
    ahead = {name: body for body, names in graph.pre_fetched.items() for name in names}

    def split(batch: Mapping[str, LoDTensor]) -> dict[str, LoDTensor]:
        made = dict(batch)
        for name in ahead.keys() & batch.keys():
            whole = batch[name]
            made[name] = _split(whole.array, whole.place, _places(graph, ahead[name]))
        return made

    return split if ahead else None


def _places(graph: SSAGraph, body: int) -> list[Place]:
    return [graph.places[device] for device in graph.bodies[body]]


def _split(array: Any, at: Place, places: Sequence[Place]) -> SplitTensor:
    parts, first = [], 0
    for place, count in zip(places, even_rows(len(array), len(places)), strict=True):
        parts.append(on_place(array[first : first + count], at, place))
        first += count
    return SplitTensor(array, places, parts)


def count_rows(graph: SSAGraph, feeds: Feeds, replicas: Replicas) -> dict[int, int]:
    """Numbers of rows of each ParallelDo, by the number of its block.

    Args:
        graph: the graph.
        feeds: from :func:`split_pre_fetched`, whose counts are taken over.
        replicas: the persistable variables.

    Raises:
        EnforceNotMet: a value is missing, or shapes or types do not fit.
    """
    rows = dict(feeds.rows)
    while True:
        nodes, missing = live_nodes(graph, feeds.idle, feeds.names, busy_devices(graph, rows))
        unknown = (n for n, node in enumerate(nodes) if node.does.splits)
        end = next((n for n in unknown if nodes[n].body not in rows), None)
        if end is None:
            return rows
        known = [{name: array_spec(a) for name, a in values.items()} for values in feeds.values]
        specs = check_run(graph, nodes[: end + 1], missing, known, replicas)
        rows[nodes[end].body] = samples_of(specs[0][nodes[end].inputs[0].name])


def busy_devices(graph: SSAGraph, rows: Mapping[int, int]) -> Busy:
    """How many devices of each ParallelDo get rows."""
    return tuple((body, min(count, len(graph.bodies[body]))) for body, count in rows.items())


def parts_of_rows(graph: SSAGraph, rows: Mapping[int, int]) -> list[dict[int, tuple[int, int]]]:
    """Per device, its first row and number of rows in each ParallelDo."""
    parts: list[dict[int, tuple[int, int]]] = [{} for _ in graph.places]
    for body, count in rows.items():
        first, devices = 0, graph.bodies[body]
        for device, share in zip(devices, even_rows(count, len(devices)), strict=True):
            parts[device][body] = first, max(share, 1)
            first += share
    return parts
