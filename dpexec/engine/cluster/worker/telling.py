"""Errors on their way from workers to the client, whose classes may not be able to travel."""

from __future__ import annotations

from distributed.protocol import pickle

from dpexec.engine.core.errors import EnforceNotMet

__all__ = ["copy_to_send"]


def copy_to_send(error: BaseException) -> BaseException:
    """A copy without the frames it came through, which would keep what they hold alive.

    Of an error that cannot travel, it is what it says; an operator's error goes without the cause
    that cannot. What ends a process must not end a worker.

    Args:
        error: what was raised on this worker.
    """
    if isinstance(error, SystemExit):
        return EnforceNotMet(f"a function of the program ended its process: SystemExit: {error}")
    try:
        copy: BaseException = pickle.loads(pickle.dumps(error))
    except Exception:  # pickle runs the code of any class, which raises what it likes
        if isinstance(error, EnforceNotMet):
            return EnforceNotMet(str(error))
        return RuntimeError(f"{type(error).__name__}: {error}")
    return copy
