"""Loads the data of views from live objects, or from the files that they were saved to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Set
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from dpexec.engine.core.places import CPUPlace
from dpexec.engine.graph import describe as graph_file
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.program import Program
from dpexec.engine.trace import Event, Trace, TraceFormatError, from_chrome
from dpexec.engine.trace.events import FORMAT as TRACE_FORMAT
from dpexec.engine.trace.files import unpacked

__all__ = ["FileError", "GraphData", "as_graph", "as_trace"]

GraphData = dict[str, Any]
"""The content of a graph file; `dpexec.engine.graph.describe` says what it holds."""

_Made = TypeVar("_Made")
_Types = dict[str, tuple[type, ...]]
_DEVICE: _Types = {"id": (int,), "place": (str,)}
_VAR: _Types = {
    "name": (str,),
    "version": (int,),
    "device": (int, type(None)),
    "kind": (str,),
    "shape": (list, tuple),
    "dtype": (str, type(None)),
    "bytes": (int, type(None)),
    "persistable": (bool,),
}
_NODE: _Types = {
    "id": (int,),
    "name": (str,),
    "kind": (str,),
    "device": (int, type(None)),
    "role": (str,),
    "scope": (str,),
    "layer": (str,),
    "line": (str, type(None)),
    "inputs": (list, tuple),
    "outputs": (list, tuple),
}
_MAYBE: _Types = {  # fields of a node that older files may lack
    "flops": (int, type(None)),
    "bytes": (int, type(None)),
    "parts": (list, tuple),
    "body": (list, tuple),
    "kernels": (list, tuple),
}
_LISTING: _Types = {"name": (str,), "kind": (str,), "takes": (str,), "source": (str,)}
_PASS: _Types = {
    "name": (str,),
    "before": (int,),
    "after": (int,),
    "added": (list, tuple),
    "removed": (list, tuple),
    "changed": (list, tuple),
}
_ROWS = {
    "processors": 3,
    "resident": 2,
    "meetings": 2,
    "preparing": 2,
    "reading": 2,
    "recovering": 2,
}
"""Facts of a trace that are rows of so many numbers."""
_AMOUNTS = ("bytes", "waited", "awaited", "busy")  # facts of an event that are numbers
_LARGEST = 1e12
"""Seconds, and more steps than any run has: larger ones are damage, and no view can draw them."""
_TASK: _Types = {
    "key": (str,),
    "device": (int, type(None)),
    "nodes": (list, tuple),
    "after": (list, tuple),
}


class FileError(ValueError):
    """A file is damaged, empty, or not written by dpexec.

    Example:
        >>> import pathlib, tempfile
        >>> from dpexec import viz
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "trace.json")
        ...     _ = path.write_text("")
        ...     try:
        ...         viz.timeline(path)
        ...     except viz.FileError as error:
        ...         print("empty" in str(error))
        True
    """


def as_graph(source: Any) -> GraphData:
    """The content of a graph file, from any source of it.

    Args:
        source: a Program, SSAGraph, Plan, Trace, ParallelExecutor or CompiledProgram, a predictor,
            the path of a saved graph, plan or trace, or such a file's content.

    Returns:
        What `dpexec.engine.graph.describe.describe` returns.

    Raises:
        FileError: the file is damaged, empty, or of another kind.
        OSError: there is no such file.
        TypeError: the source has no graph.
        EnforceNotMet: the executor has not run yet.
    """
    if isinstance(source, (str, os.PathLike)):
        return _named(Path(source), as_graph)
    if isinstance(source, Mapping):
        if source.get("format") == TRACE_FORMAT or "traceEvents" in source:
            return as_graph(as_trace(source))
        return _checked(source)
    if isinstance(source, Trace):
        if source.graph is None:
            raise FileError("the trace has no graph: it was recorded without one")
        return _checked(source.graph)
    if isinstance(source, Program):
        return program_graph(source).to_json()
    if isinstance(source, SSAGraph) or _is_plan(source):
        described: GraphData = source.to_json()
        return described
    if hasattr(type(source), "graph") and hasattr(type(source), "plan"):
        return as_graph(source.graph)
    if callable(getattr(source, "program", None)):
        return as_graph(source.program())
    raise TypeError(
        f"cannot draw an object of type {type(source).__name__}: it takes a Program, an SSAGraph, "
        "a Plan, a Trace, a ParallelExecutor or CompiledProgram that ran, a predictor, or the path "
        "of a saved one"
    )


def as_trace(source: Any) -> Trace:
    """A trace, from any source of it.

    Args:
        source: a Trace, a ParallelExecutor or CompiledProgram that recorded one, the path of a
            saved trace, or such a file's content.

    Raises:
        FileError: the file is damaged, empty or of another kind, or the trace has no events.
        OSError: there is no such file.
        TypeError: the source has no trace.
        RuntimeError: nothing was recorded.
    """
    if isinstance(source, (str, os.PathLike)):
        return _named(Path(source), as_trace)
    if isinstance(source, Mapping):
        try:
            chrome = "traceEvents" in source
            source = from_chrome(source) if chrome else Trace.from_json(source)
        except TraceFormatError as error:
            raise FileError(str(error)) from error
        except OverflowError as error:
            raise FileError("the trace is damaged: a time is out of all bounds") from error
        _check_trace(source)
    elif not isinstance(source, Trace):
        if not hasattr(type(source), "trace"):
            raise TypeError(
                f"an object of type {type(source).__name__} has no trace: this takes a Trace, a "
                "ParallelExecutor or CompiledProgram with ExecutionStrategy.trace, or the path of "
                "a saved trace"
            )
        source = source.trace
    if not len(source):
        raise FileError("the trace has no events: nothing ran while it was recorded")
    trace: Trace = source
    return trace


def _check_trace(trace: Trace) -> None:
    """Reject a trace from a file whose graph is damaged, or does not fit its events."""
    for name in ("num_threads", "cpus"):
        if not isinstance(trace.meta.get(name, 1), int):
            raise FileError(f"the trace is damaged: {name} is {trace.meta[name]!r:.80}")
    for name, width in _ROWS.items():
        rows = trace.meta.get(name, [])
        if not isinstance(rows, list) or not all(_is_row(row, width) for row in rows):
            raise FileError(f"the trace is damaged: {name} are no rows of {width} numbers")
    shapes = trace.meta.get("shapes", [])
    if not isinstance(shapes, list) or not all(map(_is_shape, shapes)):
        raise FileError("the trace is damaged: shapes are no rows of time, name and numbers")
    for number, event in enumerate(trace.events):
        _check_event(number, event)
    if not all(abs(row.time) < _LARGEST for row in trace.memory):
        raise FileError("the trace is damaged: a time of its memory is out of all bounds")
    if trace.graph is None:
        return
    count = len(_checked(trace.graph)["nodes"])
    devices = {None, *(device["id"] for device in trace.graph["devices"])}
    for number, event in enumerate(trace.events):
        if event.device not in devices:
            raise FileError(f"event {number} of the trace is of device {event.device}")
        if event.node is not None and not 0 <= event.node < count:
            raise FileError(f"event {number} of the trace is of operator {event.node}, of {count}")


def _is_row(row: Any, width: int) -> bool:
    return isinstance(row, list) and len(row) == width and all(map(_is_number, row))


def _is_shape(row: Any) -> bool:
    if not isinstance(row, list) or len(row) != 3:
        return False
    time, name, shape = row
    sizes = isinstance(shape, list) and all(map(_is_number, shape))
    return sizes and _is_number(time) and isinstance(name, str)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _LARGEST


def _check_event(number: int, event: Event) -> None:
    """Reject times and steps that no run has, and facts that are no numbers."""
    is_fine = 0 <= event.step < _LARGEST and -_LARGEST < event.start <= event.stop < _LARGEST
    args = event.args
    if args:
        is_fine = is_fine and all(
            type(args[name]) in (int, float) for name in _AMOUNTS if args.get(name) is not None
        )
    if not is_fine:
        raise FileError(f"event {number} of the trace is damaged: {event!r:.200}")


def program_graph(program: Program) -> SSAGraph:
    """A program as a graph of one device, each operator as it was written.

    Raises:
        ValueError: the program has no operators.
    """
    if not program.global_block().ops:
        raise ValueError("the program has no operators yet: there is nothing to draw")
    return build_ssa_graph(program, [CPUPlace()], ReplicationOptions(scale_loss_grad=False))


def _is_plan(source: object) -> bool:
    return hasattr(source, "tasks") and hasattr(source, "to_json")


def _named(path: Path, take: Callable[[Any], _Made]) -> _Made:
    """The content of a file; errors name the file."""
    content = _read(path)
    try:
        return take(content)
    except FileError as error:
        raise FileError(f"{path.name}: {error}") from error


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = unpacked(path).decode(errors="replace")
    except TraceFormatError as error:
        raise FileError(str(error)) from error
    if not text.strip():
        raise FileError(f"{path.name} is empty")
    try:
        data = json.loads(text, parse_constant=_refused)
    except ValueError as error:
        what = "is damaged, was cut off, or is no JSON file"
        raise FileError(f"{path.name} {what}: {error}") from error
    formats = (graph_file.FORMAT, TRACE_FORMAT)
    if isinstance(data, dict) and "traceEvents" in data:
        return data
    if not isinstance(data, dict) or data.get("format") not in formats:
        kind = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise FileError(
            f"{path.name} is none of dpexec's files: its format is {kind!r}, not one of "
            f"{', '.join(formats)}"
        )
    return data


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def _checked(data: Mapping[str, Any]) -> GraphData:
    """The content of a graph file, after checks of all fields that views rely on."""
    if data.get("format") != graph_file.FORMAT:
        raise FileError(f"not a graph of dpexec: format is {data.get('format')!r}")
    if data.get("version") != graph_file.VERSION:
        raise FileError(
            f"graph file version {data.get('version')!r}; this dpexec reads version "
            f"{graph_file.VERSION}"
        )
    if not isinstance(data.get("title"), str):
        raise FileError("the graph file lacks its title")
    _check_fields(data)
    _check_edges(data)
    if not data["nodes"]:
        raise FileError("the graph has no operators: there is nothing to draw")
    return dict(data)


def _check_fields(data: Mapping[str, Any]) -> None:
    parts = [("devices", _DEVICE), ("vars", _VAR), ("nodes", _NODE)]
    if data.get("passes") is not None:
        parts.append(("passes", _PASS))
    if "tasks" in data:
        parts += [("tasks", _TASK), ("nodes", {"task": (str, type(None))})]
    for part, fields in parts:
        rows = data.get(part)
        if not isinstance(rows, list):
            raise FileError(f"a graph file needs a list of {part}")
        _check_rows(part, rows, fields)
    _check_rows("nodes", data["nodes"], _MAYBE, needed=False)
    _check_texts(data)
    for number, var in enumerate(data["vars"]):
        if not all(isinstance(dim, int) for dim in var["shape"]):
            raise FileError(f"vars[{number}] of the graph file is damaged: its shape")


def _check_rows(part: str, rows: list[Any], fields: _Types, needed: bool = True) -> None:
    """Reject rows that lack a field, or have a value of another type in it."""
    if set(map(type, rows)) - {dict} or (needed and not _all_have(rows, fields.keys())):
        for number, row in enumerate(rows):
            if not isinstance(row, dict) or (needed and not fields.keys() <= row.keys()):
                raise FileError(f"{part}[{number}] of the graph file is damaged: {row!r:.80}")
    for name, allowed in fields.items():
        having = rows if needed else [row for row in rows if name in row]
        kinds = set(map(type, map(itemgetter(name), having)))  # few, however many rows
        if all(issubclass(kind, allowed) for kind in kinds):
            continue
        for number, row in enumerate(rows):
            if name in row and not isinstance(row[name], allowed):
                raise FileError(f"{part}[{number}] of the graph file is damaged: {row!r:.80}")


def _all_have(rows: list[Any], names: Set[str]) -> bool:
    """Whether all rows have some fields; rows of one part are of few shapes."""
    return all(names <= set(shape) for shape in set(map(tuple, rows)))


def _check_texts(data: Mapping[str, Any]) -> None:
    """Reject damaged texts; older files have no texts."""
    listings = data.get("listings", [])
    if not isinstance(listings, list):
        raise FileError("listings of the graph file is no list")
    _check_rows("listings", listings, _LISTING)
    known = range(len(listings))
    for name in ("lines", "declarations"):
        if not isinstance(data.get(name, {}), dict):
            raise FileError(f"{name} of the graph file is no object")
    numbers = [*data.get("declarations", {}).values()]
    numbers += (number for node in data["nodes"] for number in node.get("kernels", ()))
    if not all(isinstance(number, int) and number in known for number in numbers):
        raise FileError("the graph file refers to a listing that is not there")


def _check_edges(data: Mapping[str, Any]) -> None:
    """Reject edges to missing nodes, and nodes that come before the nodes they read."""
    count = len(data["vars"])
    for number, node in enumerate(data["nodes"]):
        edges = [*node["inputs"], *node["outputs"]]
        if node["id"] != number or not all(isinstance(v, int) and 0 <= v < count for v in edges):
            raise FileError(f"nodes[{number}] of the graph file refers to what is not there")
    nodes = len(data["nodes"])
    for number, task in enumerate(data.get("tasks", ())):
        known = all(isinstance(n, int) and 0 <= n < nodes for n in task["nodes"])
        if not known or not task["nodes"] or not all(isinstance(k, str) for k in task["after"]):
            raise FileError(f"tasks[{number}] of the graph file refers to what is not there")
    written: set[int] = set()
    awaited = {var for node in data["nodes"] for var in node["outputs"]}
    for number, node in enumerate(data["nodes"]):
        if any(var in awaited and var not in written for var in node["inputs"]):
            raise FileError(
                f"nodes[{number}] of the graph file reads what a later one writes: it goes round "
                "in a circle"
            )
        written.update(node["outputs"])
