"""What a step of code gets from outside: feeds and stored variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.lowering import Value

__all__ = ["Outside"]


class Outside:
    """A feed or a stored variable, and where its address goes.

    Args:
        device: whose.
        value: what code takes it for.
    """

    def __init__(self, device: int, value: Value) -> None:
        self.device, self.name = device, value.name
        self.dtype, self._shape = value.dtype, value.shape
        self.positions: list[int] = []

    def fits(self, array: Any) -> bool:
        """Whether an array is what the code was made for."""
        return (
            isinstance(array, np.ndarray)
            and (array.shape, array.dtype) == (self._shape, self.dtype)
            and array.flags.c_contiguous
        )

    def write(self, words: memoryview, array: np.ndarray[Any, Any]) -> None:
        """Tell the code where it lies."""
        begin = address(array)
        for position in self.positions:
            words[position] = begin
