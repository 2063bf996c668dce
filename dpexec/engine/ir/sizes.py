"""Symbolic sizes that depend on the batch, so that one lowering serves many batch sizes.

Shape rules and lowerings are ordinary Python. Run on a :class:`Size` in place of a number, they
yield a result for every number of rows: sums and products stay ``slope * rows + offset``, and each
comparison narrows the range of rows for which the result is valid. An operation that needs a plain
number (``int``, ``range``, NumPy) raises :class:`NeedsNumber`: then the operator is lowered again
for each batch size, which only costs time.

A batch of sequences has several row counts, such as sentences and words in each of two languages,
so slopes and rows are vectors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass

__all__ = ["Counts", "NeedsNumber", "Quotient", "Rows", "Size", "at", "at_most", "real"]

Counts = tuple[int, ...]
"""The numbers of rows of one batch."""

_RELATIONS = {"<=": operator.le, "==": operator.eq}
_INTEGERS = (int, np.integer)


class NeedsNumber(Exception):
    """A computation depends on a number of rows in a way that no symbolic size can express.

    This is a signal, not an error: the same code works for every plain number of rows. It is not a
    subclass of TypeError, so that real errors and this signal cannot be confused.
    """


class _Open:
    """Rejects operations that need a plain number."""

    __slots__ = ()

    def _refuse(self, *_: Any) -> Any:
        raise NeedsNumber(f"a plain number is needed, not {self!r}")

    __index__ = __int__ = __float__ = __complex__ = _refuse
    __round__ = __trunc__ = __floor__ = __ceil__ = __abs__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _refuse
    __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __pow__ = __rpow__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse


class Rows:
    """Symbolic row counts, with the range of counts for which all comparisons so far hold.

    Args:
        example: concrete counts, which decide comparisons.
        most: upper bounds of the counts.
    """

    def __init__(self, example: Sequence[int], most: Sequence[int]) -> None:
        self.example = tuple(example)
        self.least, self.most = [0] * len(most), list(most)
        self.capacity = tuple(most)
        self._said: dict[tuple[Counts, int, str], bool] = {}  # of sums of several numbers

    @classmethod
    def about(cls, example: Sequence[int], largest: Sequence[int]) -> Rows:
        """Symbolic row counts around an example.

        Args:
            example: numbers of rows.
            largest: the largest numbers seen so far.

        Returns:
            Row counts whose upper bound is 1.5 times the largest seen, rounded up to a power of
            two, as later batches tend to have similar sizes.
        """
        most = map(max, example, largest)
        return cls(example, [1 << max(n + n // 2 - 1, 1).bit_length() for n in most])

    @staticmethod
    def of(*numbers: Any) -> Rows | None:
        """The rows that the first symbolic one of ``numbers`` depends on, or None."""
        return next((number.rows for number in numbers if isinstance(number, Size)), None)

    def size(self, index: int) -> Size:
        """One of the row counts as a symbolic size.

        Args:
            index: its position.
        """
        return Size(self, [int(index == other) for other in range(len(self.example))])

    def __contains__(self, counts: Counts) -> bool:
        for least, count, most in zip(self.least, counts, self.most, strict=True):
            if not least <= count <= most:
                return False
        for (slopes, offset, relation), holds in self._said.items():
            if _RELATIONS[relation](_value(slopes, offset, counts), 0) != holds:
                return False
        return True

    def holds(self, slopes: Counts, offset: int, relation: str) -> bool:
        """Decide ``slopes @ rows + offset <= 0`` by the example, and keep only rows that agree.

        Args:
            slopes: one per row count; not all are 0.
            offset: an integer.
            relation: ``<=``, or ``==`` to compare for equality with 0.

        Returns:
            The answer for the example; row counts with another answer are excluded from now on.
        """
        answer: bool = _RELATIONS[relation](_value(slopes, offset, self.example), 0)
        if len(slopes) - slopes.count(0) > 1:
            self._said[slopes, offset, relation] = answer
        elif relation == "<=":
            self._bound(slopes, offset, answer)
        else:  # it is 0, more, or less
            if self.holds(slopes, offset, "<="):
                self.holds(tuple(-slope for slope in slopes), -offset, "<=")
        return answer

    def _bound(self, slopes: Counts, offset: int, holds: bool) -> None:
        """Exclude rows for which ``slopes @ rows + offset <= 0`` differs from ``holds``."""
        index, slope = next((i, slope) for i, slope in enumerate(slopes) if slope)
        room = -offset
        if not holds:
            slope, room = -slope, -room - 1
        if slope > 0:
            self.most[index] = min(self.most[index], room // slope)
        else:
            self.least[index] = max(self.least[index], -(room // -slope))


class Size(_Open):
    """``slopes @ rows + offset``.

    Args:
        rows: the symbolic row counts.
        slopes: an integer for each row count.
        offset: an integer.
    """

    __slots__ = ("offset", "rows", "slopes")
    __array_ufunc__ = None  # so that NumPy's numbers leave arithmetic to this class

    def __init__(self, rows: Rows, slopes: Sequence[int], offset: int = 0) -> None:
        self.rows, self.slopes, self.offset = rows, tuple(slopes), offset

    def at(self, counts: Counts) -> int:
        """The number for some rows."""
        return _value(self.slopes, self.offset, counts)

    def _made(self, slopes: Sequence[int], offset: int) -> Any:
        return Size(self.rows, slopes, offset) if any(slopes) else offset

    __hash__ = _Open._refuse

    def _other(self, other: Any) -> Any:
        """The result of an operation with an operand that is not an integer."""
        if isinstance(other, float | np.floating | _Open):
            self._refuse()
        return NotImplemented

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Size):
            slopes = tuple(map(operator.add, self.slopes, other.slopes))
            return self._made(slopes, self.offset + other.offset)
        if not isinstance(other, _INTEGERS):
            return self._other(other)
        return self._made(self.slopes, self.offset + int(other))

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, _INTEGERS):
            return self._other(other)
        times = int(other)
        return self._made([slope * times for slope in self.slopes], self.offset * times)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, Size):
            mine, others = (*self.slopes, self.offset), (*other.slopes, other.offset)
            times = next(a // b for a, b in zip(mine, others, strict=True) if b)
            exact = mine == tuple(times * b for b in others)
            return times if exact and other > 0 else self._refuse()
        divisor = self._divisor(other)
        return self._made([slope // divisor for slope in self.slopes], self.offset // divisor)

    def __mod__(self, other: Any) -> Any:
        return self.offset % self._divisor(other)

    def _divisor(self, other: Any) -> int:
        """A number as an integer that divides all slopes."""
        if not isinstance(other, _INTEGERS) or other == 0 or math.gcd(*self.slopes) % int(other):
            self._refuse()
        return int(other)

    def __truediv__(self, other: Any) -> Any:
        return Quotient(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return Quotient(other, self)

    def _is(self, relation: str, other: Any) -> bool:
        less = self - other
        if isinstance(less, Size):
            return self.rows.holds(less.slopes, less.offset, relation)
        return bool(_RELATIONS[relation](less, 0))

    def __le__(self, other: Any) -> bool:
        if isinstance(other, Size | int | np.integer):
            return self._is("<=", other)
        found: bool = self._other(other)
        return found

    def __ge__(self, other: Any) -> bool:
        return -self <= -other

    def __lt__(self, other: Any) -> bool:
        return self + 1 <= other

    def __gt__(self, other: Any) -> bool:
        return self >= other + 1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Size | int | np.integer):
            return self._is("==", other)
        found: bool = self._other(other)
        return found

    def __bool__(self) -> bool:
        return self != 0

    def __repr__(self) -> str:
        return f"{list(self.slopes)}@rows{self.offset:+d}"


def _value(slopes: Counts, offset: int, counts: Counts) -> int:
    return sum(map(operator.mul, slopes, counts)) + offset


@dataclass(frozen=True, eq=False)
class Quotient(_Open):
    """One size divided by another, such as the weight of each element in a mean.

    Args:
        dividend: a size or a number.
        divisor: a size or a number.
    """

    dividend: Any
    divisor: Any

    def at(self, counts: Counts) -> float:
        """The number for some rows."""
        return float(at(self.dividend, counts) / at(self.divisor, counts))


def real(number: Any) -> Any:
    """A plain number as a float; a quotient unchanged.

    Args:
        number: a number or quotient.
    """
    return number if isinstance(number, Quotient) else float(number)


def at_most(number: Any) -> Any:
    """The upper bound of a size.

    Args:
        number: a size or a number.
    """
    return number.at(number.rows.capacity) if isinstance(number, Size) else number


def at(number: Any, counts: Counts) -> Any:
    """The value of a number for given rows; plain numbers are returned unchanged.

    Args:
        number: a size, a quotient, or any number.
        counts: the numbers of rows.
    """
    return number.at(counts) if isinstance(number, Size | Quotient) else number
