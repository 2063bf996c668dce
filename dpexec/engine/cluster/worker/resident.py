"""The task of a member that stays: it takes orders from the client over a direct line.

Dask places it, shows it and watches over its worker; steps do not go through dask's scheduler. It
ends when nobody has wanted a step for a moment, so that an idle cluster is idle for dask, too, and
now and then in between, so that dask's pages show what ran; the client sends another one then.
"""

from __future__ import annotations

import time

from distributed import secede

from dpexec.engine.cluster.gang_messages import Order, Outcome, Part, Rest, decode, encode
from dpexec.engine.cluster.worker.gang import Seat, seat_of
from dpexec.engine.cluster.worker.telling import copy_to_send
from dpexec.engine.cluster.worker.worker import at_work
from dpexec.engine.exchange.lines import Line, Parts
from dpexec.engine.exchange.wire import GangError
from dpexec.engine.threads.kernel_threads import one_kernel_thread

__all__ = ["reside"]

_IDLE = 1.0  # seconds without an order after which the task ends
_STAY = 10.0  # seconds after which it ends with the next order


def reside(part: Part) -> str:
    """Take orders from the client, first of all those that came while nobody resided.

    It leaves the worker's pool of threads, so that others' tasks run.

    Args:
        part: the member's part in the gang.

    Returns:
        Why it did not come to meet the others, or lost the client; empty for none of these.
    """
    seat = seat_of(part)
    secede()
    if not seat.residing.acquire(timeout=part.limit):  # by the one before, which ends
        return f"{part.me.name} still takes orders in another task"
    try:
        seat.meet(part)
        if seat.line is not None:
            _serve(seat, seat.line, part)
        return ""
    except GangError as error:  # the client knows, or is gone
        seat.stop()
        return str(error)
    finally:
        seat.residing.release()
        if seat.has_left:
            seat.hang_up()


def _serve(seat: Seat, line: Line, part: Part) -> None:
    """Take orders until nobody has one.

    Raises:
        GangError: the client is gone.
    """
    until = time.monotonic() + _STAY
    while not seat.has_left:
        parts = line.take(_IDLE)
        if parts is not None:
            outcome = _outcome(seat, part, parts)
            line.tell(encode(outcome), part.limit)
            if outcome.error is not None:
                seat.stop()
        if not seat.has_left and (parts is None or time.monotonic() > until):
            line.tell(encode(Rest()), part.limit)
            return


def _outcome(seat: Seat, part: Part, parts: Parts) -> Outcome:
    """What becomes of an order; an error is the client's to raise."""
    try:
        order: Order = decode(parts)
        with at_work(part.epoch) as replicas, one_kernel_thread():
            return seat.obey(replicas, part, order)
    except Exception as error:
        return Outcome(error=copy_to_send(error))
