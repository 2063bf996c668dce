"""What a run of a program with ParallelDos needs to know beforehand: rows on every device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpexec.errors import EnforceNotMet
from dpexec.graph.ssa import SSAGraph
from dpexec.runtime.check import check_run
from dpexec.runtime.feed import Feeds, even_rows
from dpexec.runtime.partition import Busy, live_nodes
from dpexec.runtime.replicas import Replicas

__all__ = ["busy_devices", "count_rows", "parts_of_rows", "split_pre_fetched"]


def split_pre_fetched(graph: SSAGraph, feeds: Feeds) -> Feeds:
    """Feed the devices of ParallelDos: each its rows of the variables that are pre-fetched.

    Args:
        graph: the graph.
        feeds: of the device that the program runs on.

    Raises:
        EnforceNotMet: variables for one ParallelDo have different numbers of rows.
    """
    (outer,) = feeds.values
    values: list[dict[str, Any]] = [dict(outer), *({} for _ in graph.places[1:])]
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
            first = 0
            for device, count in zip(*_shares(graph, body, len(array)), strict=True):
                if count:
                    values[device][name] = array[first : first + count]
                first += count
            if graph.latest(name, 0) is None:
                values[0].pop(name, None)
    samples = [*feeds.samples, *(1 for _ in graph.places[1:])]
    return replace(feeds, values=values, samples=samples, rows=rows)


def _shares(graph: SSAGraph, body: int, rows: int) -> tuple[list[int], list[int]]:
    devices = graph.bodies[body]
    return devices, even_rows(rows, len(devices))


def count_rows(graph: SSAGraph, feeds: Feeds, replicas: Replicas) -> dict[int, int]:
    """How many rows each ParallelDo gets, by the number of its block.

    Args:
        graph: the graph.
        feeds: from :func:`split_pre_fetched`, whose counts are taken over.
        replicas: the persistable variables.

    Raises:
        EnforceNotMet: a value is missing, or shapes or types do not fit.
    """
    rows = dict(feeds.rows)
    fed = {name for values in feeds.values for name in values}
    while True:
        nodes, missing = live_nodes(graph, feeds.idle, fed, busy_devices(graph, rows))
        unknown = (n for n, node in enumerate(nodes) if node.kind == "split")
        end = next((n for n in unknown if nodes[n].body not in rows), None)
        if end is None:
            return rows
        specs = check_run(graph, nodes[: end + 1], missing, feeds.values, replicas)
        rows[nodes[end].body] = specs[0][nodes[end].inputs[0].name].shape[0]


def busy_devices(graph: SSAGraph, rows: Mapping[int, int]) -> Busy:
    """How many devices of each ParallelDo get rows."""
    return tuple((body, min(count, len(graph.bodies[body]))) for body, count in rows.items())


def parts_of_rows(graph: SSAGraph, rows: Mapping[int, int]) -> list[dict[int, tuple[int, int]]]:
    """Per device, its first row and number of rows in each ParallelDo."""
    parts: list[dict[int, tuple[int, int]]] = [{} for _ in graph.places]
    for body, count in rows.items():
        first = 0
        for device, share in zip(*_shares(graph, body, count), strict=True):
            parts[device][body] = first, max(share, 1)
            first += share
    return parts
