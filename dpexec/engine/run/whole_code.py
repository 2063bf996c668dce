"""Whole steps of code: all tasks in one call, worked through by several threads without the GIL."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dask.callbacks import Callback

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.core import tensors
from dpexec.engine.core.interrupts import Uninterrupted
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.trace.between import preparing

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.code_step import CodeStep
    from dpexec.engine.compile.bindings.notes import CodeNotes
    from dpexec.engine.compile.bindings.outside import CodeStore, Outside
    from dpexec.engine.compile.bindings.sums import Joined
    from dpexec.engine.exchange.step_sums import PlanSums
    from dpexec.engine.run.parts import CodeExchange
    from dpexec.engine.threads.prepared import Threads
    from dpexec.engine.threads.thread_team import ThreadTeam
    from dpexec.engine.trace.live import Keeper

__all__ = ["Ready", "ScopeVariables", "WholeCode"]


class Ready(NamedTuple):
    """Code that ran as a whole step, and the team that ran it."""

    code: CodeStep
    team: ThreadTeam


class WholeCode:
    """Runs steps whose tasks are all machine code.

    Args:
        store: the variables.
        fetch: returns the fetches, see :func:`fetched_of`.
        threads: the helping threads; None: there are none.
        max_threads: largest number of threads that work at once.
        exchange: combines values with other processes; None: there are none.

    Attributes:
        by_binding: the code of each binding; None if a part of it is not code.
        joined: sums of the latest step whose size is known only after a run.
        ready: the latest step, if others like it may run :meth:`again`; None: they may not.
    """

    def __init__(
        self,
        store: CodeStore,
        fetch: Callable[[Plan, list[Env], bool], list[Any]],
        threads: Threads | None,
        max_threads: int,
        exchange: CodeExchange | None = None,
    ) -> None:
        self.by_binding: weakref.WeakKeyDictionary[Binding, CodeStep | None]
        self.by_binding = weakref.WeakKeyDictionary()
        self.joined: Sequence[Joined] = ()
        self.ready: Ready | None = None
        self._store, self._fetch, self._exchange = store, fetch, exchange
        self._threads, self._max_threads = threads, max_threads
        self._teams: dict[int, ThreadTeam] = {}

    def run(
        self,
        binding: Binding,
        feeds: Feeds,
        shards: Callable[[], list[Shard]],
        merged: bool,
        recorders: tuple[Keeper, ...],
    ) -> tuple[list[Env], list[Any]] | None:
        """Run a step, see :meth:`StepRunner.step`.

        Returns:
            The fetches, per device and as they are returned. None if the step is not code, or the
            code refused its values: the tasks, run one by one, will raise the error.
        """
        self.ready, exchange = None, self._exchange
        sums = None if exchange is None else exchange.sums
        code = self._code(binding, feeds, sums)
        if code is None:
            return None
        team = self._team(code.plan)
        notes = code.notes
        if recorders is not (() if notes is None else notes.recorders):
            notes = _make_room(binding, code, team, recorders)
        began = 0 if notes is None else time.perf_counter_ns()
        held = code.bring(feeds)  # until the end of the run
        if held is None:
            return None
        if exchange is not None:
            code.share(exchange.extent(feeds.samples))
        if code.needs_numbers:
            code.number(shards())
        done = self._work(code, team, feeds, merged)
        if done is None:
            return None
        if notes is not None:
            moved, carried = ({}, {}) if sums is None else (sums.moved, sums.carried)
            notes.add(began, time.perf_counter_ns(), moved, carried)
        elif exchange is None and not code.is_random:
            self.ready = Ready(code, team)
        return done

    def again(self, binding: Binding, ready: Ready, feeds: Feeds, merged: bool) -> list[Any] | None:
        """Run a step like one that ran before, in a process alone, without recorders.

        Args:
            binding: what runs.
            ready: its code.
            feeds: the feeds of the devices; only their numbers are new.
            merged: how to return fetches.

        Returns:
            The fetches. None if the code cannot run at once, or refused its values: :meth:`run`
            does what is to be done then.
        """
        code, team = ready
        if binding.rows:
            code.resize(binding)
        held = code.bring(feeds)  # until the end of the run
        if held is None or code.needs_numbers:
            return None
        done = self._work(code, team, feeds, merged)
        return None if done is None else done[1]

    def _work(
        self, code: CodeStep, team: ThreadTeam, feeds: Feeds, merged: bool
    ) -> tuple[list[Env], list[Any]] | None:
        """Run code that has its feeds, fetch, and commit; None: the code refused its values."""
        exchange = self._exchange
        sums = None if exchange is None else exchange.sums
        try:
            with Uninterrupted() as interrupts:  # code ends by itself, so the step is complete
                peers = None if sums is None else sums.sums.peers(code, interrupts)
                if not team.run(code.schedule, peers):
                    code.note(None)
                    code.check_begun()
                    return None
                envs, self.joined = code.results(feeds), code.joined
                results = self._fetch(code.plan, envs, merged)
                if exchange is not None:
                    exchange.mirror(code.new_value)
                code.commit(team.run)
        except BaseException:
            code.give_up()
            code.note(None)  # the next step's notes overwrite those of this one
            raise
        return envs, results

    def _code(self, binding: Binding, feeds: Feeds, sums: PlanSums | None) -> CodeStep | None:
        """The code of a whole step, made when shapes repeat; None: its tasks run one by one."""
        again = binding.runs > 1 or binding.rows  # batches of open sizes rarely repeat a size
        watched = self._threads is not None and Callback.active  # they want to see dask's tasks
        if not again or feeds.persistable or not binding.native or watched:
            return None
        if sums is not None and sums.sums.unknown:
            return None
        home = binding.opened or binding
        code = self.by_binding.get(home)
        known = code is not None or home in self.by_binding
        if not known or (code is not None and code.exchange is not sums):
            from dpexec.engine.compile.bindings.code_step import code_step

            threads = self._team(binding.plan).size
            with preparing():
                code = code_step(binding, feeds, threads, self._store, sums)
            self.by_binding[home] = code
        if code is not None and binding.rows:
            code.resize(binding)
        return code

    def _team(self, plan: Plan) -> ThreadTeam:
        """A team with as many threads as there is work for."""
        size = min(self._max_threads, plan.width)
        if size not in self._teams:
            from dpexec.engine.threads.thread_team import ThreadTeam

            with preparing():
                self._teams[size] = ThreadTeam(self._threads, size)
        return self._teams[size]


def _make_room(
    binding: Binding, code: CodeStep, team: ThreadTeam, recorders: tuple[Keeper, ...]
) -> CodeNotes | None:
    """Make room for the notes of the next steps, or give them to other recorders."""
    code.note(None)
    if not recorders:
        return None
    notes = binding.recording.room(code, team)
    notes.follow(recorders)
    code.note(notes)
    return notes


class ScopeVariables:
    """Variables of a step of code that lie in scopes, see :class:`CodeVariables`.

    Args:
        replicas: the variables, per device.
        runs: the count of the program's runs.
        plan: what runs.
        stored: the variables that the code reads.
    """

    follows = False

    def __init__(
        self, replicas: Replicas, runs: Any, plan: Plan, stored: Sequence[Outside]
    ) -> None:
        self._replicas, self._runs, self._plan, self._stored = replicas, runs, plan, stored
        self._refs: list[weakref.ref[Any]] = []  # code keeps no values between runs
        self._gone: list[Any] = []  # references whose arrays are gone
        self._moves = -1
        self._written: dict[str, LoDTensor] = {}

    def bring(self, words: memoryview) -> list[Any] | None:
        """Write the addresses of the variables, see :meth:`CodeVariables.bring`."""
        known = self._moves == tensors.moves and not self._gone
        return [ref() for ref in self._refs] if known else self._find(words)

    def _find(self, words: memoryview) -> list[Any] | None:
        found, replicas = [], self._replicas
        for source in self._stored:
            tensor = replicas.tensor(source.device, source.name)
            array = None if tensor is None else tensor.array
            if array is None or not source.fits(array):
                return None
            source.write(words, array)
            found.append(array)
        self._gone = []
        self._refs = [weakref.ref(array, self._gone.append) for array in found]
        self._moves = tensors.moves
        written = ((name, replicas.tensor(0, name)) for name in self._plan.written)
        self._written = {name: tensor for name, tensor in written if tensor is not None}
        return found

    def value(self, device: int, name: str) -> Any:
        """The value of a variable; None if it has none."""
        tensor = self._replicas.tensor(device, name)
        return None if tensor is None else tensor.array

    def overwritten(self, device: int, name: str) -> None:
        """Updates overwrite the variables themselves."""

    def commit(self, new_value: Callable[[int, str], Any]) -> None:
        """Store the results of a run, and count it."""
        replicas = self._replicas
        for device, name in self._plan.commits:
            value = new_value(device, name)
            if value is not None:
                replicas.store(device, name, value)
        if self._moves != tensors.moves:
            replicas.written(self._plan.written)
        elif self._written:
            replicas.touch(self._written)
        self._runs.number += 1

    def commit_before_updates(
        self, new_value: Callable[[int, str], Any], update: Callable[[], None]
    ) -> None:
        """Make the updates, and store everything: a process alone never goes back a step."""
        update()
        self.commit(new_value)

    def keep_originals(self) -> None:
        """Nothing to do: a process alone never goes back a step."""

    def give_up(self) -> None:
        """Nothing to do: no variable was copied."""
