"""Collectives of a gang by NCCL, between one GPU of each member.

The members agree on a communicator over their own authenticated channels. NCCL's calls are enqueued
on a stream of their own, after the work that computes their inputs, and the host goes on. Before a
sum is read, the host waits for all these calls (:meth:`Exchange.finish`). Meanwhile it checks that
the other members are still there: a GPU would wait forever for a member that is gone, and so would
the host.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from dpexec.engine.core.places import CUDAPlace, array_module, on_device
from dpexec.engine.exchange.wire import GangError, Tag, into, look_after
from dpexec.engine.gpu.nccl import NcclCall, library

if TYPE_CHECKING:
    from dpexec.engine.exchange.group import Group

__all__ = ["Exchange"]

_NUMBER = (1 << 32) + 2  # greater than the numbers of collectives, of the barrier and of mirrors
_ID_BYTES = 128
_LOOK = 5e-5  # seconds between looks at a GPU; a step waits once or twice
_GRACE = 5.0  # seconds that aborting may take


class Exchange:
    """The NCCL communicator of a member of a gang.

    Calls that may wait for other members are made on a thread of their own, since CuPy's calls have
    no time limit. The thread is given up if a member is gone.

    Args:
        group: the gang.
        place: the GPU of this member.
    """

    def __init__(self, group: Group, place: CUDAPlace) -> None:
        self._group, self._place = group, place
        self._cupy = array_module(place)
        self._nccl = library(self._cupy)
        with on_device(place):
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._server = threading.Thread(target=self._serve, name="dpexec-nccl", daemon=True)
        self._communicator: Any = None
        self._left: list[Future[Any]] = []  # calls to wait for; the last gives the event at its end
        self._held: list[NcclCall] = []  # keeps arrays that the stream may still use
        self._met = self._closed = False

    def enqueue(self, calls: Sequence[NcclCall], tag: Tag) -> None:
        """Enqueue calls of NCCL that run after the work on the current stream.

        Args:
            calls: the calls; all members enqueue the same ones in the same order.
            tag: names their collective in errors.

        Raises:
            GangError: a member is gone, or does not answer.
        """
        if not self._met:
            self._meet(tag)
        with on_device(self._place):
            event = self._cupy.cuda.Event(disable_timing=True)
            ready = self._cupy.cuda.get_current_stream().record(event)
        self._held += calls
        self._left.append(self._later(lambda: self._launch(ready, calls)))

    def finish(self, step: int) -> None:
        """Wait until all enqueued calls are done.

        Args:
            step: number of the step.

        Raises:
            GangError: a member failed, is gone, or does not answer; or NCCL failed.
        """
        if not self._left:
            return
        tag = Tag(step, _NUMBER, "the wait for NCCL")
        channels = self._group.channels
        self._group.signal(tag, channels, channels)  # a failed member is named before NCCL hangs
        for found in self._left:
            end = self._result(found, tag)
        self._wait(lambda: end.done, tag)
        self._left, self._held = [], []

    def close(self) -> None:
        """End the communicator, and calls that are still under way.

        Memory is given back when the GPU no longer uses it, however long that takes.
        """
        self._closed = True
        self._work.put(None)
        if self._met:
            aborting = threading.Thread(target=self._abort, daemon=True)
            aborting.start()
            aborting.join(_GRACE)

    # ---- on the thread that may wait

    def _later(self, function: Callable[[], Any]) -> Future[Any]:
        """Call a function on the thread, after the calls before it."""
        future: Future[Any] = Future()

        def call() -> None:
            try:
                with on_device(self._place):
                    future.set_result(function())
            except BaseException as error:  # it is raised where somebody waits for the result
                future.set_exception(error)

        self._work.put(call)
        return future

    def _serve(self) -> None:
        while (call := self._work.get()) is not None and not self._closed:
            call()

    def _join(self, unique: bytes) -> None:
        members, rank = len(self._group.members), self._group.rank
        self._communicator = self._nccl.NcclCommunicator(members, unique, rank)

    def _launch(self, ready: Any, calls: Sequence[NcclCall]) -> Any:
        """Enqueue calls as one group; gives the event at their end."""
        self._stream.wait_event(ready)
        self._nccl.groupStart()
        try:
            for call in calls:
                call.enqueue(self._nccl, self._communicator, self._stream.ptr)
        finally:
            self._nccl.groupEnd()
        return self._stream.record(self._cupy.cuda.Event(disable_timing=True))

    def _abort(self) -> None:
        with on_device(self._place), contextlib.suppress(RuntimeError):  # the failure is known
            if self._communicator is not None:
                self._communicator.abort()
            self._server.join()  # a call that had begun may have enqueued something since
            self._stream.synchronize()
        self._held = []

    # ---- waiting

    def _meet(self, tag: Tag) -> None:
        """Form a communicator, whose ranks are those of the gang."""
        group, unique = self._group, bytearray(_ID_BYTES)
        memory = memoryview(unique)
        if group.rank == 0:
            unique[:] = self._nccl.get_unique_id()
            group.exchange(tag, dict.fromkeys(group.channels, (memory,)), {})
        else:
            group.exchange(tag, {}, {0: into(memory)})
        self._server.start()
        self._met = True
        self._left.append(self._later(lambda: self._join(bytes(unique))))

    def _result(self, future: Future[Any], tag: Tag) -> Any:
        """The result of a call on the other thread."""
        self._wait(future.done, tag)
        try:
            return future.result()
        except RuntimeError as error:  # of NCCL or CUDA
            raise GangError(f"NCCL failed at {tag}: {error}") from error

    def _wait(self, done: Callable[[], bool], tag: Tag) -> None:
        """Wait for work that may wait for other members."""
        limit, others = self._group.limit, self._group.channels
        deadline = time.monotonic() + limit
        while not done():
            look_after(others, lambda: () if done() else others, None, limit, tag)
            try:
                if self._communicator is not None:
                    self._communicator.check_async_error()
            except RuntimeError as error:
                raise GangError(f"NCCL failed at {tag}: {error}") from error
            if time.monotonic() > deadline:
                raise GangError(f"GPUs did not end what NCCL does for {limit:g} s at {tag}")
            time.sleep(_LOOK)
