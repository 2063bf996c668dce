"""The connection between the training process and the process that shows training.

Drawing and serving pages in the training process would hold Python's lock and slow training down.
So a separate process does this: it imports dpexec afresh and knows only the data sent to it. Its
standard input is one end of a connection. It ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import psutil

__all__ = ["Child", "Parent", "end", "stand_back"]

_GRACE = 1.0  # seconds that a child may take to end after it has closed the connection
_LOOK = 1.0  # seconds between checks that the parent is alive


class Child:
    """The child process that shows training.

    Args:
        module: the module that it runs.
        arguments: its ``sys.argv``, after the id of this process.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._connection, other = multiprocessing.Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(os.getpid()), *arguments],
            stdin=other.fileno(),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            process_group=0,  # Ctrl-C is for the training process only
        )
        other.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, message: Any) -> None:
        """Send a message.

        Raises:
            ChildProcessError: the process has ended.
        """
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._ended() from error

    def receive(self) -> Any:
        """Wait for a message from the process.

        Raises:
            ChildProcessError: the process has ended.
        """
        try:
            return self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error

    def _ended(self) -> ChildProcessError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)  # its own exit code says more than a kill's
        self.end()
        status = self._process.returncode
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        return ChildProcessError(f"the process of the live view ended with {how}")

    def end(self) -> None:
        """End the process; pending ``receive`` calls raise an error."""
        self._process.kill()  # it holds no data; SIGTERM would not end a stopped process
        self._process.wait()


class Parent:
    """The process that started this one; this process ends with it."""

    def __init__(self) -> None:
        self._process = psutil.Process(int(sys.argv[1]))
        self._total = psutil.virtual_memory().total
        self._connection = Connection(sys.stdin.fileno())
        threading.Thread(target=_end_with, args=(self._process.pid,), daemon=True).start()

    @property
    def memory(self) -> dict[str, tuple[int, int | None]]:
        """The process's memory, and the machine's."""
        return {f"process {self._process.pid}": (self._process.memory_info().rss, self._total)}

    def fileno(self) -> int:
        """File descriptor: readable if a message has arrived or the other process has ended."""
        return self._connection.fileno()

    def send(self, message: Any) -> None:
        """Send a message; ends this process if the parent has ended."""
        try:
            self._connection.send(message)
        except OSError:
            end()

    def receive(self) -> Any:
        """Wait for a message; ends this process if the parent has ended."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            end()


def stand_back() -> None:
    """Run only on idle processors, so that training goes first.

    Where the system has no such policy or forbids it, use a low priority instead.
    """
    os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def end(*_: object) -> NoReturn:
    """End this process immediately, without cleaning up."""
    os._exit(0)


def _end_with(parent: int) -> None:
    """End when another process ends, even if its children keep the connection open."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    end()
