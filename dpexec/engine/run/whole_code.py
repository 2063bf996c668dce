"""Whole steps of code: all tasks in one call, worked through by several threads without the GIL."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dask.callbacks import Callback

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.core.interrupts import Uninterrupted
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.run.fetch import collect
from dpexec.engine.run.scope_store import ScopeStore

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.code_step import CodeStep
    from dpexec.engine.compile.bindings.notes import CodeNotes
    from dpexec.engine.compile.bindings.sums import Joined
    from dpexec.engine.exchange.step_sums import PlanSums
    from dpexec.engine.run.parts import AgreedExchange
    from dpexec.engine.threads.prepared import Threads
    from dpexec.engine.threads.thread_team import ThreadTeam
    from dpexec.engine.trace.live import Keeper

__all__ = ["WholeCode"]


class WholeCode:
    """Runs steps whose tasks are all machine code, on variables in scopes.

    Args:
        store: the variables.
        threads: those that help the calling one; None: there are none.
        most: how many may work at once.
        exchange: how values meet that a plan alone cannot bring together; None: there are none.

    Attributes:
        made: the code of bindings; None: some of it is not code.
        joined: sums of the latest step whose size only a run tells.
    """

    def __init__(
        self,
        store: ScopeStore,
        threads: Threads | None,
        most: int,
        exchange: AgreedExchange | None = None,
    ) -> None:
        self.made: weakref.WeakKeyDictionary[Binding, CodeStep | None]
        self.made = weakref.WeakKeyDictionary()
        self.joined: Sequence[Joined] = ()
        self._store, self._exchange = store, exchange
        self._threads, self._most = threads, most
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
            What is fetched, per device, and as it is returned. None if it is no code, or the code
            refused its values: the tasks, run one by one, will say why.
        """
        exchange = self._exchange
        sums = None if exchange is None else exchange.sums
        code = self._code(binding, feeds, sums)
        if code is None:
            return None
        replicas, plan, team = self._store.replicas, code.plan, self._team(code.plan)
        notes = code.notes
        if recorders is not (() if notes is None else notes.recorders):
            notes = _make_room(binding, code, team, recorders)
        began = 0 if notes is None else time.perf_counter_ns()
        held = code.bring(feeds, replicas)  # until the end of the run
        if held is None:
            return None
        if exchange is not None:
            code.share(exchange.extent(feeds.samples))
        if code.needs_numbers:
            code.number(shards())
        try:
            with Uninterrupted() as interrupts:  # code ends by itself, and the step is whole
                peers = None if sums is None else sums.sums.peers(code, interrupts)
                if not team.run(code.schedule, peers):
                    code.note(None)
                    code.check_begun()
                    return None
                envs, self.joined = code.results(feeds, replicas), code.joined
                results = collect(envs, plan.key.fetch, plan.active, merged)
                code.commit(replicas)
                self._store.runs.number += 1
        except BaseException:
            code.note(None)  # what comes next is noted over what this step noted
            raise
        if notes is not None:
            notes.add(began, time.perf_counter_ns(), {} if sums is None else sums.moved)
        return envs, results

    def _code(self, binding: Binding, feeds: Feeds, sums: PlanSums | None) -> CodeStep | None:
        """The code of a whole step, made when shapes come again; None: its tasks run singly."""
        again = binding.runs > 1 or binding.rows  # sizes that are left open rarely come twice
        watched = self._threads is not None and Callback.active  # by who wants to see dask's tasks
        if not again or feeds.persistable or not binding.native or watched:
            return None
        if sums is not None and sums.sums.unknown:
            return None
        home = binding.opened or binding
        code = self.made.get(home)
        known = code is not None or home in self.made
        if not known or (code is not None and code.exchange is not sums):
            from dpexec.engine.compile.bindings.code_step import code_step

            code = code_step(binding, feeds, self._team(binding.plan).size, sums)
            self.made[home] = code
        if code is not None and binding.rows:
            code.resize(binding)
        return code

    def _team(self, plan: Plan) -> ThreadTeam:
        """As many threads as find something to do."""
        size = min(self._most, plan.width)
        if size not in self._teams:
            from dpexec.engine.threads.thread_team import ThreadTeam

            self._teams[size] = ThreadTeam(self._threads, size)
        return self._teams[size]


def _make_room(
    binding: Binding, code: CodeStep, team: ThreadTeam, recorders: tuple[Keeper, ...]
) -> CodeNotes | None:
    """Let runs of code note something for other recorders, or where there is room."""
    code.note(None)
    if not recorders:
        return None
    notes = binding.recording.room(code, team)
    notes.follow(recorders)
    code.note(notes)
    return notes
