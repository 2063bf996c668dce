"""Finds equal consecutive blocks of a network, such as encoder layers.

Operators are compared by type, shapes and inputs, in the order in which they were written. A run of
blocks is a stretch of operators that repeats with a period, and in which every block has the links
of the first one: the blocks are isomorphic graphs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any

import numpy as np
from dpexec.viz.pages.load import GraphData

__all__ = ["Region", "Run", "repeats"]

_PERIODS = 48  # how many distances between equal operators are tried, the most frequent first
_LONG = 4  # operators; shorter blocks must occur three times
_NEXT = 8  # the most equal operators within one block
_RUNS = 64
_NUMBER = re.compile(r"(\d+)(?!.*\d)")


@dataclass(frozen=True, slots=True)
class Region:
    """One of the operators that are compared.

    Args:
        node: Its number in the graph.
        what: A value that is equal for operators that do the same.
        reads: The earlier operators that it reads, by position in the sequence; None for inputs
            from elsewhere.
        parametric: Whether it reads parameters.
    """

    node: int
    what: object
    reads: tuple[int | None, ...]
    parametric: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Equal consecutive blocks.

    Args:
        name: Name of a block, without its number.
        blocks: By block: the operators, as numbers in the graph.
        scopes: Number of outer name scopes that all blocks have in common.
        named: Whether every block has its own name scope after those.
        numbers: The number of each block: that of its name scope, else from 1.
    """

    name: str
    blocks: tuple[tuple[int, ...], ...]
    scopes: int
    named: bool
    numbers: tuple[int, ...]


def repeats(data: GraphData) -> list[Run]:
    """Return the runs of equal blocks in the forward part of a graph, on its first device.

    Args:
        data: The content of a graph file.
    """
    sequence = _sequence(data)
    found: list[Run] = []
    free = [(0, len(sequence))]
    while free and len(found) < _RUNS:
        start, stop = free.pop()
        best = _longest(sequence[start:stop])
        if best is None:
            continue
        first, period, length = best
        begin = _phase(data, sequence, start + first, period, length)
        count = (start + first + length - begin) // period
        count = _isomorphic(sequence, begin, period, count)
        end = begin + period * count
        if count > 1:
            cuts = range(begin, end, period)
            blocks = [tuple(it.node for it in sequence[cut : cut + period]) for cut in cuts]
            found += _run(data, blocks)
        free += [(start, begin), (end, stop)]
    return sorted(found, key=lambda run: run.blocks[0][0])


def _sequence(data: GraphData) -> list[Region]:
    """The forward operators of the first device."""
    nodes = [node for node in data["nodes"] if node["role"] == "forward"]
    first = min((node["device"] for node in nodes if node["device"] is not None), default=None)
    chosen = [node for node in nodes if node["device"] == first]
    values = data["vars"]
    writer = {var: at for at, node in enumerate(chosen) for var in node["outputs"]}
    made = []
    for node in chosen:
        inputs = [var for var in node["inputs"] if values[var]["kind"] == "var"]
        kept = [var for var in inputs if values[var]["persistable"]]
        outputs = [var for var in node["outputs"] if values[var]["kind"] == "var"]
        shapes = [tuple(tuple(values[var]["shape"]) for var in side) for side in (kept, outputs)]
        what = (node["name"], *shapes, len(inputs), len(node.get("body", ())))
        reads = tuple(writer.get(var) for var in inputs if not values[var]["persistable"])
        made.append(Region(node["id"], what, reads, bool(kept)))
    return made


def _longest(sequence: Sequence[Region]) -> tuple[int, int, int] | None:
    """The longest periodic stretch: first operator, period, number of operators."""
    numbers: dict[object, int] = {}
    codes = np.array([numbers.setdefault(it.what, len(numbers)) for it in sequence], np.int64)
    best: tuple[int, int, int] | None = None
    covered = 0
    for period in _periods(codes):
        same = np.concatenate(([False], codes[period:] == codes[:-period], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1])
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            length = stop - start + period
            size = length // period * period
            enough = length >= (2 if period >= _LONG else 3) * period
            if enough and size > covered:  # the shortest of equal periods comes first
                best, covered = (start, period, length), size
    return best


def _periods(codes: np.ndarray[Any, Any]) -> list[int]:
    """The most frequent distances between equal operators, shortest first."""
    seen: Counter[int] = Counter()
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    for ahead in range(1, _NEXT + 1):
        alike = ranked[ahead:] == ranked[:-ahead]
        distances = (order[ahead:] - order[:-ahead])[alike]
        values, counts = np.unique(distances, return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            seen[value] += count
    ranking = sorted(seen, key=lambda period: (-seen[period], period))[:_PERIODS]
    return sorted(period for period in ranking if 2 * period <= len(codes))


def _phase(
    data: GraphData, sequence: Sequence[Region], first: int, period: int, length: int
) -> int:
    """The beginning of the blocks: where name scopes and layers change, and few values pass.

    A periodic stretch can be cut anywhere in its first period, which loses at most one block.
    """
    end, least = first + length, max(2, length // period - 1)
    choices = [b for b in range(first, first + period) if (end - b) // period >= least]

    def quality(begin: int) -> tuple[int, int, bool, bool, int]:
        cut = begin + period
        last, next_ = (data["nodes"][sequence[at].node] for at in (cut - 1, cut))
        reads = {at for it in sequence[cut : cut + period] for at in it.reads if at is not None}
        passing = sum(begin <= at < cut for at in reads)
        same = _common([_scopes(last), _scopes(next_)])
        within = last["layer"] == next_["layer"]
        return same, passing, within, not sequence[cut].parametric, begin

    return min(choices, key=quality)


def _isomorphic(sequence: Sequence[Region], begin: int, period: int, count: int) -> int:
    """The number of blocks whose inner links are those of the first one."""
    model = [_links(sequence[begin + at], begin) for at in range(period)]
    for block in range(1, count):
        start = begin + block * period
        if any(_links(sequence[start + at], start) != model[at] for at in range(period)):
            return block
    return count


def _links(it: Region, start: int) -> tuple[int | None, ...]:
    """The inputs of an operator, by position in its block; None for those from outside."""
    return tuple(None if at is None or at < start else at - start for at in it.reads)


# ---- names


def _scopes(node: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in node["scope"].split("/") if name)


def _common(paths: Iterable[tuple[str, ...]]) -> int:
    """The number of leading names that all paths have in common."""
    columns = zip(*paths, strict=False)
    return sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, columns))


def _run(data: GraphData, blocks: Sequence[tuple[int, ...]]) -> list[Run]:
    """The run with these blocks; none if the user gave them different names."""
    nodes = data["nodes"]
    paths = [{_scopes(nodes[node]) for node in block} for block in blocks]
    common = _common(chain.from_iterable(paths))
    own = [{path[common : common + 1] for path in found} for found in paths]
    scoped = all(len(names) == 1 and names != {()} for names in own)
    if scoped and len(set(map(tuple, own))) == len(blocks):
        around = next(iter(paths[0]))[:common]
        names = {_NUMBER.sub("", name).strip("_-./") for ((name,),) in own}
        named = " ".join([*around[-1:], *(names or ("block",))])
        if len(names) != 1:
            return []
        numbers = _numbers([name for ((name,),) in own])
        return [Run(named, tuple(blocks), common, True, numbers)]
    layers = [list(dict.fromkeys(nodes[node]["layer"] for node in block)) for block in blocks]
    name = _counted_name(layers) or _holds(data, blocks[0])
    return [Run(name, tuple(blocks), common, False, tuple(range(1, len(blocks) + 1)))]


def _numbers(names: Sequence[str]) -> tuple[int, ...]:
    """The numbers that the user gave to blocks; from 1 if some have none."""
    found = [int(it[0]) for name in names if (it := _NUMBER.search(name))]
    usual = tuple(range(1, len(names) + 1))
    return tuple(found) if found == sorted({*found}) and len(found) == len(names) else usual


def _counted_name(layers: Sequence[Sequence[str]]) -> str:
    """The text before the number that counts the blocks in names of layers."""
    stems: Counter[str] = Counter()
    for name in layers[0]:
        for number in re.finditer(r"\d+", name):
            before, after = name[: number.start()], name[number.end() :]
            others = (f"{before}{int(number[0]) + k}{after}" for k in range(len(layers)))
            if after and all(other in found for other, found in zip(others, layers, strict=True)):
                stems[before.strip("_-./")] += 1
    return max(stems, key=stems.__getitem__) if stems else ""


def _holds(data: GraphData, block: Sequence[int]) -> str:
    """The layers with parameters in a block, else its operators, with their counts."""
    nodes, values = [data["nodes"][node] for node in block], data["vars"]
    layers = {
        node["layer"]: re.sub(r"_\d+$", "", node["layer"])
        for node in nodes
        if node["layer"] and any(values[var]["persistable"] for var in node["inputs"])
    }
    names = list(layers.values()) or [node["name"] for node in nodes]
    found = [f"{n} {name}" if n > 1 else name for name, n in Counter(names).most_common(3)]
    return f"[{' + '.join(found)}]" if len(found) > 1 else found[0]
