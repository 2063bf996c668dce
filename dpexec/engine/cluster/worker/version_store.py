"""The store of steps on a worker: two versions of every variable of its replicas."""

from __future__ import annotations

import operator
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.cluster.worker.versions import LateUpdates, StepArrays, Versions
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.run.parts import Launch

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.outside import Outside  # needs numba

__all__ = ["VersionStore", "own_arrays", "written_on"]

_is_writeable = operator.attrgetter("flags.writeable")


class VersionStore:
    """The variables of some replicas, for one step after another.

    A step begins with the values of the step before. Updates work on copies. These are made as late
    as possible, in the memory of the replica's oldest version, to which others may have to go back
    until all have begun the step. Or updates wait for the next step, and nothing is copied.

    Args:
        replicas: the versions of each replica, by device.
        number: of the step.
        mirrored: names of mirrored variables, per device; None: updates never wait.

    Attributes:
        replicas: the versions of each replica.
        copies: True: updates of code overwrite copies, too, see :class:`CodeStore`.
    """

    copies = True

    def __init__(
        self,
        replicas: Mapping[int, Versions],
        number: int,
        mirrored: Sequence[Collection[str]] | None = None,
    ) -> None:
        self.replicas, self._mirrored = replicas, mirrored
        self._lock = threading.Lock()
        self.go_on(number)

    def go_on(self, number: int) -> None:
        """Called when another step begins.

        Args:
            number: of the step.
        """
        self.number = number
        self._arrays = StepArrays()
        self._overwritten: set[int] = set()

    @property
    def devices(self) -> Sequence[int]:
        """The replicas, see :class:`CodeStore`."""
        return [*self.replicas]

    def begin(self, plan: Plan, feeds: Any, shards: Any, launch: Launch) -> list[Env]:
        """The values at the begin of a step, see :meth:`Store.begin`; other envs are empty."""
        envs = [Env() for _ in plan.reads]
        for device in self.replicas:
            values = feeds.values[device]
            fed = own_arrays(launch.feed(plan, device, values), values, feeds.persistable)
            stored = self._stored(plan, device)
            envs[device] = plan.make_env(shards[device], {**stored, **fed})
        return envs

    def envs(self, plan: Plan) -> list[Env]:
        """The values at the begin of a step, without feeds.

        Args:
            plan: the plan that runs.
        """
        envs = [Env() for _ in plan.reads]
        for device in self.replicas:
            envs[device] = plan.make_env(None, self._stored(plan, device))
        return envs

    def _stored(self, plan: Plan, device: int) -> dict[str, Any]:
        values = self.replicas[device].values
        return {name: values[name] for name in plan.reads[device] if name in values}

    def overwrite(self, plan: Plan, envs: Sequence[Env]) -> None:
        """Let updates overwrite copies, see :meth:`Store.overwrite`."""
        for device in self.replicas:
            self.overwrite_on(plan, device, envs[device])

    def overwrite_on(self, plan: Plan, device: int, env: Env) -> None:
        """:meth:`overwrite` for one replica; further calls in a step do nothing.

        Args:
            plan: the plan that runs.
            device: the replica.
            env: its values.
        """
        with self._lock:  # several tasks with updates may begin at the same time
            if device not in self._overwritten:
                names = [name for where, name in plan.overwritten if where == device]
                env.update(self.replicas[device].scratch(names, self._arrays))
                self._overwritten.add(device)

    def commit(self, plan: Plan, feeds: Any, envs: Sequence[Env], launch: Launch) -> None:
        """Make the results of a step the latest version, see :meth:`Store.commit`."""
        for device in self.replicas:
            self.commit_on(plan, device, envs[device], feeds.persistable)

    def commit_on(self, plan: Plan, device: int, env: Env, fed: Iterable[str]) -> None:
        """:meth:`commit` for one replica.

        Args:
            plan: the plan that ran.
            device: the replica.
            env: its values.
            fed: names of feeds that also set a persistable variable.
        """
        names = sorted(written_on(plan, device).union(fed))
        made = {name: env[name] for name in names if name in env}
        self.replicas[device].commit(self.number, made, self._arrays)

    def updates_wait(self, plan: Plan) -> bool:
        """Whether updates of a plan wait for the next step, see :meth:`CodeStore.updates_wait`.

        Updates of mirrored variables do not wait: their mirrors need the new values at once.
        """
        if self._mirrored is None or not plan.updates_may_wait:
            return False
        return all(name not in self._mirrored[device] for device, name in plan.overwritten)

    def settle(self) -> None:
        """Make waiting updates of the last step: no replica can go back any more."""
        for versions in self.replicas.values():
            versions.settle()

    def variables(self, plan: Plan, stored: Sequence[Outside]) -> _CodeVariables:
        """The variables of a step of code, see :meth:`CodeStore.variables`."""
        return _CodeVariables(self, plan, stored)

    def commit_late(
        self, made: Mapping[int, Mapping[str, Any]], update: Callable[[], None]
    ) -> None:
        """Make a step of code, whose updates wait, the latest version.

        Args:
            made: its results besides updates, by device and name.
            update: makes the updates.
        """
        late = LateUpdates(update, list(self.replicas.values()))
        for device, versions in self.replicas.items():
            versions.commit(self.number, made[device], self._arrays)
            versions.late = late

    def take_over(self, made: Mapping[int, Mapping[str, Any]], rooms: Mapping[int, Any]) -> None:
        """Make the results of a step of code the latest version.

        Args:
            made: its results besides updates, by device and name.
            rooms: updated variables, which lie in arrays of :meth:`Versions.rooms`.
        """
        if len(self.replicas) == 1:  # there is no other replica to share arrays with
            ((device, versions),) = self.replicas.items()
            placed = rooms[device]
            found = {n: v for n, v in made[device].items() if v is not placed.get(n)}
            versions.commit(self.number, found, self._arrays, placed)
            return
        for device, found in rooms.items():
            for name, array in found.items():
                self._arrays.lend(self.replicas[device], name, array)
        for device, versions in self.replicas.items():
            versions.commit(self.number, {**rooms[device], **made[device]}, self._arrays)


class _CodeVariables:
    """The variables of a step of code, see :class:`CodeVariables`.

    When no replica can go back to the step before the last one, code copies the variables that it
    updates into the arrays of that step, and updates the copies. The values after the last step
    remain. As two arrays of a variable take turns, the addresses of every second step are the same.
    If updates wait, nothing is copied, and the addresses of all steps are the same.

    Args:
        store: where the variables lie.
        plan: the plan that runs.
        stored: the variables that code reads or overwrites.
    """

    def __init__(self, store: VersionStore, plan: Plan, stored: Sequence[Outside]) -> None:
        self._store, self._stored = store, stored
        self._copied: dict[int, list[str]] = {device: [] for device in store.devices}
        for source in stored:
            if source.copied:
                self._copied[source.device].append(source.name)
        self._copies = any(self._copied.values())
        names = (
            (device, [s.name for s in stored if s.device == device]) for device in self._copied
        )
        self._names = {device: [*dict.fromkeys(found)] for device, found in names}
        self._commits = [(d, name) for d, name in plan.commits if d in self._copied]
        self._rooms: dict[int, dict[str, Any]] = {}
        self._changed: dict[int, list[str]] = {}  # variables that waiting updates overwrite
        for device, name in plan.overwritten if store.updates_wait(plan) else ():
            if device in self._copied:
                self._changed.setdefault(device, []).append(name)
        self._made: dict[int, int] = {}  # by device, the latest change that was made here
        self.follows = False
        self._turns: deque[_Turn] = deque(maxlen=2)
        self._written: _Turn | None = None  # the addresses that the code has

    def bring(self, words: memoryview) -> list[Any] | None:
        """Write the addresses of the variables, see :meth:`CodeVariables.bring`."""
        replicas, older = self._store.replicas, {}
        arrays: list[Any] = []
        for device, names in self._names.items():  # loops, as every step comes through here
            arrays += map(replicas[device].values.get, names)
        for device, names in self._copied.items() if self._copies else ():
            older[device] = [*map(replicas[device].before.get, names)]
            arrays += older[device]
        self.follows = False
        for turn in self._turns:
            if turn.is_of(arrays):
                if self._copies:
                    self._turns.remove(turn)
                    self._turns.append(turn)  # the other turn most likely comes next
                    self.follows = self._made == {d: r.change for d, r in replicas.items()}
                    self._rooms = {
                        d: dict(zip(names, older[d], strict=True)) if names else {}
                        for d, names in self._copied.items()
                    }
                else:
                    self._rooms = {device: {} for device in self._copied}
                if turn is not self._written:
                    self._written = turn
                    turn.write(words)
                return arrays
        owned = [replicas[device].own(names) for device, names in self._changed.items()]
        if any(owned):
            return self.bring(words)
        self._written = None
        held = self._find(words)
        taken = {d: [*map(self._rooms[d].get, self._copied[d])] for d in older}
        if held is not None and all(all(map(operator.is_, taken[d], older[d])) for d in taken):
            changed = {d: [*map(replicas[d].values.get, ns)] for d, ns in self._changed.items()}
            self._turns.append(_Turn(arrays, changed or older, self._stored, held))
        return held

    def _find(self, words: memoryview) -> list[Any] | None:
        replicas, held = self._store.replicas, []
        self._rooms = {d: replicas[d].rooms(names) for d, names in self._copied.items()}
        for source in self._stored:
            device = source.device
            known = self._rooms[device] if source.copied else replicas[device].values
            array: Any = known.get(source.name)
            if not source.fits(array):
                return None
            source.write(words, array)
            held.append(array)
        return held

    def value(self, device: int, name: str) -> Any:
        """The value of a variable after the run; None if it has none."""
        made = self._rooms[device].get(name)
        return self._store.replicas[device].values.get(name) if made is None else made

    def overwritten(self, device: int, name: str) -> Any:
        """The copy of a variable that updates have overwritten; None if they have not."""
        return self._rooms[device].get(name)

    def commit(self, new_value: Callable[[int, str], Any]) -> None:
        """Make the results of a run the latest version."""
        self._store.take_over(self._made_of(new_value), self._rooms)
        self._made = {device: found.change for device, found in self._store.replicas.items()}

    def _made_of(self, new_value: Callable[[int, str], Any]) -> dict[int, dict[str, Any]]:
        """The results of a run besides updates, by device and name."""
        found: dict[int, dict[str, Any]] = {device: {} for device in self._copied}
        for device, name in self._commits:
            value = new_value(device, name)
            if value is not None:
                found[device][name] = value
        return found

    def commit_before_updates(
        self, new_value: Callable[[int, str], Any], update: Callable[[], None]
    ) -> None:
        """Make a run, whose updates wait until the next one begins, the latest version."""
        self._store.commit_late(self._made_of(new_value), update)

    def keep_originals(self) -> None:
        """Copy the variables that the run will overwrite in place."""
        replicas = self._store.replicas
        self._rooms |= {d: replicas[d].keep_originals(names) for d, names in self._changed.items()}

    def give_up(self) -> None:
        """Forget the older version: the failed run has overwritten it."""
        for versions in self._store.replicas.values():
            versions.forget_before()


class _Turn:
    """The addresses of the variables of a step of code, which are the same in every second step.

    Args:
        arrays: the latest values; for copied variables, also those of the step before.
        rooms: by device, the arrays that are overwritten.
        stored: the variables that code reads or overwrites.
        held: the array of each.
    """

    def __init__(
        self,
        arrays: Sequence[Any],
        rooms: Mapping[int, Sequence[Any]],
        stored: Sequence[Outside],
        held: Sequence[Any],
    ) -> None:
        self._gone: list[Any] = []  # references whose arrays are gone
        # code keeps no values between runs
        self._refs = [weakref.ref(array, self._gone.append) for array in arrays]
        self._rooms = [weakref.ref(room) for found in rooms.values() for room in found]
        sources = zip(stored, held, strict=True)
        where = [(at, a.ctypes.data) for source, a in sources for at in source.positions]
        self._positions, self._addresses = np.array(where, np.int64).reshape(-1, 2).T.copy()

    def is_of(self, arrays: Sequence[Any]) -> bool:
        """Whether it was made for these arrays, and those to overwrite are not shared."""
        same = not self._gone and all(map(operator.is_, map(operator.call, self._refs), arrays))
        return same and all(map(_is_writeable, map(operator.call, self._rooms)))

    def write(self, words: memoryview) -> None:
        """Write the addresses into the words of the code."""
        np.asarray(words)[self._positions] = self._addresses


def own_arrays(
    fed: Mapping[str, Any], given: Mapping[str, Any], persistable: Collection[str]
) -> dict[str, Any]:
    """The feed of a replica, with copies of values that set variables and so may be overwritten.

    Args:
        fed: the values, on the replica's device.
        given: the values as they came: they may be read-only, or the user's own arrays.
        persistable: names of feeds that set a persistable variable.
    """
    return {
        name: np.array(value) if name in persistable and value is given[name] else value
        for name, value in fed.items()
    }


def written_on(plan: Plan, device: int) -> set[str]:
    """Names of the persistable variables that a plan changes on a device."""
    return {name for where, name in (*plan.commits, *plan.overwritten) if where == device}
