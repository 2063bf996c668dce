"""Groups of processes: showing their output, finding the first failure, ending all of them."""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

from dpexec.commands import OTHER_FAILED
from dpexec.engine.core.light_dataclasses import dataclass, field

__all__ = ["Failure", "Start", "run_together"]

_CLOSING = 2.0  # seconds that servers have to end when all trainers have
_CAUSE = 5.0  # seconds that a process may take to end after others have, because of it
_GRACE = 5.0  # seconds that processes have to end when they are asked to
_LINES = 8  # that are kept of what a process wrote last


@dataclass(frozen=True)
class Start:
    """The start of one of the processes.

    Args:
        name: name of the process, for messages.
        mark: prefix of its output lines.
        is_server: whether the process is expected to end when all non-servers have ended.
        command: its program and arguments.
        environment: its variables.
        log: file that its output is appended to; None shows the output, with the mark.
    """

    name: str
    mark: str
    is_server: bool
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path | None = None


@dataclass(frozen=True)
class Failure:
    """A process that failed.

    Args:
        name: name of the process, for messages.
        status: its exit code; negative for the signal that ended it.
        lines: its last lines on stderr.
    """

    name: str
    status: int
    lines: Sequence[str]

    @property
    def code(self) -> int:
        """The exit code as a shell reports it."""
        return self.status if self.status > 0 else 128 - self.status

    def __str__(self) -> str:
        how = f"failed with exit code {self.status}"
        if self.status < 0:
            how = f"was ended by signal {signal.Signals(-self.status).name}"
        if not self.lines:
            return f"{self.name} {how}"
        return "\n  ".join([f"{self.name} {how}; it wrote:", *self.lines])


@dataclass(frozen=True)
class _Running:
    """A running process.

    Args:
        start: the process's start.
        process: the process of the operating system.
        last: its last lines on stderr.
    """

    start: Start
    process: subprocess.Popen[bytes]
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))


def run_together(starts: Sequence[Start]) -> Failure | None:
    """Run processes until all have ended, or one has failed; then the others are ended.

    Output lines are shown with the processes' marks. When all other processes have ended, servers
    get some time to end.

    Args:
        starts: the processes to start, in order.

    Returns:
        The first failure, or None. Processes that exit with ``OTHER_FAILED`` failed because of
        another process, and that one is reported.
    """
    running: list[_Running] = []
    readers: list[threading.Thread] = []
    ends: queue.SimpleQueue[tuple[_Running, int]] = queue.SimpleQueue()
    with _ending(running):
        for start in starts:
            running.append(_Running(start, _process(start)))
            readers += _echo(running[-1])
            waiter = threading.Thread(target=_await, args=(running[-1], ends), daemon=True)
            waiter.start()
        failed = _first_failed(running, ends)
    for reader in readers:
        reader.join(_GRACE)  # processes that they started may keep the pipe open
    if failed is None:
        return None
    one, status = failed
    return Failure(one.start.name, status, _last_lines(one))


def _process(start: Start) -> subprocess.Popen[bytes]:
    if start.log is None:
        pipe = subprocess.PIPE
        return subprocess.Popen(start.command, env=start.environment, stdout=pipe, stderr=pipe)
    start.log.parent.mkdir(parents=True, exist_ok=True)
    with start.log.open("ab") as log:
        return subprocess.Popen(
            start.command, env=start.environment, stdout=log, stderr=subprocess.STDOUT
        )


def _last_lines(one: _Running) -> Sequence[str]:
    if one.start.log is None:
        return tuple(one.last)
    with one.start.log.open(errors="replace") as log:
        return tuple(deque((line.rstrip() for line in log), maxlen=_LINES))


def _echo(running: _Running) -> list[threading.Thread]:
    """Copy a process's output, each line with its mark, and keep its last lines on stderr."""
    if running.start.log is not None:
        return []
    out, err = running.process.stdout, running.process.stderr
    assert out is not None
    assert err is not None
    mark, nothing = running.start.mark, deque[str](maxlen=0)
    threads = [
        threading.Thread(target=_copy, args=(mark, *streams), daemon=True)
        for streams in ((out, sys.stdout, nothing), (err, sys.stderr, running.last))
    ]
    for thread in threads:
        thread.start()
    return threads


def _copy(mark: str, source: IO[bytes], target: IO[str], last: deque[str]) -> None:
    with source:
        for raw in source:
            line = raw.decode(errors="replace").rstrip()
            last.append(line)
            target.write(f"{mark} {line}\n")
            target.flush()


def _await(running: _Running, ends: queue.SimpleQueue[tuple[_Running, int]]) -> None:
    ends.put((running, running.process.wait()))


def _first_failed(
    running: Sequence[_Running], ends: queue.SimpleQueue[tuple[_Running, int]]
) -> tuple[_Running, int] | None:
    """Wait until all have ended, or until one has failed and the first failure is known."""
    failed: tuple[_Running, int] | None = None
    left = list(running)
    deadline: float | None = None
    while left:
        wait = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        try:
            one, status = ends.get(timeout=wait)
        except queue.Empty:
            break
        left.remove(one)
        if status not in (0, OTHER_FAILED):
            return one, status
        if status and failed is None:
            failed, deadline = (one, status), time.monotonic() + _CAUSE
        if deadline is None and all(other.start.is_server for other in left):
            deadline = time.monotonic() + _CLOSING
    return failed


@contextlib.contextmanager
def _ending(running: Sequence[_Running]) -> Iterator[None]:
    """End all processes on exit, also when this one is interrupted or terminated."""
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        for one in running:
            if one.process.poll() is None:
                one.process.terminate()
        deadline = time.monotonic() + _GRACE
        for one in running:
            try:
                one.process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()


def _terminated(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)
