"""Processes that work together: what they print, which failed first, and that none is left."""

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NoReturn

from dpexec.commands import OTHER_FAILED

__all__ = ["Failure", "Start", "run_together"]

_CLOSING = 2.0  # seconds that servers have to end when all trainers have
_CAUSE = 5.0  # seconds that a process may take to end after others have, because of it
_GRACE = 5.0  # seconds that processes have to end when they are asked to
_LINES = 8  # that are kept of what a process wrote last


@dataclass(frozen=True)
class Start:
    """How one of the processes is started.

    Args:
        name: what people call it.
        mark: what its lines begin with.
        is_server: whether it ends when those have ended that are none.
        command: its program and arguments.
        environment: its variables.
        log: the file that what it writes is added to; None: it is shown, with the mark.
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
        name: what people call it.
        status: its exit code; negative: the number of the signal that ended it.
        lines: what it wrote last to its standard error.
    """

    name: str
    status: int
    lines: Sequence[str]

    @property
    def code(self) -> int:
        """The exit code that a shell would give."""
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
    """A process that was started.

    Args:
        start: how.
        process: of the operating system.
        last: what it wrote last to its standard error.
    """

    start: Start
    process: subprocess.Popen[bytes]
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))


def run_together(starts: Sequence[Start]) -> Failure | None:
    """Run processes until all have ended, or one has failed, which ends all.

    Their lines are written with their marks. Servers that go on when all others have ended get
    some time to end, too.

    Args:
        starts: how they are started, in order.

    Returns:
        What failed first. Processes that exit with ``OTHER_FAILED`` say that they failed because
        of another one: then that one is what failed. None: nothing failed.
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
    """Write what a process writes, each line with its mark, and keep its last errors."""
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
    """Wait until all have ended, or one has failed and it is known which was the first."""
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
    """Leave no process behind, also when this one is interrupted or terminated."""
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
