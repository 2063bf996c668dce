"""Steps of a plan whose sums go over the replicas of several processes.

Every trainer has a graph of its own replicas and runs its tasks as in any local run. Only sums over
all replicas include the values of other trainers, in the order of trainers and replicas: ``((g0 +
g1) + g2) + ...``. So losses and parameters have the same bits as in one process with all replicas.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.variable_values import with_sequences, write
from dpexec.engine.exchange.buckets import Bucket
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.party import Party
from dpexec.engine.exchange.plan_sums import ExchangedSum, buckets_of, sparse_rows, step_sums
from dpexec.engine.exchange.step_sums import PlanSums, Rooms, StepSums
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.program import Program

__all__ = ["TrainerExchange"]


_MEETINGS = 4096


@dataclass
class _Step:
    """What the trainers agreed on for the current step.

    Args:
        first: number of samples of the trainers before this one.
        total: number of samples of all trainers.
        sums: adds up the values of all trainers.
    """

    first: int
    total: int
    sums: PlanSums


@dataclass
class _Told:
    """What trainers tell each other about a binding.

    Args:
        buckets: the gradients that it adds up, by number of the task.
        digest: equal if trainers add up the same.
        rows: largest number of rows of sparse values from here, by name in order.
        sums: the sums of its latest step.
    """

    buckets: dict[int, Bucket]
    digest: int
    rows: dict[str, int]
    sums: PlanSums | None = None

    @classmethod
    def of(cls, binding: Binding) -> _Told:
        """What this trainer tells about a binding."""
        tasks = [task for task in binding.plan.tasks if task.nodes[0].does.combines]
        buckets, rows = buckets_of(binding, tasks), sparse_rows(binding)
        text = repr(([bucket.sums for bucket in buckets.values()], [*rows]))
        digest = hashlib.sha256(text.encode()).digest()
        return cls(buckets, int.from_bytes(digest[:7]), rows)


class TrainerExchange:
    """Adds up values of the replicas of all trainers, which agree on every step.

    Args:
        party: the trainers.
        replicas: the persistable variables.
        label: the program whose runs are counted.
        program: what is run: ``label``, or a copy of it.
        limit: seconds after which a silent trainer counts as lost.

    Attributes:
        party: as given.
        group: the same, for collectives.
        meetings: from when until when it waited for the others to begin a step, in nanoseconds; the
            latest ones.
    """

    def __init__(
        self, party: Party, replicas: Replicas, label: Program, program: Program, limit: float
    ) -> None:
        self.party = party
        self.group: Group
        self._replicas, self._label, self._program = replicas, label, program
        self._limit = limit
        self._meeting = 0
        self._shared = False
        self._told: weakref.WeakKeyDictionary[Binding, _Told] = weakref.WeakKeyDictionary()
        self._wide: weakref.WeakKeyDictionary[Binding, Binding] = weakref.WeakKeyDictionary()
        self._sums: LimitedCache[int, StepSums] = LimitedCache(limit_of("sums among trainers"))
        self._agreed: deque[_Step] = deque()
        self.meetings: deque[tuple[int, int]] = deque(maxlen=_MEETINGS)
        self._step: _Step

    # ---- before steps

    def begin(self) -> None:
        """Meet the other trainers, and start with the values of trainer 0.

        Raises:
            GangError: a trainer did not come.
        """
        self._agreed.clear()
        with self.party.together():
            meeting = self.party.meet(self._limit)
            if meeting != self._meeting:
                self.group = self.party.group(len(self._replicas.places), self._limit)
                self._meeting = meeting
                self._sums.clear()
            if not self._shared:
                self._share()
                self._shared = True

    def _share(self) -> None:
        """Give all trainers the values that trainer 0 has."""
        scope = self._replicas.scope
        stored = sorted(v.name for v in self._program.list_vars() if v.persistable)
        values = {name: with_sequences(scope.find_var(name)) for name in stored}
        known = {name: value for name, value in values.items() if value is not None}
        spread = self.party.spread(known, self._limit)
        for name, value in spread.items() if self.party.rank else ():
            write(scope.var(name), value)

    def ready(self, binding: Binding, feeds: Feeds) -> Binding:
        """Agree with the others on a step, and let the sums of a binding go over all trainers.

        Raises:
            EnforceNotMet: they do not make the same step, or a replica has no samples.
            GangError: see :meth:`step`.
        """
        with self.party.together():
            return self._reaching(binding, self._agree(binding, feeds))

    def _agree(self, binding: Binding, feeds: Feeds) -> PlanSums:
        """Make sure that all trainers run the same step; returns its sums."""
        me = self.party.name(self.party.rank)
        if not all(feeds.samples):
            raise EnforceNotMet(
                f"{me} was fed {sum(feeds.samples)} samples for {len(feeds.samples)} replicas: "
                "with several trainers each replica needs at least one sample"
            )
        run = self._replicas.scope.run_count(self._label) + len(self._agreed)
        told = self._told_of(binding)
        same = [run, len(feeds.samples), told.digest]
        own = [*same, sum(feeds.samples), *told.rows.values()]
        began = time.perf_counter_ns()
        heard = self.party.tell_numbers(own, f"the begin of run {run}", self._limit)
        self.meetings.append((began, time.perf_counter_ns()))
        for rank, words in enumerate(heard):
            for what, mine, theirs in zip(_AGREED, same, words, strict=False):
                if mine != theirs:
                    raise EnforceNotMet(
                        f"{self.party.name(rank)} and {me} must have the same {what}, but they "
                        f"have {theirs} and {mine}"
                    )
        samples = [words[len(same)] for words in heard]
        columns = zip(*(words[len(same) + 1 :] for words in heard), strict=True)
        sums = self._sums_of(told, dict(zip(told.rows, columns, strict=True)))
        self._agreed.append(_Step(sum(samples[: self.party.rank]), sum(samples), sums))
        return sums

    def _told_of(self, binding: Binding) -> _Told:
        home = binding.opened or binding
        if home not in self._told:
            self._told[home] = _Told.of(home)
        return self._told[home]

    def _sums_of(self, told: _Told, rows: Rooms) -> PlanSums:
        """The sums of a step; all trainers make them at the same time, or have them already."""
        known = self._sums.used(told.digest)
        if known is None or not _fit(rows, known.rooms):
            before: Rooms = {} if known is None else known.rooms
            rooms = {name: _grown(found, before.get(name)) for name, found in rows.items()}
            size, devices = self.party.size, len(self._replicas.places)
            buckets = [_of_all(b, n, size, devices) for n, b in enumerate(told.buckets.values())]
            known = step_sums(self.group, buckets, rooms, self.party.rank * devices)
            self._sums[told.digest] = known
        if told.sums is None or told.sums.sums is not known:
            told.sums = PlanSums(known, {task: n for n, task in enumerate(told.buckets)})
        return told.sums

    def _reaching(self, binding: Binding, sums: PlanSums) -> Binding:
        """A binding whose sums go over all trainers, with room for the rows of the others."""
        me = self.party.rank
        room = {name: sum(rows) - rows[me] for name, rows in sums.sums.rooms.items()}
        known = self._wide.get(binding)
        if known is None or known.more_rows != room:
            calls = {
                task: ExchangedSum(number, self._sums_now) for task, number in sums.buckets.items()
            }
            known = self._wide[binding] = self._with_room(binding, room).calling(calls)
        return known

    def _with_room(self, binding: Binding, room: Mapping[str, int]) -> Binding:
        if not room:
            return binding
        home = binding.opened
        if home is None:
            return binding.with_room(room)
        if home not in self._wide or self._wide[home].more_rows != room:
            self._wide[home] = home.with_room(room)
        return self._wide[home].closed(binding.rows)

    # ---- steps

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Around a step, see :meth:`Exchange.step`.

        Raises:
            GangError: another trainer failed, is gone, or does not answer; the trainers parted,
                and meet again at the next step.
        """
        with self.party.together():
            self.party.steps += 1
            self._step = self._agreed.popleft()
            self.sums.sums.begin(self.party.steps)
            yield

    def _sums_now(self) -> PlanSums:
        return self._step.sums

    @property
    def sums(self) -> PlanSums:
        """The sums over all trainers in the current step."""
        return self._step.sums

    def extent(self, samples: Sequence[int]) -> tuple[int, int]:
        """Samples of the batch before those of this trainer, and of all trainers."""
        return self._step.first, self._step.total

    def barrier(self) -> None:
        """Wait until all trainers have done what can fail, before anything is overwritten."""
        self.sums.sums.wait_for_all()

    def mirror(self, new_value: Callable[[int, str], Any]) -> None:
        """Trainers keep nothing for each other: each has all variables."""


def _fit(rows: Rooms, rooms: Rooms) -> bool:
    """Whether there is room for sparse values of all trainers."""
    return all(n <= m for name in rows for n, m in zip(rows[name], rooms[name], strict=True))


def _grown(rows: Sequence[int], before: Sequence[int] | None) -> list[int]:
    """Rows that buffers of sparse values hold; 1.5 times as many where there were too few."""
    if before is None:
        return list(rows)
    return [room if n <= room else n * 3 // 2 for n, room in zip(rows, before, strict=True)]


def _of_all(bucket: Bucket, number: int, trainers: int, devices: int) -> Bucket:
    """The sums of a task, for the devices of all trainers.

    Args:
        bucket: the sums for the devices of one trainer.
        number: its number among the buckets of the step.
        trainers: number of trainers.
        devices: number of devices of each.
    """

    def everywhere(here: Sequence[int]) -> tuple[int, ...]:
        return tuple(t * devices + d for t in range(trainers) for d in here)

    sums = (
        replace(total, sources=everywhere(total.sources), targets=everywhere(total.targets))
        for total in bucket.sums
    )
    return replace(bucket, number=number, sums=tuple(sums))


_AGREED = ("number of completed runs", "number of replicas", "gradients (by program and fetches)")
