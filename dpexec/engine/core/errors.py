"""The errors that dpexec raises.

Paddle raises :class:`EnforceNotMet` for everything its C++ side refuses and plain Python
exceptions (``TypeError``, ``ValueError``, ``AssertionError``) for what its Python side refuses;
dpexec raises the same class for the same mistake, so that ``except`` clauses keep working.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

__all__ = [
    "ClusterError",
    "EOFException",
    "EnforceNotMet",
    "FunctionError",
    "MissingGradientError",
    "MissingKernelError",
    "SchedulerLostError",
    "StateLostError",
    "WorkerLostError",
    "mistake_behind",
    "section_of",
    "see",
    "similar",
]


_SEE = "See docs/errors.md#"
_Error = TypeVar("_Error", bound=BaseException)


class EnforceNotMet(Exception):
    """A program, a feed or a value breaks a rule of an operator or of the executor.

    Attributes:
        operator: the type of the operator; None if the error is about none.
        line: the user's line that made it, such as ``train.py:12``; None if unknown.
        device: the number of the device on which it failed; None if it did not run.
        node: its number in the graph of the devices; None if it did not run.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     x, y = fluid.data("x", [2, 3]), fluid.data("y", [4, 5])
        ...     try:
        ...         fluid.layers.matmul(x, y)
        ...     except fluid.core.EnforceNotMet as error:
        ...         print(str(error)[:80])
        operator matmul: X float32[2, 3] and Y float32[4, 5] cannot be multiplied (trans
    """

    operator: str | None = None
    line: str | None = None
    device: int | None = None
    node: int | None = None

    def __str__(self) -> str:
        """The message; bytes of a damaged file in it that are no text are shown as escapes."""
        return super().__str__().encode("utf-8", "backslashreplace").decode("utf-8")


class EOFException(Exception):
    """A reader inside the program has no more data.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main, fluid.Program()):
        ...     reader = fluid.layers.py_reader(2, shapes=[[-1, 1]], dtypes=["float32"])
        ...     total = fluid.layers.reduce_sum(fluid.layers.read_file(reader))
        >>> reader.decorate_tensor_provider(lambda: ([np.ones([n, 1], "float32")] for n in (2, 3)))
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> reader.start()
        >>> try:
        ...     while True:
        ...         print(exe.run(main, fetch_list=[total]))
        ... except fluid.core.EOFException:
        ...     reader.reset()  # before the next epoch
        [array([2.], dtype=float32)]
        [array([3.], dtype=float32)]
    """


class MissingKernelError(EnforceNotMet, ValueError):
    """The program uses an operator type that dpexec does not know.

    A ValueError too: that is what Paddle raises where such an operator is added.

    Example:
        >>> import dpexec as fluid
        >>> block = fluid.Program().global_block()
        >>> try:
        ...     block.append_op("warp", {}, {}, {})
        ... except fluid.errors.MissingKernelError as error:
        ...     print(str(error)[:60])
        Operator "warp" has not been registered.
    """


class MissingGradientError(EnforceNotMet):
    """A gradient is needed of an operator that has none.

    Example:
        >>> import dpexec as fluid
        >>> issubclass(fluid.errors.MissingGradientError, fluid.core.EnforceNotMet)
        True
    """


class ClusterError(RuntimeError):
    """The cluster that a program runs on has failed.

    Args:
        message: what has failed.

    Example:
        >>> from dpexec import errors
        >>> kinds = (errors.WorkerLostError, errors.SchedulerLostError, errors.StateLostError)
        >>> [issubclass(kind, errors.ClusterError) for kind in kinds]
        [True, True, True]
    """

    section = "workers-are-gone"  # of the catalogue

    def __init__(self, message: str) -> None:
        super().__init__(message)
        see(self.section, self)


class WorkerLostError(ClusterError):
    """Workers have left the cluster or do not answer.

    Args:
        message: the workers, and what dpexec waited for.
        lost: the reason for each worker, by address; empty if dask gave none.

    Example:
        >>> from dpexec import errors
        >>> error = errors.WorkerLostError("worker 0 left", {"tcp://a:40001": "killed"})
        >>> error.lost, isinstance(error, errors.ClusterError)
        ({'tcp://a:40001': 'killed'}, True)
    """

    def __init__(self, message: str, lost: Mapping[str, str]) -> None:
        super().__init__(message)
        self.lost = dict(lost)

    def __reduce__(self) -> tuple[type[WorkerLostError], tuple[str, dict[str, str]]]:
        return type(self), (str(self), self.lost)


class StateLostError(ClusterError):
    """State of replicas was lost with their workers; training can go on from a checkpoint.

    Args:
        message: the state that is lost, and the workers that had it.

    Example:
        >>> from dpexec import errors
        >>> try:
        ...     raise errors.StateLostError("the parameters of replica 1 are gone")
        ... except errors.ClusterError as error:  # go on from the last checkpoint
        ...     print(error)
        the parameters of replica 1 are gone
    """

    section = "state-is-gone"


class SchedulerLostError(ClusterError):
    """The scheduler of the cluster does not answer.

    Args:
        message: the scheduler's address, and how long it was waited for.

    Example:
        >>> from dpexec import errors
        >>> issubclass(errors.SchedulerLostError, errors.ClusterError)
        True
    """

    section = "the-scheduler-is-gone"


class FunctionError(Exception):
    """A function of the user that an operator calls has failed.

    Args:
        error: the exception that it raised, or its text.
    """

    def __init__(self, error: BaseException | str) -> None:
        super().__init__(error if isinstance(error, str) else f"{type(error).__name__}: {error}")


def see(section: str, error: _Error) -> _Error:
    """Add a note to an error that names its section of the catalogue of errors.

    Notes stand below the message in tracebacks, so the message itself stays Paddle's.

    Args:
        section: the heading in ``docs/errors.md``, as links write it.
        error: the error, which is returned; a section that it names already stays.

    Example:
        >>> see("a-wrong-shape", ValueError("6 is not 5")).__notes__
        ['See docs/errors.md#a-wrong-shape']
    """
    if section_of(error) is None:
        error.add_note(_SEE + section)
    return error


def section_of(error: BaseException) -> str | None:
    """The section of the catalogue that an error names, if it names one."""
    notes = (note for note in getattr(error, "__notes__", ()) if note.startswith(_SEE))
    return next((note.removeprefix(_SEE) for note in notes), None)


def mistake_behind(error: EnforceNotMet) -> BaseException | None:
    """The cause of an operator's error, if the error does not tell it itself.

    Kernels refuse values with a ValueError, and the operator's error has its text. Any other cause
    is a mistake in a kernel, or in a function of the user.
    """
    cause = error.__cause__
    if isinstance(cause, FunctionError):
        return cause.__cause__
    return None if isinstance(cause, EnforceNotMet | ValueError) else cause


def similar(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: similar names that exist.

    Args:
        name: the unknown one.
        known: the names that exist.

    Example:
        >>> "no layer 'sofmax'" + similar("sofmax", ["relu", "softmax"])
        "no layer 'sofmax'; similar: softmax"
    """
    close = difflib.get_close_matches(name, known, n=3)
    return f"; similar: {', '.join(close)}" if close else ""
