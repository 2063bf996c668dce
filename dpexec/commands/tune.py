"""``dpexec tune``: runs a script until it trains, and tries strategies for its program."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpexec.commands import SCRIPT_ERROR, CommandError, count
from dpexec.commands.run import check, execute

__all__ = ["NOTES", "OURS", "add_options", "tune"]

NOTES = """\
The script runs as with `dpexec run` up to step K of its data-parallel program, and ends there.
Settings of the strategies are then tried with the batch of that step, on a copy of all variables:
first simulations and replays of recorded steps sort out settings that cannot help, then the others
run in turns with those of the script. The lines to write into the script are printed.

examples:
  dpexec tune train.py
  dpexec tune train.py --devices 2 --seconds 120
  dpexec tune train.py --step 50 --report tuned.html
  dpexec tune --json train.py --epochs 1               an option of the script itself
"""
OURS = {"--devices", "--mode", "--scheduler", "--report", "--step", "--seconds"}
"""Options of dpexec that have a value."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.usage = (
        "dpexec tune [--json] [--rounding] SCRIPT [ARGS] [--devices N] [--mode M] [--scheduler S] "
        "[--report PAGE] [--step K] [--seconds T]"
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python file; ARGS are passed to it")
    parser.add_argument(
        "--report", type=Path, metavar="PAGE", help="write what was tried (.html, .svg, .png, .pdf)"
    )
    parser.add_argument(
        "--step", type=count, default=2, metavar="K", help="tune at this step (default: 2)"
    )
    parser.add_argument(
        "--seconds",
        type=count,
        default=60,
        metavar="T",
        help="try no further settings after so long (default: 60)",
    )
    parser.add_argument(
        "--rounding", action="store_true", help="try settings that change results by rounding, too"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


class _Reached(BaseException):
    """Raised when a script reaches the step at which it is tuned.

    Args:
        call: the call that it was about to make: program, feed, fetches and scope.
    """

    def __init__(self, *call: Any) -> None:
        self.call = call


def tune(options: argparse.Namespace) -> int:
    """Run the script up to a step, and tune it there; returns the exit code.

    Args:
        options: the command line's options.
    """
    check(options.script, options.report)
    try:
        with _stopping(options.step):
            code = execute(options)
    except _Reached as reached:
        return _tune(options, *reached.call)
    if not code:
        print(
            f"dpexec tune: the script ended before step {options.step} of a data-parallel program "
            "that trains (ParallelExecutor, or CompiledProgram.with_data_parallel)",
            file=sys.stderr,
        )
    return code or SCRIPT_ERROR


@contextlib.contextmanager
def _stopping(step: int) -> Iterator[None]:
    """End the block's code at a given step of a data-parallel program with gradients."""
    from dpexec.engine.executors.compiled_program import CompiledProgram
    from dpexec.engine.executors.executor import Executor

    ran: dict[Any, int] = {}
    before = Executor._run

    def run(self: Executor, program: Any, feed: Any, fetch_list: Any, scope: Any, *how: Any) -> Any:
        if isinstance(program, CompiledProgram) and program._is_data_parallel:
            ran[program] = ran.get(program, 0) + bool(program._loss_name)
            if ran[program] == step:
                raise _Reached(program, feed, fetch_list, scope)
        return before(self, program, feed, fetch_list, scope, *how)

    Executor._run = run  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Executor._run = before  # type: ignore[method-assign]


def _tune(options: argparse.Namespace, program: Any, feed: Any, fetch_list: Any, scope: Any) -> int:
    from dpexec.engine.core.errors import EnforceNotMet
    from dpexec.viz.tune import tuned
    from dpexec.viz.tuning.trial import Subject

    try:
        subject = Subject.of(program, feed, fetch_list, scope, loads=True)
        found = tuned(subject, options.seconds, options.rounding, sys.stderr.isatty())
    except (ValueError, EnforceNotMet) as error:
        raise CommandError(str(error)) from error
    print(json.dumps(found.to_json()) if options.json else found, flush=True)
    if options.report is not None:
        try:
            found.save(options.report)
        except OSError as error:
            raise CommandError(f"cannot write {options.report}: {error.strerror}") from error
    return 0
