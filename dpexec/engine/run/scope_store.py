"""Variables in the scopes of this process: updates overwrite them where they lie."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.core.copies import with_arrays
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.program import Program
from dpexec.engine.run.parts import Launch
from dpexec.engine.run.whole_code import ScopeVariables

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.outside import Outside  # needs numba

__all__ = ["ScopeStore"]


class ScopeStore:
    """The persistable variables of an engine.

    Args:
        replicas: the variables, per device.
        label: the program whose runs are counted.

    Attributes:
        replicas: as given.
        runs: the count of the program's runs.
        devices, copies: see :class:`CodeStore`.
    """

    copies = False

    def __init__(self, replicas: Replicas, label: Program) -> None:
        self.replicas = replicas
        self.runs = replicas.scope.runs_of(label)
        self.devices = range(len(replicas.places))

    def updates_wait(self, plan: Plan) -> bool:
        """Updates come at once, see :meth:`CodeStore.updates_wait`."""
        return False

    def begin(self, plan: Plan, feeds: Feeds, shards: Sequence[Shard], launch: Launch) -> list[Env]:
        """The values at the beginning of a step, see :meth:`Store.begin`."""
        replicas = self.replicas
        envs = []
        fed = feeds.private(replicas.shared)
        for device, (shard, values) in enumerate(zip(shards, fed, strict=True)):
            found = ((name, replicas.value(device, name)) for name in plan.reads[device])
            stored = {name: value for name, value in found if value is not None}
            envs.append(plan.make_env(shard, {**stored, **launch.feed(plan, device, values)}))
        return envs

    def overwrite(self, plan: Plan, envs: Sequence[Env]) -> None:
        """Updates may overwrite variables at once: nothing else needs the old values."""

    def commit(self, plan: Plan, feeds: Feeds, envs: Sequence[Env], launch: Launch) -> None:
        """Store the results of a step, and count it; two variables never share memory."""
        replicas = self.replicas
        reads = enumerate(plan.reads) if plan.commits else ()
        held = {id(_memory(envs[d].get(name))) for d, names in reads for name in names}
        for device, name in plan.commits:
            value = envs[device].get(name)
            if value is None:
                continue
            memory = _memory(value)
            if not hasattr(memory, "dtype"):  # an array of tensors, which shares them with others
                value = with_arrays(value, functools.partial(launch.copy, device))
            elif getattr(memory, "base", None) is not None or id(memory) in held:
                value = launch.copy(device, value)
            held.add(id(_memory(value)))
            replicas.commit(device, name, value)
        self._commit_fed(plan, feeds, envs, launch)
        replicas.written(plan.written | feeds.persistable)
        self.runs.number += 1

    def _commit_fed(self, plan: Plan, feeds: Feeds, envs: Sequence[Env], launch: Launch) -> None:
        """Store the feeds of persistable variables that the step did not write."""
        shared = self.replicas.shared
        done = {name if shared else (device, name) for device, name in plan.commits}
        for device, env in enumerate(envs[:1] if shared else envs):
            for name in feeds.persistable & env.keys():
                if (name if shared else (device, name)) not in done:
                    self.replicas.commit(device, name, launch.copy(device, env[name]))

    def variables(self, plan: Plan, stored: Sequence[Outside]) -> ScopeVariables:
        """The variables of a step of code, see :meth:`CodeStore.variables`."""
        return ScopeVariables(self.replicas, self.runs, plan, stored)


def _memory(value: Any) -> Any:
    """The array that holds the numbers of a value."""
    return value.value if isinstance(value, SelectedRows) else value
