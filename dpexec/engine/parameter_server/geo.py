"""GEO-SGD on a trainer: it updates parameters locally and sends its changes every few steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dpexec.engine.core.scope import Scope
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.exchange.wire import GangError
from dpexec.engine.parameter_server.store import keep, placed

__all__ = ["LocalUpdates"]


class LocalUpdates:
    """A trainer's own changes of parameters that were not sent to the servers yet.

    With ``N`` trainers, each sends an ``N``-th of its changes, so that the server's parameter moves
    by the mean of the trainers' changes. A trainer adds the changes of the others to its parameters
    and keeps its own unsent ones. Source: Paddle's ``GeoSgdCommunicator``.

    Args:
        every: number of steps between two exchanges with the servers.
        trainers: number of trainers.
    """

    def __init__(self, every: int, trainers: int) -> None:
        self._every, self._share = every, 1.0 / trainers
        self._steps: WeakKeyDictionary[Scope, int] = WeakKeyDictionary()
        self._known: WeakKeyDictionary[Scope, dict[str, np.ndarray[Any, Any]]]
        self._known = WeakKeyDictionary()

    def begin(self, scope: Scope, names: Iterable[str]) -> None:
        """Remember the parameters' values before the first step.

        Args:
            scope: the scope with the parameters.
            names: names of the parameters.

        Raises:
            GangError: a parameter has no value.
        """
        if scope not in self._known:
            self._known[scope] = {name: _tensor(scope, name).numpy().copy() for name in names}

    def count(self, scope: Scope) -> bool:
        """Count a step; returns whether an exchange with the servers is due."""
        self._steps[scope] = self._steps.get(scope, 0) + 1
        return self._steps[scope] % self._every == 0

    def told(self, scope: Scope, name: str, by_rows: bool) -> Any:
        """The values to send: this trainer's changes divided by the number of trainers.

        Args:
            scope: the scope with the parameters.
            name: name of the parameter.
            by_rows: return only the rows that have changed.
        """
        known = self._known[scope][name]
        change = (_tensor(scope, name).numpy() - known) * known.dtype.type(self._share)
        if not by_rows:
            known += change
            return change
        rows = np.flatnonzero(change.reshape(len(change), -1).any(axis=1))
        known[rows] += change[rows]
        return SelectedRows(rows, len(change), change[rows])

    def take(self, scope: Scope, name: str, pieces: Sequence[Any]) -> np.ndarray[Any, Any]:
        """Add the changes of other trainers to a parameter.

        Args:
            scope: the scope with the parameters.
            name: name of the parameter.
            pieces: the servers' current blocks of the parameter; for a table, the changed rows.

        Returns:
            The new value of the parameter; read-only.
        """
        tensor, known = _tensor(scope, name), self._known[scope][name]
        own = tensor.numpy()
        for rows, value in placed(pieces):
            own[rows] += value - known[rows]
            known[rows] = value
        keep(tensor, own)
        return own


def _tensor(scope: Scope, name: str) -> LoDTensor:
    var = scope.find_var(name)
    if var is None or not var.get_tensor()._is_initialized():
        raise GangError(f"parameter {name} has no value: run the startup program first")
    return var.get_tensor()
