"""A whole step as code: Python only writes addresses and takes the results.

This needs every operator of a plan to be code, and every collective to combine values that code
computes. All addresses but those of feeds and stored variables are then known beforehand. A step
writes these few addresses, runs all tasks in one call without the GIL on the threads of a team, and
takes the results from memory.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.bindings.exchanges import Exchange
from dpexec.engine.compile.bindings.items import NotCodeError, items_of
from dpexec.engine.compile.bindings.outside import CodeStore, Outside
from dpexec.engine.compile.bindings.sizes import SizeWriter
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.regions.code_run import word_of
from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.compile.regions.operands import is_array, result_of
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.lod import Lod
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.kernels.located import OF_ADDRESS, word_at
from dpexec.engine.kernels.thread_team import Schedule

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.notes import CodeNotes

__all__ = ["CodeStep", "code_step"]


def code_step(
    binding: Binding,
    feeds: Feeds,
    threads: int,
    store: CodeStore,
    exchange: Exchange | None = None,
) -> CodeStep | None:
    """The code of all tasks of a binding; None if some task is not code.

    Args:
        binding: the binding that runs.
        feeds: a batch of its shapes.
        threads: how many threads work together.
        store: where its variables lie.
        exchange: other processes that take part; None: there are none.
    """
    try:
        return CodeStep(binding, feeds, threads, store, exchange)
    except NotCodeError:
        return None


class CodeStep:
    """The code of all tasks of a binding.

    Args:
        binding: the binding that runs.
        feeds: a batch of its shapes.
        threads: how many threads work together.
        store: where its variables lie.
        exchange: other processes that take part; None: there are none.

    Attributes:
        exchange: the other processes that take part, or None.
        gates: the items of the schedule that updates wait for; None: no other processes take part.
        parts: per item of the schedule, its task and the nodes whose work it does. Items without a
            task only wait.
        joined: sparse sums, whose size is known only after a run.
        notes: where runs note when their kernels ran; None: nowhere.
        updates_wait: whether updates are made later than the rest, see :class:`CodeStore`.

    Raises:
        NotCodeError: some task is not code.
    """

    def __init__(
        self,
        binding: Binding,
        feeds: Feeds,
        threads: int,
        store: CodeStore,
        exchange: Exchange | None = None,
    ) -> None:
        plan = self.plan = binding.plan
        items = items_of(binding, threads, store, exchange)
        turn = 0 if exchange is None else exchange.turn
        self.schedule = Schedule(items.tables(), items.waits, items.threads, items.signs, turn)
        self.exchange, self.gates = exchange, items.gates
        self._words = memoryview(items.words.data)  # written to much faster than an array
        self._open = items.open
        self._sizes = SizeWriter(items.open, items.words, binding.rows)
        self._sized_for: Callable[[], Binding | None] = weakref.ref(binding)
        self._sized: Any = None  # words are their addresses; the first ones live in what is kept
        self._kept, self._spread = items.kept, items.spread  # kept: words are addresses in these
        self.parts, self.joined = items.parts, items.joined
        self.updates_wait, self._leaves_updates = store.updates_wait(plan), False
        self._updates, _ = _divided(items.parts, plan.updates)
        self._behind_updates, self._before_updates = _divided(items.parts, plan.behind_updates)
        self.notes: CodeNotes | None = None
        self._numbers = items.numbers
        self._computed, self._exchanged = items.computed, items.exchanged
        self._fed = [o for o in items.outside if o.name in feeds.values[o.device]]
        stored = [o for o in items.outside if o.name not in feeds.values[o.device]]
        self.variables = store.variables(plan, stored)
        self._copies = [*items.copies, *(self._updates if items.copies_updates else ())]
        self._devices, self._records = store.devices, items.copying.records
        self._numbered = False
        self._rows = tuple(binding.rows)
        self._extent: Any = None
        self._known_words: LimitedCache[Any, list[int]] = LimitedCache(
            limit_of("words of steps of code")
        )
        fetched = itertools.product(range(len(items.computed)), plan.fetch)
        self._varying = [it for it in (*fetched, *plan.commits) if self._open.varies(*it)]
        self._results = self._lasting()
        had = [(d, name) for name in plan.fetch for d in plan.graph.holders(name, self._devices)]
        self._changing = [(d, name) for d, name in had if name not in self._results[d]]
        self._keeps_stored, self._stored = binding.packed is not None, list[Any]()
        self.is_random = any(n.op and n.op.definition.is_random for n in plan.nodes)
        """Whether it needs to know the shards at every run; else at the first."""

    # ---- before a run

    def resize(self, binding: Binding) -> None:
        """Make it the code for other numbers of rows.

        Args:
            binding: the binding for these numbers, of the same open binding as before.
        """
        if self._sized_for() is binding:
            return
        self._sizes.write(binding.rows, binding.sized)
        self._sized_for, self._sized = weakref.ref(binding), binding.sized
        for device, name in self._varying:
            self._computed[device][name] = self._open.value(device, name, binding.rows)
        if self._varying:
            self._results = self._lasting()
        self._rows = tuple(binding.rows)
        self._write_known_numbers()
        self.note(None)

    def share(self, extent: Hashable) -> None:
        """Make it the code for this process's part of a batch that several processes share.

        Args:
            extent: the key of this part; numbers are known again by it.
        """
        if extent != self._extent:
            self._extent = extent
            self._write_known_numbers()

    def bring(self, feeds: Feeds) -> list[Any] | None:
        """Write the addresses of feeds and stored variables.

        Args:
            feeds: the batch.

        Returns:
            The arrays, to be kept until the run ends; None if code cannot work on one of them.
        """
        words = self._words
        stored = self.variables.bring(words)
        if stored is None:
            return None
        if self._keeps_stored:  # until others take their place: code knows them by their addresses
            self._stored = [*stored]
        for record in self._records:
            record[0] = self.variables.follows
        for source in self._fed:
            fed: Any = feeds.values[source.device][source.name]
            array = np.ascontiguousarray(fed.offsets if type(fed) is Lod else fed, source.dtype)
            begin = word_at(id(array) + OF_ADDRESS).value  # like address(), in every step
            for position in source.positions:
                words[position] = begin
            stored.append(array)
        if self.updates_wait:
            self._leave_updates()
        return stored

    def number(self, shards: Sequence[Shard]) -> None:
        """Write the numbers that depend on the run.

        Those of programs without random operators depend on the numbers of samples alone, and are
        kept.
        """
        words = [word_of(number(shards[device])) for device, _, number in self._numbers]
        self._write_numbers(words)
        self._numbered = True
        if not self.is_random:
            self._known_words[self._rows, self._extent] = words

    def _write_known_numbers(self) -> None:
        known = self._known_words.get((self._rows, self._extent))
        self._numbered = known is not None
        if known is not None:
            self._write_numbers(known)

    def _write_numbers(self, words: Sequence[int]) -> None:
        for (_, position, _), word in zip(self._numbers, words, strict=True):
            self._words[position] = word

    def _leave_updates(self) -> None:
        """Let the next run leave updates for later.

        A recorded run makes its updates at once, so that the record has the whole step. Variables
        are copied before it, since others may go back to their values.
        """
        self._leaves_updates = self.notes is None
        self.schedule.leave_out(self._behind_updates if self._leaves_updates else ())
        if not self._leaves_updates:
            self.variables.keep_originals()

    def commit(self, run: Callable[[Schedule], bool]) -> None:
        """Store the variables that the latest run has computed.

        Args:
            run: runs the schedule for updates that were left; False if an item refused its values.
        """
        if self._leaves_updates:
            self.variables.commit_before_updates(
                self.new_value, functools.partial(self.update, run)
            )
        else:
            self.variables.commit(self.new_value)

    def update(self, run: Callable[[Schedule], bool]) -> None:
        """Make the updates that the latest run has left.

        Args:
            run: runs the schedule; False if an item refused its values.

        Raises:
            RuntimeError: an item refused its values, which is a bug: updates never do.
        """
        self.schedule.leave_out(self._before_updates)
        if not run(self.schedule):
            raise RuntimeError("code refused values while it updated parameters")

    @property
    def needs_numbers(self) -> bool:
        """Whether :meth:`number` must be called before the next run."""
        return self.is_random or not self._numbered

    # ---- recording

    def note(self, notes: CodeNotes | None) -> None:
        """Let runs note when their kernels ran.

        Args:
            notes: takes the times, from its next row on; None: runs note nothing any more.
        """
        if self.notes is not None:
            self.notes.release()
        self.schedule.note(0 if notes is None else notes.address)
        self.notes = notes

    # ---- after a run

    def check_begun(self) -> None:
        """Called when an item refused its values, which is allowed only before updates begin.

        Raises:
            RuntimeError: a variable has been overwritten already.
        """
        self.give_up()
        if self._leaves_updates:
            return
        itself = self.schedule.refused - 1  # in an item, kernels that may refuse precede updates
        if any(self.schedule.begun(item) for item in self._updates if item != itself):
            raise RuntimeError("code refused values after it had begun to update parameters")

    def give_up(self) -> None:
        """Called when a run has failed: variables keep their values."""
        if any(self.schedule.begun(item) for item in self._copies):
            self.variables.give_up()

    def results(self, feeds: Feeds) -> list[Env]:
        """The fetched values, per device."""
        if not self._changing:
            return self._results
        found = [Env() for _ in self._results]
        for env, lasting in zip(found, self._results, strict=True):
            env.update(lasting)
        for device, name in self._changing:
            value = self._value(device, name, feeds.values[device])
            if value is not None:
                found[device][name] = value
        return found

    def exchanged(self, task: int, device: int, name: str) -> Any:
        """A value of this process that goes into a sum of several processes.

        Args:
            task: number of the task that adds up.
            device: the device that computed the value.
            name: of the value.
        """
        found = self._exchanged[task, device, name]
        if isinstance(found, Outside):
            return self.variables.overwritten(device, name)
        return result_of(*found)

    def _lasting(self) -> list[Env]:
        """The fetched values that lie in the same array at every run, per device."""
        envs = []
        for computed in self._computed:
            envs.append(Env())
            for name in self.plan.fetch:
                value, arrays = computed.get(name, (None, []))
                if value is not None and is_array(value):
                    envs[-1][name] = arrays[0]
        return envs

    def _value(self, device: int, name: str, fed: Mapping[str, Any]) -> Any:
        made = self.new_value(device, name)
        if made is not None:
            return made
        return fed[name] if name in fed else self.variables.value(device, name)

    def new_value(self, device: int, name: str) -> Any:
        """The new value of a variable after the latest run; None: the run left it as it was.

        Args:
            device: the device of the variable.
            name: of the variable.
        """
        source = self._spread.get((device, name))
        value = None if source is not None else self._computed[device].get(name)
        if value is not None:
            return result_of(*value)
        device = device if source is None else source.device
        return self.variables.overwritten(device, name if source is None else source.name)


def _divided(
    parts: Sequence[tuple[Task | None, Any]], tasks: Collection[int]
) -> tuple[list[int], list[int]]:
    """The items of a schedule that belong to some tasks, and all others."""
    chosen = [task is not None and task.id in tasks for task, _ in parts]
    of_tasks = [item for item, is_one in enumerate(chosen) if is_one]
    return of_tasks, [item for item, is_one in enumerate(chosen) if not is_one]
