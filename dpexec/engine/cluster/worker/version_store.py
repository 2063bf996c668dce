"""The state of the replicas of a worker as the store of a step: two versions of every variable."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.cluster.worker.versions import StepArrays, Versions
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.run.parts import Launch

__all__ = ["VersionStore", "own_arrays", "written_on"]


class VersionStore:
    """Where the variables of some replicas lie, for one step.

    A step begins with the values of the step before. Updates work on copies, which are made late:
    a replica gives up its oldest version for them, which others may need until all have begun the
    step.

    Args:
        replicas: their values, by device.
        number: of the step.
    """

    def __init__(self, replicas: Mapping[int, Versions], number: int) -> None:
        self.number = number
        self._replicas = replicas
        self._arrays = StepArrays()
        self._overwritten: set[int] = set()
        self._lock = threading.Lock()

    def begin(self, plan: Plan, feeds: Any, shards: Any, launch: Launch) -> list[Env]:
        """The values with which a step begins, see :meth:`Store.begin`; others have empty envs."""
        envs = [Env() for _ in plan.reads]
        for device in self._replicas:
            values = feeds.values[device]
            fed = own_arrays(launch.feed(plan, device, values), values, feeds.persistable)
            stored = self._stored(plan, device)
            envs[device] = plan.make_env(shards[device], {**stored, **fed})
        return envs

    def envs(self, plan: Plan) -> list[Env]:
        """The same before anything was fed.

        Args:
            plan: what runs.
        """
        envs = [Env() for _ in plan.reads]
        for device in self._replicas:
            envs[device] = plan.make_env(None, self._stored(plan, device))
        return envs

    def _stored(self, plan: Plan, device: int) -> dict[str, Any]:
        values = self._replicas[device].values
        return {name: values[name] for name in plan.reads[device] if name in values}

    def overwrite(self, plan: Plan, envs: Sequence[Env]) -> None:
        """Let updates overwrite copies, see :meth:`Store.overwrite`."""
        for device in self._replicas:
            self.overwrite_on(plan, device, envs[device])

    def overwrite_on(self, plan: Plan, device: int, env: Env) -> None:
        """The same for one replica; once in a step.

        Args:
            plan: what runs.
            device: the replica.
            env: its values.
        """
        with self._lock:  # tasks that update other variables begin at the same time
            if device not in self._overwritten:
                names = [name for where, name in plan.overwritten if where == device]
                env.update(self._replicas[device].scratch(names, self._arrays))
                self._overwritten.add(device)

    def commit(self, plan: Plan, feeds: Any, envs: Sequence[Env], launch: Launch) -> None:
        """Make what a step has computed the latest version, see :meth:`Store.commit`."""
        for device in self._replicas:
            self.commit_on(plan, device, envs[device], feeds.persistable)

    def commit_on(self, plan: Plan, device: int, env: Env, fed: Iterable[str]) -> None:
        """The same for one replica.

        Args:
            plan: what ran.
            device: the replica.
            env: its values.
            fed: names of what was fed that also sets a variable.
        """
        names = sorted(written_on(plan, device).union(fed))
        made = {name: env[name] for name in names if name in env}
        self._replicas[device].commit(self.number, made, self._arrays)


def own_arrays(
    fed: Mapping[str, Any], given: Mapping[str, Any], persistable: Collection[str]
) -> dict[str, Any]:
    """What a replica is fed, with copies of what sets variables, and so may be overwritten.

    Args:
        fed: the values, on the replica's device.
        given: the same as they came: read-only perhaps, or the user's own arrays.
        persistable: names of what sets a variable.
    """
    return {
        name: np.array(value) if name in persistable and value is given[name] else value
        for name, value in fed.items()
    }


def written_on(plan: Plan, device: int) -> set[str]:
    """Names of the persistable variables that a plan changes on a device."""
    return {name for where, name in (*plan.commits, *plan.overwritten) if where == device}
