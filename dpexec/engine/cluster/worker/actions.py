"""The actions of a job on workers: a task of the plan, or a part of a divided sum.

A divided sum (:mod:`dpexec.engine.cluster.client.adding`) takes three kinds of actions. Workers cut
shares out of the gradients of their replicas, one for each worker that adds up. These add up their
share of all replicas, in the order of the replicas, so every element has the same bits as in an
undivided sum. Then every worker joins the shares of the sum.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from dpexec.engine.cluster.messages import BindingKey, StepOf, Value
from dpexec.engine.cluster.worker.worker import WorkerReplicas
from dpexec.engine.compile.plans.collectives import LEFT_OUT, NodeSum, combined, sums_of
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.places import array_module

if TYPE_CHECKING:
    from dpexec.engine.graph.ssa import OpNode

__all__ = ["Action", "AddShare", "CutShare", "JoinShares", "RunTask", "Takes", "share_name"]

Takes = tuple[tuple[int, Value, Value], ...]
"""Values of other jobs: position of the job among those it waits for; the value there; the value
under which it is stored here."""


class RunTask(NamedTuple):
    """A task of the plan.

    Args:
        number: of the task.
        leaves: values that it does not add up, as they are in a value that it takes, or as other
            workers add them.
        takes: values that come from other workers before it runs.
    """

    number: int
    leaves: tuple[Value, ...] = ()
    takes: Takes = ()

    def run(
        self, replicas: WorkerReplicas, key: BindingKey, step: StepOf, envs: Sequence[Env]
    ) -> None:
        """Run the task, see :meth:`WorkerReplicas.run`."""
        for device, name in self.leaves:
            envs[device][name] = LEFT_OUT
        replicas.run(key, self.number, envs, step.number)


class _Share(NamedTuple):
    """An action on a share of the elements.

    Args:
        number: of the task whose sums are divided.
        share: number of the share.
        shares: how many shares there are.
        devices: the replicas at home on this worker.
        takes: shares that come from other workers to be added up here.
    """

    number: int
    share: int
    shares: int
    devices: tuple[int, ...]
    takes: Takes = ()

    def of(self, envs: Sequence[Env], device: int, name: str) -> Any:
        """The share of a value of this worker's replica: a flat view."""
        value = envs[device][name]
        first, end = (value.size * share // self.shares for share in (self.share, self.share + 1))
        return value.reshape(-1)[first:end]


class CutShare(_Share):
    """Shares of the gradients of some replicas, for the worker that adds them up."""

    def run(
        self, replicas: WorkerReplicas, key: BindingKey, step: StepOf, envs: Sequence[Env]
    ) -> None:
        """Cut the shares out, as views.

        Raises:
            StaleTaskError: this was done already.
        """
        replicas.once((self.number, "cut", self.share))
        for _, found in _sums(replicas.binding(key).plan, self.number):
            own = share_name(found.name, self.share)
            for device in self.devices:
                envs[device][own] = self.of(envs, device, found.name)


class AddShare(_Share):
    """The sums of a share of the gradients."""

    def run(
        self, replicas: WorkerReplicas, key: BindingKey, step: StepOf, envs: Sequence[Env]
    ) -> None:
        """Add the shares up, in the order of the replicas.

        Raises:
            StaleTaskError: this was done already.
        """
        replicas.once((self.number, "add", self.share))
        began, ends, xp = time.perf_counter_ns(), {}, array_module(replicas.place)
        for node, found in _sums(replicas.binding(key).plan, self.number):
            values = [self._value(envs, device, found.name) for device in found.sources]
            total = combined(found.reduction, values, xp)
            envs[found.targets[0]][share_name(found.made, self.share)] = total
            ends[node] = time.perf_counter_ns()
        recording = replicas.recording(step.number)
        if recording is not None:
            recording.correct(self.number, began, list(ends.values()), get_ident())

    def _value(self, envs: Sequence[Env], device: int, name: str) -> Any:
        """The share of a replica's gradient, which lies on this worker or came from another."""
        if device in self.devices:
            return self.of(envs, device, name)
        return envs[device].pop(share_name(name, self.share))


class JoinShares(NamedTuple):
    """Joins the shares of sums.

    Args:
        number: of the task whose sums were divided.
        shares: how many shares there are.
        devices: the replicas at home on this worker, which get the sums.
        takes: the shares of the sums.
    """

    number: int
    shares: int
    devices: tuple[int, ...]
    takes: Takes = ()

    def run(
        self, replicas: WorkerReplicas, key: BindingKey, step: StepOf, envs: Sequence[Env]
    ) -> None:
        """Join the shares.

        Raises:
            StaleTaskError: this was done already.
        """
        replicas.once((self.number, "join"))
        xp = array_module(replicas.place)
        for _, found in _sums(replicas.binding(key).plan, self.number):
            shape, env = envs[self.devices[0]][found.name].shape, envs[found.targets[0]]
            shares = [env.pop(share_name(found.made, share)) for share in range(self.shares)]
            total = xp.concatenate(shares).reshape(shape)
            for device in self.devices:
                envs[device][found.made] = total


Action = RunTask | CutShare | AddShare | JoinShares


def share_name(name: str, share: int) -> str:
    """The name of a share of a value.

    Args:
        name: of the value.
        share: number of the share.
    """
    return f"{name}[{share}]"


def _sums(plan: Plan, number: int) -> Iterator[tuple[OpNode, NodeSum]]:
    """The sums of a collective task, each with its node."""
    for node in plan.tasks[number].nodes:
        for found in sums_of(node, plan.missing):
            yield node, found
