"""The times at which a server updates its parameters, and the trainers that wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.exchange.messages import Values
from dpexec.engine.exchange.wire import GangError

__all__ = ["UpdateRounds"]


class Updater(Protocol):
    """The interface of :class:`dpexec.engine.parameter_server.update.Update`."""

    gradients: list[str]
    params: list[str]
    corrects: bool

    @property
    def tables(self) -> set[str]:
        """Parameters of which an update changes only some rows."""

    def run(self, gradients: Values, seen: Values) -> dict[str, np.ndarray[Any, Any]]:
        """Make an update; returns the changed rows of tables."""

    def value(self, param: str) -> np.ndarray[Any, Any]:
        """The current value of a parameter."""

    def rows(self, table: str, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Some rows of a distributed table."""


class UpdateRounds:
    """Turns trainers' gradients into updates, and returns the parameters to the trainers.

    Without a bound there are synchronous rounds: the update is made when all trainers have sent
    their gradients, and all of them wait for it. Trainers that are done are left out. With a bound
    each trainer's gradients are applied at once; a trainer that is more than ``bound`` steps ahead
    of the slowest one waits.

    Args:
        update: updates the parameters.
        trainers: number of trainers.
        bound: bound of staleness in steps; None for rounds.
        limit: seconds that a trainer waits for others, and the server for trainers to connect.

    Attributes:
        error: the reason of a failure.
    """

    def __init__(self, update: Updater, trainers: int, bound: int | None, limit: float) -> None:
        self._update, self._bound, self._limit = update, bound, limit
        self._changed = threading.Condition()
        self._missing = set(range(trainers))
        self._steps = dict.fromkeys(range(trainers), 0)  # of active trainers
        self._sent: dict[int, dict[str, Any]] = {}
        self._round = 0
        self._rows: dict[int, dict[str, list[Any]]] = {t: {} for t in range(trainers)}
        self._copies: dict[str, np.ndarray[Any, Any]] = {}
        self._seen: dict[int, Values] = {}  # the parameters last sent to each trainer
        self._began = time.monotonic()
        self.error: BaseException | None = None

    @property
    def missing(self) -> frozenset[int]:
        """Trainers that have not connected yet."""
        with self._changed:
            return frozenset(self._missing)

    @property
    def over(self) -> bool:
        """Whether all trainers are done, or the run has failed."""
        return not self._steps or self.error is not None

    def check_arrivals(self, others: str) -> None:
        """Raise if trainers did not connect in time.

        Args:
            others: a text about other connections, for the error message.

        Raises:
            GangError: trainers did not connect within the limit; the message names them.
        """
        if time.monotonic() - self._began > self._limit and (missing := self.missing):
            raise GangError(f"{_names(missing)} did not come within {self._limit:g} s{others}")

    def arrive(self, trainer: int) -> bool:
        """Note that a trainer has connected; False if it had connected before."""
        with self._changed:
            expected = trainer in self._missing
            self._missing.discard(trainer)
            return expected

    def pull(self, trainer: int) -> Values:
        """The current values of all parameters."""
        with self._changed:
            self._rows[trainer].clear()
            return self._noted(trainer, {n: self._copy(n) for n in self._update.params})

    def fetch(self, wanted: Mapping[str, Any]) -> Values:
        """The current values of rows of distributed tables.

        Args:
            wanted: the numbers of the rows, by table.

        Raises:
            GangError: there is no such table, or row.
        """
        with self._changed:
            self._check_running()
            return {name: self._update.rows(name, wanted[name]) for name in wanted}

    def push(self, trainer: int, gradients: Values) -> Values:
        """Apply a trainer's gradients.

        Args:
            trainer: number of the trainer.
            gradients: gradients by name.

        Returns:
            The parameters after the update; for tables only the rows that changed since the
            trainer's last request.

        Raises:
            GangError: the gradients are not the expected ones, or other trainers are late.
        """
        with self._changed:
            self._check_running()
            named = self._named(trainer, gradients)
            self._steps[trainer] += 1
            if self._bound is None:
                self._sent[trainer] = named
                awaited = self._round + 1
                self._end_round()
                self._wait(lambda: self._round >= awaited)
            else:
                self._apply(named, self._seen.get(trainer, {}))
                bound = self._bound
                self._wait(lambda: self._steps[trainer] - min(self._steps.values()) <= bound)
            return self._answer(trainer)

    def leave(self, trainer: int) -> None:
        """Note that a trainer is done."""
        with self._changed:
            del self._steps[trainer]
            self._end_round()
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """End the run: all waiting trainers get the error."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    # ---- with the lock held

    def _check_running(self) -> None:
        if self.error is not None:
            raise GangError(str(self.error))

    def _named(self, trainer: int, gradients: Values) -> dict[str, Any]:
        """The gradients under the names that the update uses for this trainer."""
        suffix = f".trainer_{trainer}"
        own = suffix if self._bound is None else ""
        expected = {name for name in self._update.gradients if name.endswith(own)}
        named = {name.removesuffix(suffix) + own: value for name, value in gradients.items()}
        if named.keys() != expected:
            raise GangError(
                f"trainer {trainer} sent gradients {sorted(named)}, but {sorted(expected)} were "
                "due: all processes must build the same program and transpile it alike"
            )
        return named

    def _end_round(self) -> None:
        if self._sent and self._sent.keys() >= self._steps.keys():
            gradients = {n: value for sent in self._sent.values() for n, value in sent.items()}
            self._apply(gradients, {})
            self._sent.clear()
            self._round += 1

    def _apply(self, gradients: Values, seen: Values) -> None:
        try:
            changed = self._update.run(gradients, seen)
        except BaseException as error:
            self.fail(error)
            raise
        self._copies.clear()
        for rows in self._rows.values():
            for name, numbers in changed.items():
                rows.setdefault(name, []).append(numbers)
        self._changed.notify_all()

    def _wait(self, done: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: done() or self.error is not None, self._limit)
        self._check_running()
        if not done():
            slowest = min(self._steps.values())
            late = [t for t, step in self._steps.items() if step == slowest]
            error = GangError(
                f"{_names(late)} sent no gradients of step {slowest} for {self._limit:g} s"
            )
            self.fail(error)
            raise error

    def _copy(self, name: str) -> np.ndarray[Any, Any]:
        """A copy of a parameter, shared by all requests between two updates."""
        if name not in self._copies:
            self._copies[name] = self._update.value(name).copy()
        return self._copies[name]

    def _answer(self, trainer: int) -> Values:
        tables = self._update.tables
        answer: dict[str, Any] = {}
        for name in self._update.params:
            if name not in tables:
                answer[name] = self._copy(name)
                continue
            value = self._update.value(name)
            rows = np.unique(np.concatenate(self._rows[trainer].pop(name)))
            answer[name] = SelectedRows(rows, len(value), value[rows])
        return self._noted(trainer, answer)

    def _noted(self, trainer: int, answer: Values) -> Values:
        """Remember the parameters sent to a trainer, for servers that correct for delay."""
        if self._update.corrects:
            self._seen[trainer] = answer
        return answer


def _names(trainers: Iterable[int]) -> str:
    found = sorted(trainers)
    return f"trainer{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"
