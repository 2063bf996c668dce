"""The long task of a gang's member, which takes orders from the client over a direct line.

Dask places the task, shows it, and watches its worker; steps do not go through dask's scheduler.
The task ends when no order came for a second, so that an idle cluster is idle for dask, too. It
also ends every ten seconds, so that dask's pages show what ran. The client then sends another task.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from distributed import get_worker, secede

from dpexec.engine.cluster.gang_messages import (
    Batch,
    Handover,
    Order,
    Outcome,
    Part,
    Rest,
    decode,
    encode,
)
from dpexec.engine.cluster.repeated_steps import (
    ORDER,
    RepeatedOrder,
    StepForm,
    kind_of,
)
from dpexec.engine.cluster.worker.gang import Seat, seat_of
from dpexec.engine.cluster.worker.state import hand_over
from dpexec.engine.cluster.worker.telling import copy_to_send
from dpexec.engine.cluster.worker.wakeups import fewer_wakeups, short_turns
from dpexec.engine.cluster.worker.worker import replicas_at
from dpexec.engine.exchange.lines import Line
from dpexec.engine.exchange.wire import GangError
from dpexec.engine.threads.kernel_threads import one_kernel_thread

__all__ = ["reside"]

_IDLE = 1.0  # seconds without an order after which the task ends
_SOON = 0.02  # seconds without an order after which libraries may use their own threads again
_STAY = 10.0  # seconds after which the task ends with the next order
_LARGE = 1 << 17  # bytes of messages that do not fit into the buffers of a socket
_LOOK = 0.02  # seconds between looks at whether a step is over


def reside(part: Part) -> str:
    """Take orders from the client, first those that came while no such task ran.

    The task leaves the worker's pool of threads, so that other tasks can run.

    Args:
        part: the member's part in the gang.

    Returns:
        Why it did not meet the others, or lost the client; empty if neither happened.
    """
    seat = seat_of(part)
    secede()
    if not seat.residing.acquire(timeout=part.limit):  # the task before it may still be ending
        return f"{part.me.name} still takes orders in another task"
    try:
        seat.meet(part)
        if seat.line is not None:
            with fewer_wakeups(), short_turns():
                _serve(seat, seat.line, part)
        return ""
    except GangError as error:  # the client knows of it, or is gone
        seat.stop()
        return str(error)
    except BaseException as error:
        _say_why(seat, part, error)
        seat.stop()
        raise
    finally:
        seat.residing.release()
        if seat.has_left:
            seat.hang_up()


def _say_why(seat: Seat, part: Part, error: BaseException) -> None:
    """Tell the client that a member cannot go on, so that a new gang forms."""
    why = f"{part.me.name} takes no orders any more ({type(error).__name__}: {error})"
    if seat.line is not None:
        with contextlib.suppress(GangError):  # it is gone, too
            seat.line.tell(encode(Outcome(error=GangError(why))), part.limit)


class _Reading:
    """A thread that receives messages on a line while steps are made.

    Args:
        line: the line to the client.
    """

    def __init__(self, line: Line) -> None:
        self._line, self._lock = line, threading.Lock()
        self._wanted, self._ended = threading.Event(), False
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def meanwhile(self) -> Iterator[None]:
        """A block in which the thread receives; nobody else may use the line in it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="dpexec-ahead", daemon=True)
            self._thread.start()
        self._wanted.set()
        try:
            yield
        finally:
            with self._lock:
                self._wanted.clear()

    def _read(self) -> None:
        while self._wanted.wait() and not self._ended:
            if self._line.lost is not None:
                time.sleep(_LOOK)
            elif self._line.readable(_LOOK):
                with self._lock:
                    if self._wanted.is_set():
                        self._line.move()

    def close(self) -> None:
        """End the thread."""
        self._ended = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()


def _serve(seat: Seat, line: Line, part: Part) -> None:
    """Take orders until none comes for a while; large messages are received during steps, too.

    Raises:
        GangError: the client is gone.
    """
    until = time.monotonic() + _STAY
    reading = _Reading(line)
    with contextlib.closing(reading), contextlib.ExitStack() as limit:
        limit.enter_context(one_kernel_thread())  # once for steps that follow each other
        while not seat.has_left:
            data, outcome = line.take(_SOON), None
            if data is None:
                limit.close()
                data = line.take(_IDLE)
                limit.enter_context(one_kernel_thread())
            if data is not None:
                if line.most > _LARGE:
                    with reading.meanwhile():
                        outcome = _outcome(seat, part, data)
                else:
                    outcome = _outcome(seat, part, data)
            if outcome is not None:
                line.tell(seat.outcomes.encode(outcome, seat.binding), part.limit)
                if outcome.error is not None:
                    seat.stop()
            if not seat.has_left and (data is None or time.monotonic() > until):
                line.tell(encode(Rest()), part.limit)
                return


def _whole(seat: Seat, told: Order) -> Order:
    """An order with all feeds of its steps."""
    order = told.with_batches(seat.batches).with_blocks(get_worker().data)
    seat.forget(told.over)
    if told.form:
        (alike,) = order.steps
        (values,) = alike.values
        assert not isinstance(values, int)
        seat.forms[told.form] = StepForm(alike.first, values)
    return order


def _outcome(seat: Seat, part: Part, data: memoryview) -> Outcome | None:
    """Obey an order; its outcome may be an error for the client. None: the message was no order."""
    try:
        order: Order | RepeatedOrder
        form, kind = kind_of(data)
        if kind == ORDER:
            order, over = seat.forms[form].order(data, seat.batches)
            if over:
                seat.forget(over)
        else:
            told: Order | Batch | Handover = decode(data)
            if isinstance(told, Batch):
                seat.batches[told.number] = told
                return None
            if isinstance(told, Handover):
                replicas = replicas_at(part.epoch.token, part.me.worker)
                with replicas.working(part.epoch):
                    return Outcome(fetched=hand_over(replicas, part.me.worker, told))
            order = _whole(seat, told)
        replicas = replicas_at(part.epoch.token, part.me.worker)
        replicas.begin_work(part.epoch)
        try:
            return seat.obey(replicas, part, order)
        finally:
            replicas.end_work()
    except Exception as error:
        return Outcome(error=copy_to_send(error))
