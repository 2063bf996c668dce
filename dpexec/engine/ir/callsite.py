"""Where an operator was built: the user's source line, the name scope and the device guard.

Warnings point at the user's line, too.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.places import is_compiled_with_cuda

__all__ = ["current_device", "current_name_scope", "device_guard", "name_scope", "noted_device"]

_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_EXAMPLES = os.path.join(_PACKAGE, "examples") + os.sep


@dataclass(frozen=True, slots=True)
class CallSite:
    """A line of source text.

    Args:
        filename: as Python reports it.
        line: counted from 1.
        function: name of the enclosing function, or ``<module>``.
    """

    filename: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """The text of the line, empty when the file cannot be read."""
        return linecache.getline(self.filename, self.line).strip()

    @property
    def place(self) -> str:
        """File and line without folders, so that files do not reveal paths of the machine."""
        return f"{_file_name(self.filename)}:{self.line}"

    def __str__(self) -> str:
        return f'File "{self.filename}", line {self.line}, in {self.function}\n    {self.source}'


_file_name = functools.cache(os.path.basename)  # programs are built in few files


def user_callsite() -> CallSite | None:
    """The innermost frame outside dpexec, or None; dpexec's examples count as user code.

    An operator made at the end of a ``with`` block gets the line of the ``with`` statement.
    """
    frame, _ = _first_outside(sys._getframe(1))
    if frame is None:
        return None
    return CallSite(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def warn(message: str) -> None:
    """Emit a warning at the user's line."""
    _, distance = _first_outside(sys._getframe(1))
    warnings.warn(message, stacklevel=2 + distance)


def _first_outside(frame: FrameType | None) -> tuple[FrameType | None, int]:
    """The first user frame from ``frame`` outwards, and its distance from ``frame``."""
    distance = 0
    while frame is not None:
        name = frame.f_code.co_filename
        own = name.startswith(_PACKAGE) and not name.startswith(_EXAMPLES)
        if not own and name != contextlib.__file__:
            break
        frame, distance = frame.f_back, distance + 1
    return frame, distance


class _NameScope:
    def __init__(self, path: str) -> None:
        self.path = path
        self._used: defaultdict[str, int] = defaultdict(int)

    def child(self, prefix: str) -> _NameScope:
        number = self._used[prefix]
        self._used[prefix] += 1
        return _NameScope(f"{self.path}{prefix}{f'_{number}' if number else ''}/")


_name_scopes = [_NameScope("/")]
_devices = [""]


def current_name_scope() -> str:
    """The path of the enclosing name scopes, ``"/"`` outside any."""
    return _name_scopes[-1].path


def current_device() -> str:
    """The device of the enclosing :func:`device_guard`, ``""`` outside any."""
    return _devices[-1]


@contextlib.contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Group the operators built inside for views; variable names do not change.

    Args:
        prefix: appended to the enclosing path; a second use gets ``_1``, and so on.

    Yields:
        None.

    Raises:
        AssertionError: no prefix.
        TypeError: it is no string.

    See Also:
        :func:`~dpexec.program_guard`: where layers go.
        :func:`~dpexec.scope_guard`: where values lie.
        :func:`~dpexec.device_guard`: where operators run.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()), fluid.name_scope("encoder"):
        ...     y = fluid.data("x", [None, 2]) * 2.0
        ...     fluid.default_main_program().global_block().ops[0].attr("op_namescope")
        '/encoder/'
    """
    if not prefix:
        raise AssertionError("name_scope prefix can not be empty.")
    if not isinstance(prefix, str):
        raise TypeError(f"the prefix of a name scope must be a string, but is {prefix!r:.80}")
    _name_scopes.append(_name_scopes[-1].child(prefix))
    try:
        yield
    finally:
        _name_scopes.pop()


@contextlib.contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Note a device on the operators built inside.

    The note is saved with the program but has no effect on placement: every operator runs on the
    device of its replica.

    Args:
        device: ``"cpu"``, ``"gpu"``, or None or ``""`` for none.

    Yields:
        None.

    Raises:
        ValueError: it is something else.

    See Also:
        :func:`~dpexec.program_guard`: where layers go.
        :func:`~dpexec.name_scope`: names of operators in pictures.
        :func:`~dpexec.scope_guard`: where values lie.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()), fluid.device_guard("cpu"):
        ...     x = fluid.layers.fill_constant([1], "float32", 1.0)
        ...     fluid.default_main_program().global_block().ops[0].attr("op_device")
        'cpu'
    """
    if device not in ("cpu", "gpu", "", None):
        raise ValueError(
            f"The Attr(device) should be 'cpu', 'gpu' or None, but received {device!r}"
        )
    if device == "cpu" and is_compiled_with_cuda():
        warn(
            "device_guard('cpu') keeps nothing away from GPUs: every operator runs on the device "
            "of its replica"
        )
    with noted_device(device):
        yield


@contextlib.contextmanager
def noted_device(device: str | None) -> Iterator[None]:
    """Note a device, as :func:`device_guard` does, on operators that nobody asked to place."""
    _devices.append(device or "")
    try:
        yield
    finally:
        _devices.pop()
