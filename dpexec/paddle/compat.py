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
    """Encode text, also inside a list or a set.

    Args:
        obj: bytes and None stay as they are.
        encoding: encoding to use.
        inplace: whether to modify the container itself.
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
    """
    factor = 10**d
    return math.copysign(math.floor(abs(x) * factor + 0.5) / factor, x)


def floor_division(x: float, y: float) -> float:
    """``x // y``."""
    return x // y


def get_exception_message(exc: BaseException) -> str:
    """The text of an error."""
    return str(exc)
