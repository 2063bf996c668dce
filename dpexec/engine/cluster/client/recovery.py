"""Repeats work that needs all replicas, when workers were lost and their replicas have moved."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from dpexec.engine.cluster.client.losses import ATTEMPTS
from dpexec.engine.cluster.worker.versions import StaleTaskError
from dpexec.engine.core.errors import ClusterError, StateLostError, WorkerLostError
from dpexec.engine.trace import between

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup

__all__ = ["Recovery"]

_HANDED_ON = 10.0  # seconds for workers that are being closed to hand on their state
_LOOK = 0.1  # seconds between looks for that state

_T = TypeVar("_T")


class Recovery:
    """The steps that were begun, and the way back to the last complete one.

    Args:
        group: the replicas.
        forget: called when workers may have forgotten what they were told.
        busy: held by the thread that works with all replicas. Engines that share variables have one
            lock, since each reads values from the workers of the others.

    Attributes:
        busy: that lock.
        lost: why there is no state to go on from; None again when the user has set variables.
        settle: waits for steps that were only ordered, and takes their outcome; None: there are
            none.
    """

    def __init__(
        self, group: ReplicaGroup, forget: Callable[[], None], busy: threading.RLock
    ) -> None:
        self.busy = busy
        self.lost: StateLostError | None = None
        self.settle: Callable[[], None] | None = None
        self._group, self._forget = group, forget
        self._next = 0
        self._attempt = range(0)  # numbers of the steps that were begun last
        self._disturbed = False  # whether these steps may be incomplete
        self._suspected: WorkerLostError | None = None  # what to begin with next time
        self._regrouped = 0

    @property
    def is_calm(self) -> bool:
        """Whether no steps are under way, and nothing is lost."""
        return self.lost is None and self.settle is None and not self._disturbed

    # ---- steps

    def begin(self, count: int) -> range:
        """Number steps that begin now.

        Args:
            count: how many steps begin.
        """
        numbers = range(self._next, self._next + count)
        self._next, self._attempt, self._disturbed = numbers.stop, numbers[:-1], True
        return numbers

    def end(self, number: int) -> None:
        """Note that the steps that were begun are complete.

        Args:
            number: of the last step.
        """
        self._group.complete, self._attempt, self._disturbed = number, range(0), False

    def give_up(self) -> None:
        """Forget the steps that were begun: the caller knows how many of them are complete."""
        self._attempt = range(0)

    def made_before_failure(self) -> int:
        """How many of the steps that were begun are complete, although a later one failed."""
        attempt, complete = self._attempt, self._group.complete
        if not attempt:
            return 0
        self.give_up()
        return attempt.index(complete) + 1 if complete in attempt else 0

    def see_what_was_made(self, failed: BaseException) -> None:
        """After an operator's error in a graph of several steps, find the last complete step.

        If it cannot be found, only the steps that were known to be complete count, and the next run
        goes on from there.

        Args:
            failed: the error.
        """
        if self._attempt and not isinstance(failed, ClusterError):
            with contextlib.suppress(ClusterError):
                self.surviving(lambda: None)  # regroups, as the steps have failed

    # ---- workers that are lost

    def suspect(self, lost: WorkerLostError) -> None:
        """Note that workers were lost outside of :meth:`surviving`, which then begins without them.

        Args:
            lost: the error that said so.
        """
        self._suspected = WorkerLostError(str(lost), lost.lost)  # without frames, which know all

    def surviving(self, action: Callable[[], _T], lost: WorkerLostError | None = None) -> _T:
        """Call a function that needs all replicas, again whenever workers were lost and replaced.

        Args:
            action: the function.
            lost: the error of an earlier call.

        Raises:
            WorkerLostError: it has lost workers too often.
            StateLostError: no worker has the state of a lost replica.
        """
        began, before = time.perf_counter_ns(), self._regrouped
        try:
            return self._surviving(action, lost)
        finally:
            if self._regrouped > before:
                between.spans["recovering"].append((began, time.perf_counter_ns()))

    def _surviving(self, action: Callable[[], _T], lost: WorkerLostError | None) -> _T:
        lost, self._suspected = lost or self._suspected, None
        left, complete = ATTEMPTS - (lost is not None), self._group.complete
        while left:
            try:
                if lost is not None or self._disturbed:
                    self.regroup({} if lost is None else lost.lost)
                    lost = None
                return action()
            except WorkerLostError as error:
                lost = error
            except StaleTaskError as error:  # dask repeats a task when its result was lost
                lost = WorkerLostError(str(error), {})
            left = left - 1 if self._group.complete == complete else ATTEMPTS
            complete = self._group.complete
        gone = lost.lost if lost else {}
        why = ", which may be what kills them (for want of memory?)" if gone else ""
        raise WorkerLostError(
            f"workers were lost {ATTEMPTS} times at the same step{why}; the last time: {lost}",
            gone,
        )

    def making(
        self,
        action: Callable[[], _T],
        set_anew: Callable[[], bool],
        lost: WorkerLostError | None = None,
    ) -> _T:
        """:meth:`surviving` for steps, which may begin with variables of the user's scope.

        The user may have set them before anybody has noticed that state was lost, as after
        ``Client.restart``. Where steps write nothing, no state can be lost.

        Args:
            action: makes the steps; restarts the replicas if their state is lost.
            set_anew: whether the scope has all that steps wrote.
            lost: the error of an earlier call.

        Raises:
            StateLostError: the state is lost, and the user has not set all of it.
        """
        try:
            return self.surviving(action, lost)
        except StateLostError:
            if not set_anew():
                raise
        return self.surviving(action)

    def look(self, set_anew: Callable[[], bool]) -> bool:
        """Let replicas move if workers have joined or left.

        Args:
            set_anew: see :meth:`making`.

        Returns:
            Whether there is state to go on from; if not, the user's scope has all of it.

        Raises:
            StateLostError: the state is lost, and the user has not set all of it.
        """
        self.making(self._look, set_anew)
        return self.lost is None

    def _look(self) -> None:
        if self.lost is None and self._group.look():
            self.regroup({})

    def regroup(self, lost: Mapping[str, str]) -> None:
        """Begin another epoch, in which every replica has a home.

        Args:
            lost: what is wrong with lost workers, by address.

        Raises:
            StateLostError: no worker has the state of a lost replica.
        """
        self._disturbed = True  # also if an error or an interrupt ends this
        self._suspected = None
        self._regrouped += 1
        until, may_come = time.monotonic() + _HANDED_ON, True
        while self._disturbed:
            try:
                self._group.regroup(lost, self._attempt)
                self._disturbed = False
            except StateLostError as error:
                if not may_come or time.monotonic() > until:
                    self.lost, self._disturbed = error, False  # another try cannot help
                    raise
                time.sleep(_LOOK)  # workers that are being closed may still hand it on
                may_come = self._group.state_may_come()  # if not now, then it has, or never will
            finally:
                self._forget()

    def read(self, action: Callable[[], _T]) -> _T:
        """Read state. Other threads may do so during a run, and may have to wait.

        Args:
            action: the function that reads.

        Raises:
            StateLostError: the state is lost.
            Exception: steps that were only ordered have failed.
        """
        settle = self.settle
        if settle is not None:
            settle()
        if self.lost is not None:
            raise self.lost
        epoch = self._group.epoch
        try:
            return action()
        except (WorkerLostError, StaleTaskError) as error:
            with self.busy:
                if self.lost is not None:  # another thread found that out meanwhile
                    raise self.lost from None
                if not isinstance(error, WorkerLostError) or epoch != self._group.epoch:
                    return self.surviving(action)
                return self.surviving(action, error)
