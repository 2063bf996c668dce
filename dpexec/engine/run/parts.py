"""The four parts of a step: store, order, launch and exchange.

They say where variables lie, who runs which task next, how kernels start, and how values of
replicas meet. Each is chosen for itself (:mod:`dpexec.engine.run.choice`).
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
        """Around a step; if it fails, nothing runs any more when this is left.

        Args:
            recording: gets to know when kernels ran; None: nobody wants to know.
        """

    def feed(self, plan: Plan, device: int, values: dict[str, Any]) -> dict[str, Any]:
        """What a device is fed, where it can use it."""

    def run(
        self, binding: Binding, number: int, envs: Sequence[Env], recording: Recording | None
    ) -> None:
        """Run a task, or enqueue it.

        Args:
            binding: what it is a part of.
            number: of the task.
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
        """The values with which a step begins, per device.

        Args:
            plan: what runs.
            feeds: what the devices are fed.
            shards: their parts of the run.
            launch: brings feeds to them.
        """

    def overwrite(self, plan: Plan, envs: Sequence[Env]) -> None:
        """Let updates overwrite variables; called once in a step, in front of the first of them.

        Args:
            plan: what runs.
            envs: the values, per device.
        """

    def commit(self, plan: Plan, feeds: Feeds, envs: Sequence[Env], launch: Launch) -> None:
        """Store what a step made.

        Args:
            plan: what ran.
            feeds: what the devices were fed.
            envs: the values, per device.
            launch: copies them.
        """


class Agreement(Protocol):
    """What is settled before steps if the tasks of a plan alone do not let replicas meet."""

    def begin(self) -> None:
        """Called before the batches of a run are bound."""

    def ready(self, binding: Binding, feeds: Feeds) -> Binding:
        """Called with what was bound for each batch; gives what runs."""

    def extent(self, samples: Sequence[int]) -> tuple[int, int]:
        """Samples of the batch before those of this process, and of all processes.

        Args:
            samples: per device.
        """


class Exchange(Protocol):
    """How values meet those of replicas in other processes, and who waits for whom."""

    def step(self) -> AbstractContextManager[None]:
        """Around a step."""

    @property
    def sums(self) -> PlanSums | None:
        """What adds up values with other processes in the step that runs; None: nothing does."""

    def barrier(self) -> None:
        """Nothing is overwritten before all have done what can fail; called once in a step."""

    def mirror(self, made: Callable[[int, str], Any]) -> None:
        """Give others what they keep for this process; called in front of the commit.

        Args:
            made: gives what the step made of a variable of a device; None: it left it as it was.
        """


class CodeExchange(Exchange, Protocol):
    """Other processes for which whole steps of code can wait."""

    def extent(self, samples: Sequence[int]) -> Hashable:
        """What numbers of a step depend on but for its shapes and its run.

        Args:
            samples: per device of this process.
        """


class Tasks(Protocol):
    """The tasks of a step that runs, as an order gets them.

    Attributes:
        plan: what they are of.
        gate: where interrupts wait for updates to end.
    """

    plan: Plan
    gate: InterruptGate

    def run(self, number: int) -> None:
        """Run a task."""

    def begin_updates(self) -> None:
        """Wait until variables may change; the first task that changes one does so itself."""

    def fetch(self) -> list[Any]:
        """The fetches; all tasks have run."""


class Order(Protocol):
    """Who runs which task next."""

    def run(self, tasks: Tasks) -> list[Any]:
        """Run all tasks, each after those that it waits for; gives the fetches.

        Args:
            tasks: of the step.

        Raises:
            BaseException: what a task raised; none runs any more.
        """
