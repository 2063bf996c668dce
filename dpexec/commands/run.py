"""``dpexec run``: runs an unmodified fluid script, optionally recording it."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from dpexec.commands import OTHER_FAILED, SCRIPT_ERROR, CommandError, count
from dpexec.compat.absent import explain_import

__all__ = ["OURS", "add_options", "check", "execute", "run", "separate"]

NOTES = """\
In the script, `import paddle.fluid as fluid`, `import paddle.fluid.layers as layers`,
`from paddle.fluid import core` and `import paddle` (batch, reader, dataset) import dpexec; Paddle
need not be installed. Names that NumPy has removed since then (np.float, np.int ...) exist, and
arrays with one element work as numbers in formats, float(), int() and math. Options of dpexec may
stand before or after the script; everything after `--` is passed to the script unchanged.

examples:
  dpexec run train.py
  dpexec run train.py --devices 4 --mode reduce
  dpexec run --scheduler sync train.py --epochs 3      one thread, for a debugger
  dpexec run --scheduler tcp://host:8786 train.py      on the workers of a dask cluster
  dpexec run train.py --report out.html                where the time and the memory went
  dpexec run train.py --trainers 2 --devices 2         two processes that train together
  dpexec run train.py -- --devices mine                an option of the script itself
"""
OURS = {
    "--devices",
    "--mode",
    "--scheduler",
    "--report",
    "--trace",
    "--trainers",
    "--servers",
    "--restarts",
}
"""Options of dpexec."""

_REPEATED = 2
"""Programs with fewer steps are not in the report: startup programs, and what is saved once."""

_SHARE = 0.1
"""Other programs are in the report if they take at least this share of the time of all steps."""

_PROGRAMS = 6


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.usage = (
        "dpexec run SCRIPT [ARGS] [--devices N] [--mode M] [--scheduler S] [--report PAGE] "
        "[--trace FILE] [--trainers N [--servers M] [--restarts R]]"
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python file; ARGS are passed to it")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="PAGE",
        help="record, and write a page with all views (.html, .svg, .png, .pdf)",
    )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="record, and write the trace: JSON that dpexec viz, Perfetto and Chrome open",
    )
    parser.add_argument(
        "--trainers",
        type=count,
        metavar="N",
        help="run the script in N processes; PADDLE_TRAINER_ID is the number of each",
    )
    parser.add_argument(
        "--servers",
        type=count,
        metavar="M",
        help="and in M parameter servers; TRAINING_ROLE tells them from trainers",
    )
    parser.add_argument(
        "--restarts",
        type=count,
        metavar="R",
        help="when a process fails, start all again, up to R times (default: 0)",
    )


def separate(arguments: Sequence[str], ours: Set[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of a command into dpexec's own (with the script) and the script's.

    argparse cannot do this, since it would reorder unknown options.

    Args:
        arguments: the arguments after the command's name.
        ours: dpexec's options that take a value.

    Returns:
        dpexec's own arguments, and the script's arguments.
    """
    own: list[str] = []
    script: list[str] = []
    found = False
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            script.extend(rest)
        elif argument in ours:
            own.extend([argument, *[value for value in [next(rest, None)] if value is not None]])
        elif argument.split("=")[0] in ours or (not found and argument.startswith("-")):
            own.append(argument)
        elif found:
            script.append(argument)
        else:
            own.append(argument)
            found = True
    return own, script


def run(options: argparse.Namespace) -> int:
    """Run the script; returns the exit code.

    Args:
        options: the command line's options.
    """
    check(options.script, options.report, options.trace)
    if options.report is None and options.trace is None:
        return execute(options)
    with _recording(options) as written:
        code = execute(options)
    return code or (0 if written else SCRIPT_ERROR)


def execute(options: argparse.Namespace) -> int:
    """Run a script as if Paddle were installed; returns the exit code.

    Args:
        options: the script and its arguments.
    """
    from dpexec.commands.paddle_alias import paddle_is_dpexec
    from dpexec.compat.old_numbers import local_modules
    from dpexec.compat.old_numpy import old_numpy_names
    from dpexec.compat.old_python import old_python_names

    folder = Path(options.script).resolve().parent
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, str(folder))
    with paddle_is_dpexec(), old_numpy_names(), old_python_names(), local_modules(folder):
        try:
            _execute(options.script)
        except Exception as error:
            from dpexec.engine.exchange.wire import GangError

            _print_traceback(error, options.script)
            others = isinstance(error, GangError) or isinstance(error.__cause__, GangError)
            return OTHER_FAILED if others else SCRIPT_ERROR
    return 0


def _execute(script: str) -> None:
    """Run a script as the module ``__main__``."""
    from dpexec.compat.old_numbers import compiled

    module, before = ModuleType("__main__"), sys.modules["__main__"]
    module.__file__ = script
    sys.modules["__main__"] = module
    try:
        exec(compiled(Path(script).read_bytes(), script), vars(module))
    finally:
        sys.modules["__main__"] = before


def check(script: str, report: Path | None, trace: Path | None = None) -> None:
    """Check before a run that the script exists, and that report and trace can be written.

    Args:
        script: a Python file.
        report: path of the HTML report.
        trace: path of the trace.

    Raises:
        CommandError: one of the checks fails.
    """
    if not Path(script).is_file():
        raise CommandError(f"there is no script {script}")
    for path in (report, trace):
        if path is not None and not path.parent.is_dir():
            raise CommandError(f"cannot write {path}: there is no folder {path.parent}")
    if report is not None:
        from dpexec.viz.pages.view import View

        try:
            View.ending(report)
        except (ValueError, RuntimeError) as error:
            raise CommandError(str(error)) from None


def _print_traceback(error: Exception, script: str) -> None:
    """Print the traceback as Python would for the script alone."""
    from dpexec.compat.old_numbers import explain_numbers

    if isinstance(error, ImportError):
        explain_import(error)
    explain_numbers(error)
    inside: TracebackType | None = error.__traceback__
    while inside is not None and inside.tb_frame.f_code.co_filename != script:
        inside = inside.tb_next
    traceback.print_exception(type(error), error, inside or error.__traceback__)


class _Recorders:
    """Records every engine of the process separately."""

    def __init__(self) -> None:
        self.found: dict[Any, Any] = {}

    def meet(self, engine: Any) -> None:
        from dpexec.engine.trace import Recorder

        self.found[engine] = Recorder()
        engine.observers.add(self.found[engine])

    def part(self, engine: Any) -> None:
        engine.observers.remove(self.found[engine])


@contextlib.contextmanager
def _recording(options: argparse.Namespace) -> Iterator[list[str]]:
    """Record the runs inside the block, and write the requested files even if the script fails.

    The yielded list contains the files at the end.
    """
    from dpexec.engine.trace import live

    recorders = _Recorders()
    live.add(recorders)
    written: list[str] = []
    try:
        yield written
    finally:
        live.remove(recorders)
        written += _write(recorders, options)


def _told_of(found: dict[Any, Any]) -> Any:
    """The engine whose run ended the script with an error, else the one with the most steps."""
    from dpexec.engine.compile.bindings.failed_steps import FailedStep

    last = max(found, key=lambda engine: found[engine].last.began[-1])
    if isinstance(found[last].last, FailedStep):
        return last
    return max(found, key=lambda engine: (found[engine].told, len(found[engine])))


def _write(recorders: _Recorders, options: argparse.Namespace) -> list[str]:
    """Write the files of the programs that ran; returns their paths.

    The trace is that of the program that failed, or that made most steps. The report has all
    programs that take a good part of the time.
    """
    from dpexec.engine.trace import save

    found = {engine: it for engine, it in recorders.found.items() if it.told}
    if not found:
        print(
            "dpexec run: nothing was recorded: the script completed no step of a program in this "
            "process (processes that it starts are not recorded); nothing is written",
            file=sys.stderr,
        )
        return []
    engine = _told_of({engine: it for engine, it in found.items() if it.last is not None})
    traces = _traces(engine, found, several=options.report is not None)
    try:
        if options.trace is not None:
            save(traces[engine], options.trace)
        if options.report is not None:
            _report(list(traces.values()), options)
    except OSError as error:
        raise CommandError(f"cannot write: {error}") from error
    files = [str(path) for path in (options.trace, options.report) if path is not None]
    others = len(found) - len(traces)
    rest = f" ({others} {'other' if others == 1 else 'others'} ran, too)" if others else ""
    texts = [_steps_text(each, found[each], trace) for each, trace in traces.items()]
    verb = "is" if len(traces) == found[engine].told == 1 else "are"
    told = f"{', '.join(texts)} {verb} in {' and '.join(files)}{rest}"
    print(f"dpexec run: {told}", file=sys.stderr)
    return files


def _traces(engine: Any, found: dict[Any, Any], several: bool) -> dict[Any, Any]:
    """By engine: its trace; the first is that of the given one."""
    from dpexec.engine.compile.bindings.failed_steps import FailedStep
    from dpexec.engine.dispatch.traces import trace_of

    traces = {engine: trace_of(engine, found[engine])}
    if not several or isinstance(found[engine].last, FailedStep):
        return traces
    repeated = (each for each, it in found.items() if it.told >= _REPEATED and each is not engine)
    rest = {each: trace_of(each, found[each]) for each in repeated}
    seconds = {each: _seconds(trace) for each, trace in {**traces, **rest}.items()}
    least = _SHARE * sum(seconds.values())
    most = sorted(rest, key=lambda each: -seconds[each])[: _PROGRAMS - 1]
    return {**traces, **{each: rest[each] for each in most if seconds[each] >= least}}


def _seconds(trace: Any) -> float:
    """How long the steps of a trace took, without those that failed."""
    ends: dict[int, tuple[float, float]] = {}
    for event in trace:
        first, last = ends.get(event.step, (event.start, event.stop))
        ends[event.step] = min(first, event.start), max(last, event.stop)
    failed = {event.step for event in trace if event.kind == "failure"}
    return sum(last - first for step, (first, last) in ends.items() if step not in failed)


def _report(traces: Sequence[Any], options: argparse.Namespace) -> None:
    """Write the page of one program, or of several that ran in turn."""
    from dpexec.viz import report

    title = f"dpexec run {os.path.basename(options.script)}"
    named: dict[str, Any] = {}
    for number, trace in enumerate(traces, 1):
        line = _line(trace)
        named[f"program {number}{f' ({line})' if line else ''}"] = trace
    report(named if len(traces) > 1 else traces[0], title=title).save(options.report)


def _line(trace: Any) -> str:
    """The user's line that made the last operator of a program's forward part, mostly its loss."""
    nodes = trace.graph["nodes"] if trace.graph else ()
    lines = [node["line"] for node in nodes if node["role"] == "forward" and node["line"]]
    return str(lines[-1]) if lines else ""


def _steps_text(engine: Any, recorder: Any, trace: Any) -> str:
    failed = sum(event.kind == "failure" for event in trace)
    told, count = recorder.told, len(engine.places)
    steps = ("1 step" if told == 1 else f"{told} steps") + (f" ({failed} failed)" if failed else "")
    return f"{steps} of a program on {'1 device' if count == 1 else f'{count} devices'}"
