"""Schedulers and workers of dask's command line, forked in tenths of a second."""

import ctypes
import os
import signal
from collections.abc import Sequence
from importlib import import_module
from multiprocessing import forkserver

import dask
from distributed.utils import get_mp_context

from tests.distributed.clusters import CHEAP, make_workers_cheap

_PARENT_DIES = 1  # prctl's PR_SET_PDEATHSIG


class Forked:
    """A process of dask's command line, forked from one that has imported what it needs.

    It takes each process two seconds of a processor to import dask and dpexec anew.

    Args:
        role: ``"scheduler"`` or ``"worker"``.
        options: on its command line.
        inside: the network namespace that it lives in; None: this process's.
    """

    def __init__(self, role: str, *options: str, inside: str | None = None) -> None:
        make_workers_cheap()
        self._process = get_mp_context().Process(target=_run_dask, args=(role, options, inside))
        self._process.start()

    @property
    def pid(self) -> int:
        """Its number."""
        found = self._process.pid
        assert found is not None
        return found

    @property
    def works(self) -> bool:
        """Whether it is there."""
        return self._process.is_alive()

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is there."""
        if self.works:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        self._process.kill()
        self._process.join()


def _run_dask(role: str, options: Sequence[str], inside: str | None) -> None:
    """What such a process does; it ends with the process that it was forked from, even if stopped.

    That one ends with its user, unless what it forked could still ask it for more processes.
    """
    os.close(forkserver._forkserver._forkserver_alive_fd)
    system = ctypes.CDLL(None, use_errno=True)
    if system.prctl(_PARENT_DIES, signal.SIGKILL):
        raise OSError(ctypes.get_errno(), "prctl")
    if inside is not None:
        with open(f"/run/netns/{inside}") as namespace:
            if system.setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"setns to {inside}")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    dask.config.set(CHEAP)
    import_module(f"distributed.cli.dask_{role}").main([*options])
