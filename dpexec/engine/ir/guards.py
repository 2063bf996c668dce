"""What is noted on the operators that are being built: their name scope and their device."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator

from dpexec.engine.core.places import is_compiled_with_cuda
from dpexec.engine.ir.callsite import warn

__all__ = ["current_device", "current_name_scope", "device_guard", "name_scope"]


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
    """What the enclosing :func:`device_guard` names, ``""`` outside any."""
    return _devices[-1]


@contextlib.contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Group the operators built inside for views; variable names do not change.

    Args:
        prefix: appended to the enclosing path; a second use gets ``_1``, and so on.

    Raises:
        AssertionError: no prefix.
        TypeError: it is no string.
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

    It is kept in saved programs, and decides nothing here: every operator runs on the device of
    its replica.

    Args:
        device: ``"cpu"``, ``"gpu"``, or None or ``""`` for none.

    Raises:
        ValueError: it is something else.
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
    _devices.append(device or "")
    try:
        yield
    finally:
        _devices.pop()
