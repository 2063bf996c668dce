"""Errors of workers for the client; some cannot be pickled."""

from __future__ import annotations

import pickle

import cloudpickle

from dpexec.engine.core.errors import EnforceNotMet

__all__ = ["copy_to_send"]


def copy_to_send(error: BaseException) -> BaseException:
    """A copy of an error without its traceback, which would keep the values of frames alive.

    An error that cannot be pickled is replaced by a ``RuntimeError`` with its text. An operator's
    error loses its cause if that cannot be pickled. ``SystemExit`` and ``KeyboardInterrupt`` become
    errors, as they must not end a worker.

    Args:
        error: an error that was raised on this worker.
    """
    if not isinstance(error, Exception):
        why = f"{type(error).__name__}: {error}".removesuffix(": ")
        return EnforceNotMet(f"a function of the program ended its process: {why}")
    try:  # not with dask's pickle, which logs what fails
        copy: BaseException = pickle.loads(cloudpickle.dumps(error))
    except Exception:  # pickle runs code of the error's class, which may raise anything
        if isinstance(error, EnforceNotMet):
            told = EnforceNotMet(str(error))
            told.operator, told.line = error.operator, error.line
            told.device, told.node = error.device, error.node
            return told
        return RuntimeError(f"{type(error).__name__}: {error}")
    return copy
