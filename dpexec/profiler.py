"""``fluid.profiler``: how often operators ran and how long they took, as a table and as a trace.

Everything that executors of the process run between start and stop is recorded. The table counts
operators (by type, joined with ``+`` if one kernel computes several), collectives, ``Feed``
(bringing batches to the operators) and ``Fetch`` (bringing results back). The trace includes the
graph of the program that took the most time, so all views of dpexec.viz can be made from it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.dispatch.traces import profile_of
from dpexec.engine.trace import files, profile
from dpexec.engine.trace.events import Event, Trace

__all__ = ["cuda_profiler", "profiler", "reset_profiler", "start_profiler", "stop_profiler"]

_PROFILE_PATH = os.path.join(tempfile.gettempdir(), "profile")
_PLACES = {"CPU": "CPU", "GPU": "CUDA", "All": "All"}
_TRACER_OPTIONS = ("Default", "OpDetail", "AllOpDetail")
_MILLI = 1e3
_DIGITS = 6  # of milliseconds: clocks count nanoseconds


@dataclass
class _Row:
    """One row of the table: an event's times, in milliseconds."""

    name: str
    times: list[float]

    @property
    def total(self) -> float:
        return sum(self.times)


_ORDERS: dict[str, tuple[str, Callable[[_Row], float] | None]] = {
    "default": ("event first end time", None),
    "calls": ("number of calls", lambda row: len(row.times)),
    "total": ("total time", lambda row: row.total),
    "max": ("maximum time", lambda row: max(row.times)),
    "min": ("minimum time", lambda row: min(row.times)),
    "ave": ("average time", lambda row: row.total / len(row.times)),
}

_place = "CPU"


def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Start recording; does nothing if a profile is being recorded already.

    Args:
        state: "CPU", "GPU" or "All"; shown in the report only, since everything is always recorded.
        tracer_option: "Default", "OpDetail" or "AllOpDetail"; the level of detail is always the
            same.

    Raises:
        ValueError: an argument has another value.

    Example:
        >>> import contextlib, io, os
        >>> import dpexec as fluid
        >>> report = io.StringIO()
        >>> with fluid.program_guard(fluid.Program()), contextlib.redirect_stdout(report):
        ...     out = fluid.layers.fill_constant([1], "float32", 1.0)
        ...     fluid.profiler.start_profiler("CPU")
        ...     _ = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        ...     fluid.profiler.stop_profiler("total", profile_path=os.devnull)
        >>> "fill_constant" in report.getvalue()
        True
    """
    global _place
    if profile.active() is not None:
        return
    if state not in _PLACES:
        raise ValueError(f"The state must be 'CPU' or 'GPU' or 'All', but received {state!r}.")
    if tracer_option not in _TRACER_OPTIONS:
        raise ValueError(
            f"tracer option must be 'Default', 'OpDetail', 'AllOpDetail', not {tracer_option!r}."
        )
    _place = _PLACES[state]
    profile.start()


def stop_profiler(sorted_key: str | None = None, profile_path: str = _PROFILE_PATH) -> None:
    """Stop recording, print the report and write the trace; does nothing if nothing was started.

    Args:
        sorted_key: "calls", "total", "max", "min" or "ave"; None for the order of appearance.
        profile_path: file for the trace, in the JSON format of Chrome's tracing and Perfetto.

    Raises:
        ValueError: sorted_key has another value; recording continues.

    Example:
        >>> import contextlib, io, os
        >>> import dpexec as fluid
        >>> report = io.StringIO()
        >>> fluid.profiler.start_profiler("CPU")
        >>> with fluid.program_guard(fluid.Program()), contextlib.redirect_stdout(report):
        ...     out = fluid.layers.fill_constant([1], "float32", 1.0)
        ...     _ = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        ...     fluid.profiler.stop_profiler(sorted_key="calls", profile_path=os.devnull)
        >>> "fill_constant" in report.getvalue()
        True
    """
    recorder = profile.active()
    if recorder is None:
        return
    key = "default" if sorted_key is None else sorted_key
    if key not in _ORDERS:
        raise ValueError(
            "The sorted_key must be None or in 'calls', 'total', 'max', 'min' and 'ave', but "
            f"received {sorted_key!r}"
        )
    profile.stop()
    trace = profile_of(recorder)
    print(_report(trace, key, _place))
    files.save(trace, profile_path)


def reset_profiler() -> None:
    """Discard all records so far; recording continues.

    Example:
        >>> import contextlib, io, os
        >>> import dpexec as fluid
        >>> report, exe = io.StringIO(), fluid.Executor(fluid.CPUPlace())
        >>> with fluid.program_guard(fluid.Program()), contextlib.redirect_stdout(report):
        ...     out = fluid.layers.fill_constant([1], "float32", 1.0)
        ...     fluid.profiler.start_profiler("CPU")
        ...     _ = exe.run(fetch_list=[out])  # the first run compiles: leave it out
        ...     fluid.profiler.reset_profiler()
        ...     fluid.profiler.stop_profiler(profile_path=os.devnull)
        >>> "fill_constant" in report.getvalue()
        False
    """
    recorder = profile.active()
    if recorder is not None:
        recorder.clear()


@contextlib.contextmanager
def profiler(
    state: str,
    sorted_key: str | None = None,
    profile_path: str = _PROFILE_PATH,
    tracer_option: str = "Default",
) -> Iterator[None]:
    """Profile the block of a ``with`` statement; no report if an exception leaves the block.

    Args:
        state: as for :func:`start_profiler`.
        sorted_key: as for :func:`stop_profiler`.
        profile_path: as for :func:`stop_profiler`.
        tracer_option: as for :func:`start_profiler`.

    Yields:
        None.

    Raises:
        ValueError: a wrong state or option at the start, a wrong key at the end.

    Example:
        >>> import dpexec as fluid, contextlib, io
        >>> report = io.StringIO()
        >>> with fluid.program_guard(fluid.Program()), contextlib.redirect_stdout(report):
        ...     out = fluid.layers.fill_constant([1], "float32", 1.0)
        ...     with fluid.profiler.profiler("CPU", sorted_key="total"):
        ...         _ = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        >>> "fill_constant" in report.getvalue()
        True
    """
    start_profiler(state, tracer_option)
    try:
        yield
        stop_profiler(sorted_key, profile_path)
    finally:
        profile.stop()


def cuda_profiler(
    output_file: str, output_mode: str | None = None, config: list[str] | None = None
) -> NoReturn:
    """Not supported: in fluid it controls NVIDIA's nvprof.

    Args:
        output_file: as in Paddle, like all arguments.
        output_mode: ``"kvp"`` or ``"csv"``.
        config: options of nvprof.

    Raises:
        ValueError: output_mode is neither "kvp" nor "csv".
        NotImplementedError: in all other cases.

    Example:
        >>> import dpexec as fluid
        >>> try:
        ...     fluid.profiler.cuda_profiler("report.txt")
        ... except NotImplementedError as error:
        ...     print(type(error).__name__)
        NotImplementedError
    """
    if output_mode not in (None, "kvp", "csv"):
        raise ValueError(f"The output mode must be 'kvp' or 'csv', but received {output_mode!r}.")
    raise NotImplementedError(
        "cuda_profiler is not supported: nvprof is steered from outside (nsys profile python "
        "script.py); fluid.profiler.profiler records what dpexec itself does, on GPUs too"
    )


# ---- the report


def _rows(events: Iterable[Event], prefix: str = "") -> list[_Row]:
    """One row per name, in the order in which the first events ended."""
    found: dict[str, _Row] = {}
    for event in sorted(events, key=lambda event: event.stop):
        row = found.setdefault(event.name, _Row(prefix + event.name, []))
        row.times.append(round(event.duration * _MILLI, _DIGITS))
    return list(found.values())


def _sorted(rows: list[_Row], key: str) -> list[_Row]:
    order = _ORDERS[key][1]
    return rows if order is None else sorted(rows, key=order, reverse=True)


def _report(trace: Trace, key: str, place: str) -> str:
    """Both reports: one of all threads together, one per thread.

    Events of a single thread on a single device are reported once, as fluid does for an Executor.
    """
    counted = [event for event in trace if event.kind not in ("task", "transfer")]
    computed = (event.duration for event in counted if event.kind in ("op", "collective"))
    computation = sum(computed) * _MILLI
    tasks = {event.key for event in trace if event.kind == "task"}
    outer = [
        event
        for event in trace
        if event.kind == "task" or (event.key not in tasks and event.kind != "transfer")
    ]
    total = max(sum(event.duration for event in outer) * _MILLI, computation)
    heading = [
        f"Place: {place}",
        "Time unit: ms",
        f"Sorted by {_ORDERS[key][0]} in descending order in the same thread",
        "",
    ]
    merged = [(row, row.total / (total or 1.0)) for row in _sorted(_rows(counted), key)]
    by_thread: list[tuple[_Row, float]] = []
    threads = sorted({event.thread for event in counted})
    for thread in threads:
        rows = _rows((e for e in counted if e.thread == thread), f"thread{thread}::")
        whole = sum(row.total for row in rows)
        by_thread += [(row, row.total / (whole or 1.0)) for row in _sorted(rows, key)]
    title = ["", _title("------->     Profiling Report     <-------"), ""]
    if len(threads) < 2 and len(trace.devices) < 2:
        return "\n".join([*title, *heading, *_overview(total, computation), *_table(by_thread)])
    lines = [
        *title,
        "Note! This Report merge all thread info into one.",
        *heading,
        *_overview(total, computation),
        *_table(merged),
        *title,
        *heading,
        *("", *_table(by_thread)),
    ]
    return "\n".join(lines)


def _title(text: str) -> str:
    return f"{'-' * 18}{text}{'-' * 18}"


def _overview(total: float, computation: float) -> list[str]:
    share = computation / total * 100 if total else 0.0
    parts = [("Computation time", computation, share)]
    parts.append(("Framework overhead", total - computation, 100 - share))
    lines = [f"Total time: {total:g}"]
    for name, time, ratio in parts:
        lines.append(f"  {name:<23}Total: {time:<12g}Ratio: {ratio:g}%")
    memcpy = f"{'GpuMemcpy':<25}Calls: {0:<12}Total: {0:<12}Ratio: 0%"
    return [*lines, "", _title("-------     GpuMemCpy Summary     -------"), "", memcpy, ""]


def _table(rows: list[tuple[_Row, float]]) -> list[str]:
    width = max((len(row.name) for row, _ in rows), default=0) + 8
    lines = [_title("-------       Event Summary       -------"), ""]
    lines.append(_line("Event", ["Calls", "Total", "Min.", "Max.", "Ave.", "Ratio."], width))
    for row, ratio in rows:
        calls = len(row.times)
        numbers = [row.total, min(row.times), max(row.times), row.total / calls, ratio]
        lines.append(_line(row.name, [calls, *(f"{number:g}" for number in numbers)], width))
    return lines


def _line(name: str, cells: list[Any], width: int) -> str:
    return f"{name:<{width}}" + "".join(f"{cell:<12}" for cell in cells)
