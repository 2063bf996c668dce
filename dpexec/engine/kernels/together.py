"""Kernels that a piece of code lacks are compiled in several processes.

The helping processes take the kernels from the end of the list; what they compile is kept on disk,
where this process finds it. They help and nothing more: this process goes through the whole list,
so that it ends with or without them, and the code is the same whoever made it.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dpexec.engine.core.places import available_cpus
from dpexec.engine.kernels import code_store
from dpexec.engine.kernels.compiling import lacks
from dpexec.engine.kernels.machine import Kernel

__all__ = ["Aside", "compile_named", "compile_together", "help_compiling"]

_FEWEST = 7
"""Kernels for which a process is started: before its first one, others compile in that time."""
_MOST_HELPERS = 3
_PATIENCE = 1.0
"""Seconds until it is looked again whether another process has compiled a kernel."""


def compile_together(kernels: Iterable[Kernel]) -> None:
    """Have the machine code of kernels in memory.

    Args:
        kernels: the kernels; those that other processes cannot find by name are compiled here.
    """
    new = [kernel for kernel in dict.fromkeys(kernels) if "address" not in vars(kernel)]
    lacking = [kernel for kernel in new if lacks(kernel.machine_function, kernel.loads())]
    if lacking:
        with _helped([str(kernel) for kernel in reversed(lacking)]):
            for kernel in lacking:
                _ = kernel.address


class Aside:
    """A kernel that another process compiles, while Python does its work with the same bits.

    Args:
        kernel: the kernel.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._turn = threading.Lock()
        self._next = 0.0  # when to look again
        self._process: subprocess.Popen[bytes] | None = None
        self._alone = contextlib.ExitStack()  # of several processes one compiles

    @property
    def at_hand(self) -> bool:
        """Whether the machine code is there at once; else a process begins to compile it."""
        if "address" in vars(self._kernel):
            return True
        with self._turn:
            return self._is_there()

    def _is_there(self) -> bool:
        process = self._process
        if process is not None:
            if process.poll() is None:
                return False
            self._alone.close()
            return True  # if the process failed, this one compiles it, or says why it cannot
        now, kernel = time.monotonic(), self._kernel
        if now < self._next:
            return False
        if not lacks(kernel.machine_function, kernel.loads()):
            return True
        if not _able() or code_store.folder() is None:
            return True
        self._next = now + _PATIENCE
        if self._alone.enter_context(code_store.at_most_one(str(kernel))):
            with contextlib.suppress(OSError):
                self._process = _start([str(kernel)], "compile_named")
        else:
            self._alone.close()
        return False


def _able() -> bool:
    """Whether this process can start others."""
    return bool(sys.executable) and not hasattr(sys, "frozen")


@contextlib.contextmanager
def _helped(names: Sequence[str]) -> Iterator[None]:
    """Helpers compile kernels in the meantime; they end soon after this block, or this process."""
    number = min(len(names) // _FEWEST, available_cpus() - 1, _MOST_HELPERS)
    able = number >= 1 and _able()
    started: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        if able and stack.enter_context(code_store.at_most_one("helpers")):  # of many workers
            with contextlib.suppress(OSError):  # no more processes: this one compiles alone
                started += (_start(names[first::number]) for first in range(number))
        try:
            yield
        finally:
            for process in started:
                if process.stdin is not None:
                    process.stdin.close()
                threading.Thread(target=process.wait, daemon=True).start()


def _start(names: Sequence[str], does: str = "help_compiling") -> subprocess.Popen[bytes]:
    package = str(Path(__file__).parents[3])  # this process may have it from anywhere
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    calling = f"from dpexec.engine.kernels import together; together.{does}()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", calling, *names],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,  # Ctrl-C is for the process that is helped
    )


def help_compiling() -> None:
    """Compile kernels that the command line names, until the standard input ends.

    Then what runs the second step.
    """
    from dpexec.engine.kernels import ahead, thread_team

    known = {str(kernel): kernel for kernel in ahead.known() if isinstance(kernel, Kernel)}
    for name in sys.argv[1:]:
        if select.select([0], [], [], 0)[0]:
            break
        if name in known:
            ahead.prepare(known[name])
    ahead.prepare(thread_team.join)


def compile_named() -> None:
    """Compile the kernels that the command line names, for the next process if this one ended."""
    from dpexec.engine.kernels import ahead

    for kernel in ahead.known():
        if isinstance(kernel, Kernel) and str(kernel) in sys.argv[1:]:
            ahead.prepare(kernel)
