"""The four parts of a step: store, order, launch and exchange.

They determine where variables lie, which thread runs which task next, how kernels start, and how
values are exchanged with other processes. Each is chosen independently
(:mod:`dpexec.engine.run.choice`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.bindings.recording import Recording
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.exchange.step_sums import PlanSums
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.threads.interrupts import InterruptGate

__all__ = ["Agreement", "CodeExchange", "Exchange", "Launch", "Order", "Store", "Tasks"]


class Launch(Protocol):
    """How the kernels of a task start."""

    def step(self, recording: Recording | None) -> AbstractContextManager[None]:
        """Context of a step. If the step fails, no kernel runs any more when the context ends.

        Args:
            recording: notes when kernels ran; None: nothing is recorded.
        """

    def feed(self, plan: Plan, device: int, values: dict[str, Any]) -> dict[str, Any]:
        """Move the feed of a device to where it can use it."""

    def run(
        self, binding: Binding, number: int, envs: Sequence[Env], recording: Recording | None
    ) -> None:
        """Run a task, or enqueue it.

        Args:
            binding: the binding that the task belongs to.
            number: number of the task.
            envs: the values, per device.
            recording: see :meth:`step`.

        Raises:
            EnforceNotMet: a kernel failed.
        """

    def copy(self, device: int, value: Any) -> Any:
        """A copy of a value of a device."""

    def fetch(
        self, plan: Plan, envs: Sequence[Env], merged: bool, recording: Recording | None
    ) -> list[Any]:
        """The fetches, on the host: see :func:`dpexec.engine.run.fetch.collect`."""


class Store(Protocol):
    """Where variables lie between steps."""

    def begin(self, plan: Plan, feeds: Feeds, shards: Sequence[Shard], launch: Launch) -> list[Env]:
        """The values at the beginning of a step, per device.

        Args:
            plan: the plan that runs.
            feeds: the feeds of the devices.
            shards: their shares of the batch.
            launch: moves feeds to the devices.
        """

    def overwrite(self, plan: Plan, envs: Sequence[Env]) -> None:
        """Let updates overwrite variables; called once in a step, before the first update.

        Args:
            plan: what runs.
            envs: the values, per device.
        """

    def commit(self, plan: Plan, feeds: Feeds, envs: Sequence[Env], launch: Launch) -> None:
        """Store the results of a step.

        Args:
            plan: the plan that ran.
            feeds: the feeds of the devices.
            envs: the values, per device.
            launch: copies values.
        """


class Agreement(Protocol):
    """What several processes, or GPUs, settle before a step."""

    def begin(self) -> None:
        """Called before the batches of a run are bound."""

    def ready(self, binding: Binding, feeds: Feeds) -> Binding:
        """Called with the binding of each batch; returns the binding to run."""

    def extent(self, samples: Sequence[int]) -> tuple[int, int]:
        """Samples of the batch before those of this process, and of all processes.

        Args:
            samples: per device.
        """


class Exchange(Protocol):
    """How values are combined with those of other processes, and when processes wait."""

    def step(self) -> AbstractContextManager[None]:
        """Context of a step."""

    @property
    def sums(self) -> PlanSums | None:
        """The sums with other processes in the current step; None if there are none."""

    def barrier(self) -> None:
        """Wait until all processes have done what can fail; called once, before updates."""

    def mirror(self, new_value: Callable[[int, str], Any]) -> None:
        """Give others the state that they keep for this process; called before the commit.

        Args:
            new_value: returns the new value of a variable of a device; None if the step left it as
                it was.
        """


class CodeExchange(Exchange, Protocol):
    """Other processes for which whole steps of code can wait."""

    def extent(self, samples: Sequence[int]) -> Hashable:
        """Position of this process in the batch of all, on which random numbers and weights depend.

        Args:
            samples: per device of this process.
        """


class Tasks(Protocol):
    """The tasks of a step that runs, as an order gets them.

    Attributes:
        plan: their plan.
        gate: defers interrupts until updates end.
    """

    plan: Plan
    gate: InterruptGate

    def run(self, number: int) -> None:
        """Run a task."""

    def begin_updates(self) -> None:
        """Wait until variables may change; the first task that changes one calls it."""

    def fetch(self) -> list[Any]:
        """The fetches; all tasks have run."""


class Order(Protocol):
    """Who runs which task next."""

    def run(self, tasks: Tasks) -> list[Any]:
        """Run all tasks, each after those that it depends on; returns the fetches.

        Args:
            tasks: of the step.

        Raises:
            BaseException: the error of a task; no task runs any more.
        """
