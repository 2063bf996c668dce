"""Sizes that grow with the rows of a batch, so that an operator is lowered once for many sizes.

Shape rules and lowerings are ordinary Python. With a :class:`Size` in place of a number they say
what they do for every number of rows: sums and products stay ``slope * rows + offset``, and what a
comparison says narrows down for which rows all of it holds. Whatever needs a plain number (``int``,
``range``, NumPy) raises TypeError: then the rows are not kept open, and nothing is lost but time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Quotient", "Rows", "Size", "at", "at_most", "real"]


class Rows:
    """A number of rows that is kept open, and for which numbers all that was said of it holds.

    Args:
        example: decides comparisons.
        most: no number is larger.
    """

    def __init__(self, example: int, most: int) -> None:
        self.example = example
        self.least, self.most = 0, most
        self.capacity = most

    @classmethod
    def about(cls, example: int, largest: int) -> Rows:
        """As many as an example, or some more or less.

        Args:
            example: a number of rows.
            largest: the largest number that was seen.

        Returns:
            An open number; there is room for half as many again as were seen, rounded up to a
            power of two: numbers that come lie about those that came.
        """
        most = max(example, largest)
        return cls(example, 1 << max(most + most // 2 - 1, 1).bit_length())

    @staticmethod
    def of(*numbers: Any) -> Rows | None:
        """The rows that one of some numbers depends on, or None."""
        return next((number.rows for number in numbers if isinstance(number, Size)), None)

    def __contains__(self, rows: int) -> bool:
        return self.least <= rows <= self.most

    def is_at_most(self, slope: int, offset: int, limit: int) -> bool:
        """Whether ``slope * rows + offset <= limit``, from now on for all numbers that are left.

        Args:
            slope: an integer.
            offset: an integer.
            limit: an integer.

        Returns:
            What holds for the example; numbers for which it does not are given up.
        """
        room = limit - offset
        holds = slope * self.example <= room
        if not holds:
            slope, room = -slope, -room - 1
        if slope > 0:
            self.most = min(self.most, room // slope)
        elif slope < 0:
            self.least = max(self.least, -(room // -slope))
        return holds


class Size:
    """``slope * rows + offset``.

    Args:
        rows: the open number.
        slope: an integer.
        offset: an integer.
    """

    __slots__ = ("offset", "rows", "slope")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, rows: Rows, slope: int = 1, offset: int = 0) -> None:
        self.rows, self.slope, self.offset = rows, slope, offset

    def at(self, rows: int) -> int:
        """The number for some rows."""
        return self.slope * rows + self.offset

    def _made(self, slope: int, offset: int) -> Any:
        return Size(self.rows, slope, offset) if slope else offset

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Size):
            return self._made(self.slope + other.slope, self.offset + other.offset)
        if not isinstance(other, int):
            return NotImplemented
        return self._made(self.slope, self.offset + other)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return self._made(self.slope * other, self.offset * other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, Size):
            times = self.slope // other.slope
            exact = (other.slope * times, other.offset * times) == (self.slope, self.offset)
            return times if exact and other > 0 else NotImplemented
        if type(other) is not int or other == 0 or self.slope % other:
            return NotImplemented
        return self._made(self.slope // other, self.offset // other)

    def __mod__(self, other: Any) -> Any:
        if type(other) is not int or other == 0 or self.slope % other:
            return NotImplemented
        return self.offset % other

    def __truediv__(self, other: Any) -> Any:
        return Quotient(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return Quotient(other, self)

    def __le__(self, other: Any) -> bool:
        if not isinstance(other, Size | int):
            return NotImplemented
        less = self - other
        if isinstance(less, Size):
            return self.rows.is_at_most(less.slope, less.offset, 0)
        return bool(less <= 0)

    def __ge__(self, other: Any) -> bool:
        return -self <= -other

    def __lt__(self, other: Any) -> bool:
        return self + 1 <= other

    def __gt__(self, other: Any) -> bool:
        return self >= other + 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Size | int):
            return NotImplemented
        if isinstance(other, Size) and self.slope == other.slope:  # whatever the rows are
            return self.offset == other.offset
        return self <= other and self >= other

    def __bool__(self) -> bool:
        return self != 0

    def __repr__(self) -> str:
        return f"{self.slope}*rows{self.offset:+d}"


@dataclass(frozen=True, eq=False)
class Quotient:
    """A number that is one size divided by another: the share of a mean.

    Args:
        dividend: a size or a number.
        divisor: a size or a number.
    """

    dividend: Any
    divisor: Any

    def at(self, rows: int) -> float:
        """The number for some rows."""
        return float(at(self.dividend, rows) / at(self.divisor, rows))


def real(number: Any) -> Any:
    """A number as a float, if it does not depend on rows.

    Args:
        number: a number or quotient.

    Returns:
        A quotient stays what it is.
    """
    return number if isinstance(number, Quotient) else float(number)


def at_most(number: Any) -> Any:
    """The largest that a size can be.

    Args:
        number: a size or a number.
    """
    return number.at(number.rows.capacity) if isinstance(number, Size) else number


def at(number: Any, rows: int) -> Any:
    """What a number is for some rows: itself, if it does not depend on them.

    Args:
        number: a size, a quotient, or any number.
        rows: the number of rows.
    """
    return number.at(rows) if isinstance(number, Size | Quotient) else number
