"""A whole step as code: what is left to Python is to say where values lie.

When every task of a plan is a piece of code, and every collective adds what such code computes,
all addresses but those of feeds and stored variables are known beforehand. Then a step writes these
few, runs the tasks in one call without the GIL, on as many threads as help, and takes the results
from where they lie.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.bindings.exchanges import Exchange
from dpexec.engine.compile.bindings.items import NotCodeError, items_of
from dpexec.engine.compile.bindings.sizes import SizeWriter
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.compile.regions.code_run import is_array, result_of, word_of
from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.core import tensors
from dpexec.engine.core.cache import LimitedCache
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.kernels.located import OF_ADDRESS, word_at
from dpexec.engine.kernels.thread_team import Schedule

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.notes import CodeNotes

__all__ = ["CodeStep", "code_step"]

_ROWS_KEPT = 256


def code_step(
    binding: Binding, feeds: Feeds, threads: int, exchange: Exchange | None = None
) -> CodeStep | None:
    """The code of all tasks of a binding; None if some of it is not code.

    Args:
        binding: what runs.
        feeds: a batch of its shapes.
        threads: how many work together.
        exchange: other processes that take part; None: there are none.
    """
    try:
        return CodeStep(binding, feeds, threads, exchange)
    except NotCodeError:
        return None


class CodeStep:
    """The code of all tasks of a binding.

    Args:
        binding: what runs.
        feeds: a batch of its shapes.
        threads: how many work together.
        exchange: other processes that take part; None: there are none.

    Attributes:
        exchange: the same.
        gates: the items of the schedule that updates wait for; None: no processes take part.
        parts: per item of the schedule, its task and what that does; no task where it only waits.
        joined: sums whose size only a run tells.
        notes: where runs note when their kernels run.

    Raises:
        NotCodeError: some of it is not code.
    """

    def __init__(
        self, binding: Binding, feeds: Feeds, threads: int, exchange: Exchange | None = None
    ) -> None:
        plan = self.plan = binding.plan
        made = items_of(binding, threads, exchange)
        turn = 0 if exchange is None else exchange.turn
        self.schedule = Schedule(made.tables(), made.waits, made.threads, made.signs, turn)
        self.exchange, self.gates = exchange, made.gates
        self._words = memoryview(made.words.data)  # written to much faster than an array
        self._open = made.open
        self._sizes = SizeWriter(made.open, made.words, binding.rows)
        self._sized_for: Callable[[], Binding | None] = weakref.ref(binding)
        self._lates: Any = None  # words are their addresses; the first ones live in what is kept
        self._kept = made.kept
        self.parts = made.parts
        self.joined = made.joined
        self._updates = [
            item for item, (task, _) in enumerate(made.parts) if task and task.id in plan.updates
        ]
        self.notes: CodeNotes | None = None
        self._numbers = made.numbers
        self._computed, self._exchanged = made.computed, made.exchanged
        self._fed = [o for o in made.outside if o.name in feeds.values[o.device]]
        self._stored = [o for o in made.outside if o.name not in feeds.values[o.device]]
        self._refs: list[weakref.ref[Any]] = []  # code keeps no values between runs
        self._gone: list[Any] = []  # those of them whose arrays are no more
        self._moves = -1
        self._numbered = False
        self._rows = tuple(binding.rows)
        self._extent: Any = None
        self._told: LimitedCache[Any, list[int]] = LimitedCache(_ROWS_KEPT)
        self._written: dict[str, LoDTensor] = {}
        fetched = itertools.product(range(len(made.computed)), plan.fetch)
        self._varying = [it for it in (*fetched, *plan.commits) if self._open.varies(*it)]
        self._results = self._lasting()
        self._others = [
            (device, name)
            for device, found in enumerate(self._results)
            for name in plan.fetch
            if name not in found
        ]
        self.is_random = any(n.op and n.op.definition.is_random for n in plan.nodes)
        """Whether it needs to know the shards at every run; else at the first."""

    # ---- before a run

    def resize(self, binding: Binding) -> None:
        """Make it the code for other numbers of rows.

        Args:
            binding: for them; what left them open is the same as before.
        """
        if self._sized_for() is binding:
            return
        self._sizes.write(binding.rows, binding.lates)
        self._sized_for, self._lates = weakref.ref(binding), binding.lates
        for device, name in self._varying:
            self._computed[device][name] = self._open.value(device, name, binding.rows)
        if self._varying:
            self._results = self._lasting()
        self._rows = tuple(binding.rows)
        self._write_known_numbers()
        self.note(None)

    def share(self, extent: tuple[int, int]) -> None:
        """Make it the code for a part of a batch that several processes share.

        Args:
            extent: samples of the batch before those of this process, and of all processes.
        """
        if extent != self._extent:
            self._extent = extent
            self._write_known_numbers()

    def bring(self, feeds: Feeds, replicas: Replicas) -> list[Any] | None:
        """Say where feeds and stored variables lie.

        Returns:
            What must stay where it is during the run; None if code cannot work on some of it.
        """
        known = self._moves == tensors.moves and not self._gone
        stored = [ref() for ref in self._refs] if known else self._find(replicas)
        if stored is None:
            return None
        words = self._words
        for source in self._fed:
            fed: Any = feeds.values[source.device][source.name]
            array = np.ascontiguousarray(fed.offsets if type(fed) is Lod else fed, source.dtype)
            begin = word_at(id(array) + OF_ADDRESS).value  # like address(), in every step
            for position in source.positions:
                words[position] = begin
            stored.append(array)
        return stored

    def _find(self, replicas: Replicas) -> list[Any] | None:
        found = []
        for source in self._stored:
            tensor = replicas.tensor(source.device, source.name)
            array = None if tensor is None else tensor.array
            if array is None or not source.fits(array):
                return None
            source.write(self._words, array)
            found.append(array)
        self._gone = []
        self._refs = [weakref.ref(array, self._gone.append) for array in found]
        self._moves = tensors.moves
        written = ((name, replicas.tensor(0, name)) for name in self.plan.written)
        self._written = {name: tensor for name, tensor in written if tensor is not None}
        return found

    def number(self, shards: Sequence[Shard]) -> None:
        """Tell the numbers that depend on the run; but for random ones, they do on its samples."""
        words = [word_of(number(shards[device])) for device, _, number in self._numbers]
        self._write_numbers(words)
        self._numbered = True
        if not self.is_random:
            self._told[self._rows, self._extent] = words

    def _write_known_numbers(self) -> None:
        known = self._told.get((self._rows, self._extent))
        self._numbered = known is not None
        if known is not None:
            self._write_numbers(known)

    def _write_numbers(self, words: Sequence[int]) -> None:
        for (_, position, _), word in zip(self._numbers, words, strict=True):
            self._words[position] = word

    @property
    def needs_numbers(self) -> bool:
        """Whether :meth:`number` must be called before the next run."""
        return self.is_random or not self._numbered

    # ---- recording

    def note(self, notes: CodeNotes | None) -> None:
        """Let runs note when their kernels run.

        Args:
            notes: where, from its next row on; None: not any more.
        """
        if self.notes is not None:
            self.notes.release()
        self.schedule.note(0 if notes is None else notes.address)
        self.notes = notes

    # ---- after a run

    def check_begun(self) -> None:
        """Called when an item refused its values, which may only be before updates begin.

        Raises:
            RuntimeError: a variable has been overwritten already.
        """
        itself = self.schedule.refused - 1  # in an item, what may refuse comes before updates
        if any(self.schedule.begun(item) for item in self._updates if item != itself):
            raise RuntimeError("code refused values after it had begun to update parameters")

    def results(self, feeds: Feeds, replicas: Replicas) -> list[Env]:
        """What is fetched, per device."""
        if not self._others:
            return self._results
        found = [Env() for _ in self._results]
        for env, lasting in zip(found, self._results, strict=True):
            env.update(lasting)
        for device, name in self._others:
            value = self._value(device, name, feeds.values[device], replicas)
            if value is not None:
                found[device][name] = value
        return found

    def exchanged(self, task: int, device: int, name: str) -> Any:
        """What code computed that other processes add up.

        Args:
            task: which adds it up.
            device: whose.
            name: of the value.
        """
        return result_of(*self._exchanged[task, device, name])

    def _lasting(self) -> list[Env]:
        """Of what is fetched, the arrays that are the same at every run, per device."""
        envs = []
        for computed in self._computed:
            envs.append(Env())
            for name in self.plan.fetch:
                value, arrays = computed.get(name, (None, []))
                if value is not None and is_array(value):
                    envs[-1][name] = arrays[0]
        return envs

    def _value(self, device: int, name: str, fed: Mapping[str, Any], replicas: Replicas) -> Any:
        if name in self._computed[device]:
            return result_of(*self._computed[device][name])
        if name in fed:
            return fed[name]
        tensor = replicas.tensor(device, name)
        return None if tensor is None else tensor.array

    def commit(self, replicas: Replicas) -> None:
        """Store what was computed for persistable variables."""
        for device, name in self.plan.commits:
            value = self._computed[device].get(name)
            if value is not None:
                replicas.store(device, name, result_of(*value))
        if self._moves == tensors.moves:
            replicas.touch(self._written)
        else:
            replicas.written(self.plan.written)
