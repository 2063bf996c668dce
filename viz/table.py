"""`dpexec.viz.table`: durations added up per operator, layer, task or role."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, get_args

from dpexec.viz import table_figures as figures
from dpexec.viz.measured.critical_path import critical_path
from dpexec.viz.measured.grouping import BETWEEN, By, namer
from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.measured.typical import Typical
from dpexec.viz.pages.load import as_trace
from dpexec.viz.pages.page_data import ColumnData, TableData, Unit
from dpexec.viz.pages.style import ROLE_NAMES
from dpexec.viz.pages.units import counted, figure_text, room, shortened, wrapped
from dpexec.viz.pages.view import View
from dpexec.viz.table_svg import render

from dpexec.engine.trace import Trace

GROUPINGS: tuple[str, ...] = get_args(By)

_UNITS: dict[str, tuple[str, Unit]] = {
    "name": ("name", "text"),
    "role": ("role", "text"),
    "device": ("device", "text"),
    "calls": ("calls", "count"),
    "total": ("total", "seconds"),
    "median": ("median", "seconds"),
    "spread": ("spread", "seconds"),
    "min": ("min", "seconds"),
    "max": ("max", "seconds"),
    "share": ("share", "fraction"),
    "bytes": ("bytes/call", "bytes"),
    "moved": ("moved/step", "bytes"),
    "gflops": ("GFLOP/s", "number"),
    "critical": ("critical", "fraction"),
}

_DISPENSABLE = ("min", "max", "bytes", "role", "gflops", "spread")
"""Columns that a text leaves out until its lines fit, in this order."""
_GAP = "  "
_NAME = 16
"""Characters of a name that are always kept."""

COLUMNS = tuple(_UNITS)
"""Names of the columns, by which `Table.sorted` sorts."""


@dataclass(frozen=True)
class Row:
    """The figures of a group of slices.

    Args:
        name: The operator type, operator, layer, task or role.
        role: "forward", "backward", ...; "" for a mixture, and for time between operators.
        device: The device, or "all".
        calls: Number of calls.
        total: Seconds, without parts that have their own rows.
        median: Median seconds of a call.
        spread: Median distance of the calls from the median.
        min: Seconds of the shortest call.
        max: Seconds of the longest call.
        share: Share of the total of all rows.
        bytes: Bytes read and written per call; None if unknown.
        moved: Bytes that collectives and transfers moved per step, see `Traffic`; None if unknown.
        gflops: Floating-point operations per second, in 10**9; None if unknown.
        critical: Share of its time that lies on the critical path of its step.
        nodes: The operators of the graph.
    """

    name: str
    role: str
    device: str
    calls: int
    total: float
    median: float
    spread: float
    min: float
    max: float
    share: float
    bytes: float | None
    moved: float | None
    gflops: float | None
    critical: float
    nodes: tuple[int, ...] = ()


class Table(View):
    """Durations, a row per group; :func:`dpexec.viz.table` makes it.

    Args:
        rows: The figures of each group.
        title: Heading.
        order: The column by which the rows are sorted.
        notes: Remarks below the table, such as which steps are not counted.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import viz
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), size=2))
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        >>> how = fluid.ExecutionStrategy()
        >>> how.trace = True
        >>> two = fluid.CompiledProgram(main).with_data_parallel(
        ...     loss.name, exec_strategy=how, places=fluid.cpu_places(2)
        ... )
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     for _ in range(3):
        ...         _ = exe.run(two, feed={"x": np.ones((4, 4), "float32")})
        >>> table = viz.table(two).sorted("median")
        >>> len(table.rows) > 3 and table.rows[0].calls > 0
        True
    """

    formats = (*View.formats, ".csv")

    def __init__(
        self, rows: Sequence[Row], title: str, order: str = "total", notes: Sequence[str] = ()
    ) -> None:
        self.rows, self.title, self.order, self.notes = tuple(rows), title, order, list(notes)

    @property
    def total(self) -> float:
        """Seconds of all rows: of all slices of the counted steps, each part counted once."""
        return sum(row.total for row in self.rows)

    @property
    def moved(self) -> float | None:
        """Bytes that a step moved; None if none are known to have moved."""
        known = [row.moved for row in self.rows if row.moved is not None]
        return sum(known) if known else None

    def sorted(self, column: str, *, up: bool | None = None) -> Table:
        """Return the table in another order.

        Args:
            column: One of `COLUMNS`.
            up: Whether the smallest comes first; None for texts only.

        Raises:
            ValueError: There is no such column.
        """
        if column not in COLUMNS:
            raise ValueError(f"no column {column!r}; there are {', '.join(COLUMNS)}")
        texts = _UNITS[column][1] == "text"
        downwards = not (texts if up is None else up)
        known = [row for row in self.rows if getattr(row, column) is not None]
        unknown = [row for row in self.rows if getattr(row, column) is None]
        known.sort(key=lambda row: getattr(row, column), reverse=downwards)
        return Table([*known, *unknown], self.title, column, self.notes)

    @cached_property
    def svg(self) -> str:
        """The table as an SVG document."""
        labels = [(label, unit) for label, unit in _UNITS.values()]
        rows = [_cells(_in_words(row)) for row in self.rows]
        return render(self.title, labels, rows, COLUMNS.index("total"), self.notes)

    def payload(self) -> TableData:
        """Return what the interactive page draws."""
        columns: list[ColumnData] = [
            {"label": label, "unit": unit} for label, unit in _UNITS.values()
        ]
        totals: list[str | float | None] = [None] * len(columns)
        totals[0] = "all"
        totals[COLUMNS.index("calls")] = sum(row.calls for row in self.rows)
        totals[COLUMNS.index("total")] = self.total
        totals[COLUMNS.index("moved")] = self.moved
        return {
            "type": "table",
            "title": self.title,
            "notes": self.notes,
            "columns": columns,
            "rows": [_cells(_in_words(row)) for row in self.rows],
            "totals": totals,
            "sort": (
                COLUMNS.index(self.order),
                "up" if _UNITS[self.order][1] == "text" else "down",
            ),
            "bars": [COLUMNS.index("total")],
            "nodes": [row.nodes for row in self.rows],
            "file": "operators.csv",
        }

    @property
    def csv(self) -> str:
        """The rows as comma-separated values, times in seconds."""
        target = io.StringIO()
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(["" if c is None else c for c in _cells(row)] for row in self.rows)
        return target.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Return the rows as plain JSON values."""
        rows = [asdict(row) for row in self.rows]
        return {"title": self.title, "notes": self.notes, "total": self.total, "rows": rows}

    def __str__(self) -> str:
        columns = {}
        rows = [_in_words(row) for row in self.rows]
        for name, (label, unit) in _UNITS.items():
            cells = [label, *(figure_text(getattr(row, name), unit) for row in rows)]
            width = max(map(len, cells))
            columns[name] = [
                cell.ljust(width) if unit == "text" else cell.rjust(width) for cell in cells
            ]
        if all(row.device == "all" for row in self.rows):
            del columns["device"]
        left_out = _fit(columns, room())
        lines = [_GAP.join(cells).rstrip() for cells in zip(*columns.values(), strict=True)]
        said = [*self.notes]
        if left_out:
            names = ", ".join(_UNITS[name][0] for name in left_out)
            said.insert(0, f"Left out, for lines to fit: {names}. The table as JSON has them.")
        return "\n".join([*lines, *wrapped(*said)])


def _fit(columns: dict[str, list[str]], room: int) -> list[str]:
    """Remove columns until lines fit, then shorten names; returns the removed columns."""
    left_out: list[str] = []

    def excess() -> int:
        return sum(len(cells[0]) + len(_GAP) for cells in columns.values()) - len(_GAP) - room

    for name in _DISPENSABLE:
        if excess() <= 0:
            break
        del columns[name]
        left_out.append(name)
    if excess() > 0:
        width = max(_NAME, len(columns["name"][0]) - excess())
        columns["name"] = [
            f"{shortened(cell.rstrip(), width):<{width}}" for cell in columns["name"]
        ]
    return left_out


def _in_words(row: Row) -> Row:
    """A row with the role's name in legends, in place of the one in files."""
    role = ROLE_NAMES.get(row.role, row.role)
    return replace(row, role=role, name=role if row.name == row.role else row.name)


def _cells(row: Row) -> list[Any]:
    return [getattr(row, column.name) for column in fields(row) if column.name != "nodes"]


def table(
    trace: Any, *, by: By = "type", steps: Iterable[int] | None = None, per_device: bool = False
) -> Table:
    """Add up the durations of operators: by type, layer, task, role, or one by one.

    Time inside a task but outside its operators has its own row, so that the total equals that of
    the timeline. First steps that took more than 1.5 times the median count only if `steps` names
    them, as in every view that adds up or averages; a note says so.

    Args:
        trace: A Trace, an executor that recorded one, or the path of a saved one.
        by: The groups: "type" of operator, "node" of the graph, "layer", "task" or "role".
        steps: Numbers of the steps to count; None for all except slow first ones.
        per_device: Whether each device has its own rows; for nodes and tasks it always has.

    Returns:
        The table, largest total first: `print` it, `.sorted("median")`, `.csv`, `.json`.

    Raises:
        FileError: The file is damaged, empty, or no trace.
        ValueError: `by` is unknown, the trace has no such step, or layers are asked for and the
            trace has no graph.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import viz
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), size=2))
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        >>> how = fluid.ExecutionStrategy()
        >>> how.trace = True
        >>> two = fluid.CompiledProgram(main).with_data_parallel(
        ...     loss.name, exec_strategy=how, places=fluid.cpu_places(2)
        ... )
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     for _ in range(3):
        ...         _ = exe.run(two, feed={"x": np.ones((4, 4), "float32")})
        >>> print(viz.table(two, steps=[2]))  # doctest: +ELLIPSIS
        name                  calls ...total ...
        >>> sorted(row.name for row in viz.table(two).rows if row.name.startswith("mul"))
        ['mul+elementwise_add', 'mul_grad']
    """
    if by not in GROUPINGS:
        raise ValueError(f"by must be one of {', '.join(GROUPINGS)}, not {by!r}")
    return table_of(as_trace(trace), by, steps, per_device)


def table_of(
    trace: Trace | Schedule,
    by: By = "type",
    steps: Iterable[int] | None = None,
    per_device: bool = False,
) -> Table:
    """Add up the durations in a trace; see `table`.

    Raises:
        ValueError: layers are asked for, and the trace has no graph.
    """
    schedule = Schedule.of(trace, steps)
    critical = _critical(schedule, by)
    groups: dict[tuple[str, str, str], list[Slice]] = {}
    key_of = _keys(schedule, by, per_device)
    pieces = [schedule.by_id[index] for step in schedule.counted for index in step.slices]
    for piece in pieces:
        if by == "task" and piece.depth:
            continue
        groups.setdefault(key_of(piece), []).append(piece)
    whole = sum(piece.event.duration for piece in pieces if piece.depth == 0)
    rows = [_row(schedule, key, group, whole, critical, by) for key, group in groups.items()]
    rows = [row for row in rows if row.total > 0 or row.name != BETWEEN]
    count = len(schedule.counted)
    title = f"Time by {by} · {counted(count, 'step')}"
    return Table(rows, title, notes=schedule.left_out).sorted("total")


def _keys(schedule: Schedule, by: By, per_device: bool) -> Callable[[Slice], tuple[str, str, str]]:
    name_of = namer(schedule, by)
    apart = per_device or by in ("node", "task")

    def key_of(piece: Slice) -> tuple[str, str, str]:
        device = "all" if piece.event.device is None else str(piece.event.device)
        return *name_of(piece), device if apart else ""

    return key_of


def _critical(schedule: Schedule, by: By) -> dict[int, float]:
    """By slice, seconds on the critical paths of the steps; those of tasks include their parts."""
    found: dict[int, float] = {}
    for step in schedule.counted:
        for index, seconds in critical_path(schedule, step.number).times.items():
            at = schedule.by_id[index]
            while by == "task" and at.parent is not None:
                at = schedule.by_id[at.parent]
            found[at.id] = found.get(at.id, 0.0) + seconds
    return found


def _row(
    schedule: Schedule,
    key: tuple[str, str, str],
    group: Sequence[Slice],
    whole: float,
    critical: Mapping[int, float],
    by: By,
) -> Row:
    name, role, device = key
    times = figures.times(group, by)
    total, usual = sum(times), Typical.of(times)
    on_path = sum(critical.get(piece.id, 0.0) for piece in group)
    nodes = dict.fromkeys(node for piece in group for node in schedule.nodes_of(piece))
    if not device:
        devices = {piece.event.device for piece in group}
        only = devices.pop() if len(devices) == 1 else None
        device = "all" if only is None else str(only)
    return Row(
        name=name,
        role=role,
        device=device,
        calls=len(times),
        total=total,
        median=usual.median,
        spread=usual.spread,
        min=min(times),
        max=max(times),
        share=total / whole if whole else 0.0,
        bytes=figures.bytes(schedule, group),
        moved=figures.moved(schedule, group, by),
        gflops=figures.gflops(schedule, group, total),
        critical=min(1.0, on_path / total) if total else 0.0,
        nodes=tuple(nodes),
    )
