"""What in a step of code depends on how many rows its batch has."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.ir.sizes import Rows
from dpexec.kernels.lowering import Sparse, Value
from dpexec.runtime.code_run import CodeRun
from dpexec.runtime.native import Lates
from dpexec.runtime.partition import Task

__all__ = ["Computed", "OpenParts"]

Computed = tuple[Value | Sparse, list[np.ndarray[Any, Any]]]
"""A value that code computes, and where its parts lie."""


class OpenParts:
    """The words that differ between numbers of rows, and the arrays."""

    def __init__(self) -> None:
        self._codes: list[tuple[int, int, CodeRun]] = []  # the task and its device
        self._positions: list[int] = []
        self._arrays: dict[tuple[int, str], tuple[CodeRun, Value | Sparse]] = {}

    def take(self, task: Task, code: CodeRun, first: int) -> None:
        """Add a piece of code.

        Args:
            task: whose.
            code: the piece.
            first: where its words begin among those of the step.
        """
        assert task.device is not None
        self._codes.append((task.id, task.device, code))
        self._positions += [first + at for at in code.made_by.open]
        for name, value, _ in code.published:
            if any(Rows.of(*part.shape) for part in value.parts):
                self._arrays[task.device, name] = code, value
            else:
                self.forget(task.device, name)

    def forget(self, device: int, name: str) -> None:
        """What comes now under a name has the same shape for all rows.

        Args:
            device: whose.
            name: of the value.
        """
        self._arrays.pop((device, name), None)

    @functools.cached_property
    def positions(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where the words are that differ."""
        return np.array(self._positions, np.int64)

    def words(self, rows: Sequence[int], lates: Lates) -> np.ndarray[Any, np.dtype[np.int64]]:
        """What they are.

        Args:
            rows: of every device's batch.
            lates: what was made for them.
        """
        found: list[int] = []
        for task, device, code in self._codes:
            found += code.made_by.sized(rows[device], lates[task][code.made_by])
        return np.array(found, np.int64)

    def varies(self, device: int, name: str) -> bool:
        """Whether the shape of a value depends on the rows.

        Args:
            device: whose.
            name: of the value.
        """
        return (device, name) in self._arrays

    def value(self, device: int, name: str, rows: Sequence[int]) -> Computed:
        """A value whose shape depends on the rows, and where its parts lie.

        Args:
            device: whose.
            name: of the value.
            rows: of every device's batch.
        """
        code, value = self._arrays[device, name]
        return value, code.place.arrays(value, rows[device])
