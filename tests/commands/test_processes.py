"""Processes that end together: the reported cause, the kept output, and no process left behind."""

import os
import sys
import time

import pytest

from dpexec.cli import main
from dpexec.commands import OTHER_FAILED
from dpexec.commands.processes import Failure, Start, run_together


def start(number, code, is_server=False):
    """A process that runs some Python."""
    name = f"{'server' if is_server else 'trainer'} {number}"
    return Start(name, f"[{number}]", is_server, [sys.executable, "-S", "-c", code], os.environ)


def fails(code, after=0.0, text="why"):
    return (
        f"import sys, time; time.sleep({after}); print({text!r}, file=sys.stderr); sys.exit({code})"
    )


WAITS = "import time; time.sleep(60)"


def test_all_that_end_well_are_no_failure(capfd):
    assert run_together([start(n, f"print({n})") for n in range(2)]) is None
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] 0", "[1] 1"]


def test_who_failed_because_of_another_is_not_to_blame(capfd):
    processes = [start(0, fails(OTHER_FAILED)), start(1, fails(3, after=0.3)), start(2, WAITS)]
    assert run_together(processes) == Failure("trainer 1", 3, ("why",))
    assert sorted(capfd.readouterr().err.splitlines()) == ["[0] why", "[1] why"]


def test_if_nobody_else_fails_the_first_is_named(capfd, tmp_path):
    said = str(tmp_path / "said")
    first = f"open({said!r}, 'w').close()\n" + fails(OTHER_FAILED)
    second = f"import os, time\nwhile not os.path.exists({said!r}): time.sleep(0.01)\n"
    processes = [start(0, second + fails(OTHER_FAILED, after=0.3)), start(1, first)]
    assert run_together(processes) == Failure("trainer 1", OTHER_FAILED, ("why",))


def test_a_failure_says_what_was_written_last(capfd):
    failure = run_together([start(0, fails(4, text="\n".join("abcdefghijk")))])
    assert str(failure).splitlines() == [
        "trainer 0 failed with exit code 4; it wrote:",
        *(f"  {letter}" for letter in "defghijk"),
    ]


def test_a_signal_has_a_name(capfd):
    failure = run_together([start(0, "import os; os.kill(os.getpid(), 11)"), start(1, WAITS)])
    assert (str(failure), failure.code) == ("trainer 0 was ended by signal SIGSEGV", 139)


def test_servers_do_not_keep_a_run_alive(capfd):
    begin = time.monotonic()
    assert run_together([start(0, WAITS, is_server=True), start(0, "pass")]) is None
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize(("error", "code"), [("GangError", OTHER_FAILED), ("ValueError", 1)])
def test_a_script_says_whether_another_process_is_to_blame(tmp_path, capsys, error, code):
    path = tmp_path / "script.py"
    path.write_text(f"from dpexec.engine.exchange.wire import GangError\nraise {error}('no')\n")
    assert main(["run", str(path)]) == code
    assert capsys.readouterr().err.rstrip().endswith("no")
