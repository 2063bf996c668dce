"""Threads that run a whole step of code together (:mod:`dpexec.engine.kernels.thread_team`)."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpexec.engine.kernels import thread_team
from dpexec.engine.threads.prepared import Threads, nap

if TYPE_CHECKING:
    from dpexec.engine.kernels.thread_team import Schedule

__all__ = ["Peers", "ThreadTeam"]

_PATIENCE = 10_000
"""Turns of spinning, of about 25 ns each: most gaps between two steps of a small net are shorter
than 0.25 ms, and waking a thread up takes 0.05 ms (with fewer turns W1 takes 9% longer)."""
_SHORT_PATIENCE = 400
"""Turns of spinning if the leading thread itself carries values that other processes wait for, of
who stands in for it, and of who has waited in vain."""
_BOARD = 64
"""Size of the board in words. Only two are used: nothing else may share their cache lines."""


class Peers(Protocol):
    """Other processes for which a schedule waits."""

    @property
    def urgent(self) -> bool:
        """Whether :meth:`look` has work that the other processes wait for."""

    @property
    def beside(self) -> bool:
        """Whether such work is to be done while items run: then the leading thread runs none."""

    def look(self) -> bool:
        """Called on the leading thread: when nothing was ready for a while, or if it runs no items.

        Returns:
            Whether something has changed for the schedule.

        Raises:
            BaseException: the schedule is to be stopped.
        """


class ThreadTeam:
    """The calling thread and some others that help it.

    Args:
        threads: where the others come from; None: there are none.
        size: how many work together.
    """

    def __init__(self, threads: Threads | None, size: int) -> None:
        self.size = size
        self.idents = [0] * (size + 1)
        """The threads that have worked so far; the last one stood in for the leading thread."""
        self._threads = threads
        self._idle = list(range(1, size)) if threads is not None else []  # their numbers
        self._stand_in, self._stands_by, self._wanted = Threads(1), True, False
        self._asking = threading.Lock()
        self._board = np.zeros(_BOARD, np.int64)
        self._address: int = self._board.ctypes.data
        thread_team.join.prepare()  # where it is compiled, that is no part of a step

    def run(self, schedule: Schedule, peers: Peers | None = None) -> bool:
        """Run a schedule; False if an item refused its values.

        Args:
            schedule: the items to run.
            peers: other processes for which it waits; None: there are none.

        Raises:
            BaseException: an interrupt, or what ``peers`` raised: what was being worked on has
                ended, and nothing else has begun.
        """
        patience = _SHORT_PATIENCE if peers is not None and peers.urgent else _PATIENCE
        if self._board[1]:
            self._let_end()
        schedule.reset()
        self._wanted = peers is not None and peers.beside
        self._board[0] = schedule.address
        try:
            if self._idle or self._wanted:
                self._call_for_help()
            if self._wanted and peers is not None:
                self._look_beside(schedule, peers)
            self._lead(schedule, peers, patience)
        except BaseException:
            schedule.stop()
            self._board[0] = 0
            self._let_end()
            raise
        return not schedule.refused

    def _lead(self, schedule: Schedule, peers: Peers | None, most: int) -> None:
        """Work until all items are done or one was refused; looks when nothing was ready.

        Who has waited in vain spins no more until something comes: those for whom it waits, and
        other threads of this process, may need the core.
        """
        began, done, patience = time.perf_counter(), 0, most
        while not thread_team.join.native(self._address, schedule.address, 0, patience):
            before, done = done, schedule.done
            looked = peers is not None and peers.look()
            if patience < most and done > before:
                began, patience = time.perf_counter(), most
            elif not looked:
                patience = min(most, _SHORT_PATIENCE)
                nap(began)

    def _look_beside(self, schedule: Schedule, peers: Peers) -> None:
        """Look as long as there is work beside the items, which another thread runs meanwhile."""
        began = time.perf_counter()
        while peers.beside and not schedule.refused:
            if peers.look():
                began = time.perf_counter()
            else:
                nap(began)
        self._wanted = False

    def _let_end(self) -> None:
        began = time.perf_counter()
        while self._board[1]:
            nap(began)

    def _call_for_help(self) -> None:
        with self._asking:  # a thread that has ended its attendance asks, too
            while self._idle:
                assert self._threads is not None
                self._threads.ask(_Attendance(self, self._idle.pop()))
            if self._wanted and self._stands_by:
                self._stands_by = False
                self._stand_in.ask(_Attendance(self, self.size))

    def attend(self, number: int) -> None:
        """Help until nothing was to be done for a while; called on a helping thread.

        Args:
            number: of the thread, from 1; the last one stands in for the leading thread.
        """
        self.idents[number] = threading.get_ident()
        patience = _PATIENCE if number < self.size else _SHORT_PATIENCE
        began = time.perf_counter()
        while thread_team.join(self._address, 0, number, patience):
            nap(began)
        if number < self.size:
            self._idle.append(number)
        else:
            self._stands_by = True
        if self._board[0]:  # a run began, perhaps before it could see that this thread is idle
            self._call_for_help()


class _Attendance:
    """The work of a helping thread."""

    def __init__(self, team: ThreadTeam, number: int) -> None:
        self._team = team
        self._number = number

    def work(self) -> None:
        self._team.attend(self._number)
