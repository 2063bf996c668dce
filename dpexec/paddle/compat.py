"""``paddle.compat``: functions for programs that ran on both Python 2 and 3."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = [
    "floor_division",
    "get_exception_message",
    "int_type",
    "long_type",
    "round",
    "to_bytes",
    "to_text",
]

int_type = long_type = int


def to_text(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Decode bytes, also inside a list, a set, or a dictionary with its keys.

    Args:
        obj: text and None stay as they are.
        encoding: encoding of the bytes.
        inplace: whether to modify the container itself.

    Returns:
        The text; the container itself with ``inplace``.

    Example:
        >>> from dpexec.paddle import compat
        >>> compat.to_text(b"word"), compat.to_text({b"key": b"value"})
        ('word', {'key': 'value'})
        >>> words = [b"a", b"b"]
        >>> _ = compat.to_text(words, inplace=True)
        >>> words
        ['a', 'b']
    """

    def convert(item: Any) -> Any:
        return item.decode(encoding) if isinstance(item, bytes) else item

    if isinstance(obj, dict):
        made = {convert(key): convert(value) for key, value in obj.items()}
        if inplace:
            obj.clear()
            obj.update(made)
        return obj if inplace else made
    return _converted(obj, convert, inplace)


def to_bytes(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    r"""Encode text, also inside a list or a set.

    Args:
        obj: bytes and None stay as they are.
        encoding: encoding to use.
        inplace: whether to modify the container itself.

    Returns:
        The bytes; the container itself with ``inplace``.

    Example:
        >>> from dpexec.paddle import compat
        >>> compat.to_bytes("déjà"), compat.to_bytes(["a", "b"])
        (b'd\xc3\xa9j\xc3\xa0', [b'a', b'b'])
    """

    def convert(item: Any) -> Any:
        return item.encode(encoding) if isinstance(item, str) else item

    return _converted(obj, convert, inplace)


def _converted(obj: Any, convert: Callable[[Any], Any], inplace: bool) -> Any:
    if not isinstance(obj, (list, set)):
        return convert(obj)
    made = [convert(item) for item in obj]
    if not inplace:
        return type(obj)(made)
    obj.clear()
    (obj.extend if isinstance(obj, list) else obj.update)(made)
    return obj


def round(x: float, d: int = 0) -> float:
    """Round halves away from zero, as Python 2 did.

    Args:
        x: number to round.
        d: number of decimals to keep.

    Returns:
        The rounded number, a float.

    Example:
        >>> from dpexec.paddle import compat
        >>> compat.round(2.5), compat.round(-0.5)  # Python 3's own round gives 2 and 0
        (3.0, -1.0)
    """
    factor = 10**d
    return math.copysign(math.floor(abs(x) * factor + 0.5) / factor, x)


def floor_division(x: float, y: float) -> float:
    """``x // y``.

    Args:
        x: the dividend.
        y: the divisor.

    Returns:
        The quotient, rounded down.

    Raises:
        ZeroDivisionError: ``y`` is 0.

    Example:
        >>> from dpexec.paddle import compat
        >>> compat.floor_division(-7, 2)  # towards minus infinity, as Python's //
        -4
    """
    return x // y


def get_exception_message(exc: BaseException) -> str:
    """The text of an error.

    Args:
        exc: the error.

    Returns:
        The text.

    Example:
        >>> from dpexec.paddle import compat
        >>> compat.get_exception_message(ValueError("rate must be positive"))
        'rate must be positive'
    """
    return str(exc)
