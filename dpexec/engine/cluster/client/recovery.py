"""What needs all replicas is done again when workers were lost and their replicas have moved."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from dpexec.engine.cluster.worker.versions import StaleTaskError
from dpexec.engine.core.errors import ClusterError, StateLostError, WorkerLostError

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup

__all__ = ["Recovery"]

_HANDED_ON = 10.0  # seconds in which workers that are closed hand on what they have, if busy
_LOOK = 0.1  # seconds between looks for it
_ATTEMPTS = 4
"""How often the same step may lose workers: it may be what kills them."""

_T = TypeVar("_T")


class Recovery:
    """The steps that were begun, and the way back to the last complete one.

    Args:
        group: the replicas.
        forget: is called whenever workers no longer know what they were told.

    Attributes:
        busy: is held by who works with all replicas.
        lost: why there is no state to go on with, until the user gives some.
        settle: takes the outcome of steps that are still being made, if there are some.
    """

    def __init__(self, group: ReplicaGroup, forget: Callable[[], None]) -> None:
        self.busy = threading.RLock()
        self.lost: StateLostError | None = None
        self.settle: Callable[[], None] | None = None
        self._group, self._forget = group, forget
        self._next = 0
        self._attempt = range(0)  # numbers of the steps that were begun last
        self._disturbed = False  # whether they may not have come to their end

    # ---- steps

    def begin(self, count: int) -> range:
        """Numbers for steps that begin now.

        Args:
            count: how many.
        """
        numbers = range(self._next, self._next + count)
        self._next, self._attempt, self._disturbed = numbers.stop, numbers[:-1], True
        return numbers

    def end(self, number: int) -> None:
        """The steps that were begun have come to their end.

        Args:
            number: of the last one.
        """
        self._group.complete, self._attempt, self._disturbed = number, range(0), False

    def give_up(self) -> None:
        """Forget the steps that were begun; it is known how many of them are complete."""
        self._attempt = range(0)

    def made_before_failure(self) -> int:
        """How many of the steps that were begun are complete, though they failed."""
        attempt, complete = self._attempt, self._group.complete
        if not attempt:
            return 0
        self.give_up()
        return attempt.index(complete) + 1 if complete in attempt else 0

    def see_what_was_made(self, failed: BaseException) -> None:
        """After an operator's error in a graph of several steps, find the step that all have made.

        If it cannot be found, the run counts as far as was known before, and so the next one will
        go on from there.

        Args:
            failed: the error.
        """
        if self._attempt and not isinstance(failed, ClusterError):
            with contextlib.suppress(ClusterError):
                self.surviving(lambda: None)  # begins another epoch, as the steps have failed

    # ---- workers that are lost

    def surviving(self, action: Callable[[], _T], lost: WorkerLostError | None = None) -> _T:
        """Do something that needs all replicas, again when workers were lost and replaced.

        Args:
            action: what to do.
            lost: workers that were lost when it was tried before.

        Raises:
            WorkerLostError: it has lost workers too often.
            StateLostError: nobody has the state of a lost replica.
        """
        left, complete = _ATTEMPTS, self._group.complete
        while left:
            try:
                if lost is not None or self._disturbed:
                    self.regroup({} if lost is None else lost.lost)
                    lost = None
                return action()
            except WorkerLostError as error:
                lost = error
            except StaleTaskError as error:  # dask repeats tasks when it has lost their results
                lost = WorkerLostError(str(error), {})
            left = left - 1 if self._group.complete == complete else _ATTEMPTS
            complete = self._group.complete
        gone = lost.lost if lost else {}
        why = ", which may be what kills them (for want of memory?)" if gone else ""
        raise WorkerLostError(
            f"workers were lost {_ATTEMPTS} times at the same step{why}; the last time: {lost}",
            gone,
        )

    def regroup(self, lost: Mapping[str, str]) -> None:
        """Begin another epoch, in which every replica has a home.

        Args:
            lost: what is wrong with workers, by address.

        Raises:
            StateLostError: nobody has the state of a lost replica.
        """
        self._disturbed = True  # also if it does not come to its end
        until = time.monotonic() + _HANDED_ON
        while self._disturbed:
            try:
                self._group.regroup(lost, self._attempt)
                self._disturbed = False
            except StateLostError as error:
                if time.monotonic() > until:
                    self.lost, self._disturbed = error, False  # there is nothing to put right
                    raise
                time.sleep(_LOOK)  # workers that are closed may be handing it on
            finally:
                self._forget()

    def read(self, action: Callable[[], _T]) -> _T:
        """Read state; other threads may do that in the middle of a run, and may have to wait.

        Args:
            action: what reads.

        Raises:
            StateLostError: it is gone.
            Exception: steps failed that were still being made.
        """
        settle = self.settle
        if settle is not None:
            settle()
        if self.lost is not None:
            raise self.lost
        try:
            return action()
        except (WorkerLostError, StaleTaskError):
            with self.busy:
                return self.surviving(action)
