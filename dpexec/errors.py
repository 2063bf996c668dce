"""The errors that dpexec raises, in one tree where the real Paddle has one.

Paddle raises :class:`EnforceNotMet` for everything its C++ side refuses and plain Python
exceptions (``TypeError``, ``ValueError``, ``AssertionError``) for what its Python side refuses;
dpexec raises the same class for the same mistake, so that ``except`` clauses keep working.
"""

from __future__ import annotations

__all__ = ["EOFException", "EnforceNotMet", "MissingGradientError", "MissingKernelError"]


class EnforceNotMet(Exception):
    """A program, a feed or a value breaks a rule of an operator or of the executor."""


class EOFException(Exception):
    """A reader inside the program has no more data."""


class MissingKernelError(EnforceNotMet, ValueError):
    """The program uses an operator type that dpexec does not know.

    A ValueError too: that is what Paddle raises where such an operator is added.
    """


class MissingGradientError(EnforceNotMet):
    """A gradient was asked through an operator that has none."""
