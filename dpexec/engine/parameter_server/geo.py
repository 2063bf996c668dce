"""GEO-SGD on a trainer: it updates parameters itself, and shares what has changed now and then."""

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
    """What a trainer's own updates have changed since the servers heard of it.

    With ``N`` trainers, servers get an ``N``-th of what each has changed, so that a server's
    parameter moves by the mean of what trainers make of it. A trainer takes over what the others
    have changed, and keeps what it has not told yet. Source: Paddle's ``GeoSgdCommunicator``.

    Args:
        every: how many steps a trainer makes before it tells the servers.
        trainers: how many trainers there are.
    """

    def __init__(self, every: int, trainers: int) -> None:
        self._every, self._share = every, 1.0 / trainers
        self._steps: WeakKeyDictionary[Scope, int] = WeakKeyDictionary()
        self._known: WeakKeyDictionary[Scope, dict[str, np.ndarray[Any, Any]]]
        self._known = WeakKeyDictionary()

    def begin(self, scope: Scope, names: Iterable[str]) -> None:
        """Remember parameters as they are before the first step.

        Args:
            scope: where they live.
            names: of the parameters.

        Raises:
            GangError: one has no value.
        """
        if scope not in self._known:
            self._known[scope] = {name: _tensor(scope, name).numpy().copy() for name in names}

    def count(self, scope: Scope) -> bool:
        """Count a step; returns whether the servers shall hear of it."""
        self._steps[scope] = self._steps.get(scope, 0) + 1
        return self._steps[scope] % self._every == 0

    def told(self, scope: Scope, name: str, by_rows: bool) -> Any:
        """What the servers are told: this trainer's share of what has changed.

        Args:
            scope: where parameters live.
            name: of the parameter.
            by_rows: give just the rows that have changed.
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
        """Take over what others have changed.

        Args:
            scope: where parameters live.
            name: of the parameter.
            pieces: its blocks as the servers have them now; of a table, rows that have changed.

        Returns:
            What the parameter is now; not to be written to.
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
