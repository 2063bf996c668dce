"""Steps of a plan whose sums go over the replicas of several processes.

Every trainer has a graph of its own replicas and runs its tasks as in any local run; only where
values of all replicas are added up, those of the other trainers come in, in the order of trainers
and replicas: ``((g0 + g1) + g2) + ...``. So losses and parameters have the bits that one process
with all the replicas would give them.
"""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dpexec.engine.compile.binding import Binding
from dpexec.engine.compile.replicas import Replicas
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.variable_values import with_sequences, write
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.party import Party
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.program import Program
from dpexec.engine.run.trainers.sums import TrainerSum, buckets_of, sparse_rows
from dpexec.engine.trace.live import Keeper

__all__ = ["TrainerExchange"]


@dataclass
class _Step:
    """What is agreed on for the step that runs.

    Args:
        first: samples of the batch at the trainers before this one.
        total: samples of all trainers.
    """

    first: int = 0
    total: int = 0


class TrainerExchange:
    """Adds up values of the replicas of all trainers, which agree on every step.

    Args:
        party: the trainers.
        replicas: the persistable variables.
        label: the program whose runs are counted.
        program: what is run: ``label``, or a copy of it.
        limit: seconds that another trainer may be silent.

    Attributes:
        party: as given.
        group: the same, for collectives.
    """

    alone = False

    def __init__(
        self, party: Party, replicas: Replicas, label: Program, program: Program, limit: float
    ) -> None:
        self.party = party
        self.group: Group
        self._replicas, self._label, self._program = replicas, label, program
        self._limit = limit
        self._meeting = 0
        self._shared = False
        self._told: weakref.WeakKeyDictionary[Binding, tuple[str, dict[str, int]]]
        self._told = weakref.WeakKeyDictionary()
        self._wide: weakref.WeakKeyDictionary[Binding, Binding] = weakref.WeakKeyDictionary()
        self._agreed: deque[_Step] = deque()
        self._step = _Step()

    # ---- before steps

    def begin(self) -> None:
        """Meet the others, and begin with the values of trainer 0.

        Raises:
            GangError: somebody did not come.
        """
        self._agreed.clear()
        with self.party.together():
            meeting = self.party.meet(self._limit)
            if meeting != self._meeting:
                self.group = self.party.group(len(self._replicas.places), self._limit)
                self._meeting = meeting
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

    def _agree(self, binding: Binding, feeds: Feeds) -> dict[str, int]:
        """Make sure that all trainers make the same step, and learn how much the others have.

        Returns:
            The rows of the others' sparse values, by name.
        """
        me = self.party.name(self.party.rank)
        if not all(feeds.samples):
            raise EnforceNotMet(
                f"{me} was fed {sum(feeds.samples)} samples for {len(feeds.samples)} replicas: "
                "with several trainers each replica needs one"
            )
        run = self._replicas.scope.run_count(self._label) + len(self._agreed)
        digest, rows = self._told_of(binding)
        own = [run, len(feeds.samples), digest, sum(feeds.samples), rows]
        heard = self.party.tell(own, f"the begin of run {run}", self._limit)
        for rank, words in enumerate(heard):
            for what, mine, theirs in zip(_AGREED, own, words, strict=False):
                if mine != theirs:
                    raise EnforceNotMet(
                        f"{self.party.name(rank)} and {me} must have the same {what}, but they "
                        f"have {theirs} and {mine}"
                    )
        counts = [words[-2] for words in heard]
        self._agreed.append(_Step(sum(counts[: self.party.rank]), sum(counts)))
        others = [words[-1] for rank, words in enumerate(heard) if rank != self.party.rank]
        return {name: sum(other[name] for other in others) for name in rows}

    def _told_of(self, binding: Binding) -> tuple[str, dict[str, int]]:
        """What is equal if trainers add up the same, and how many rows come from here at most."""
        if binding not in self._told:
            sums = [bucket.sums for bucket in buckets_of(binding).values()]
            digest = hashlib.sha256(repr(sums).encode()).hexdigest()[:16]
            self._told[binding] = digest, sparse_rows(binding)
        return self._told[binding]

    def _reaching(self, binding: Binding, more: Mapping[str, int]) -> Binding:
        """A binding whose sums go over all trainers, with room for the rows of the others."""
        known = self._wide.get(binding)
        before = {} if known is None else known.more_rows
        if known is None or any(rows > before[name] for name, rows in more.items()):
            room = {name: max(rows, before.get(name, 0)) for name, rows in more.items()}
            calls = {
                number: TrainerSum(bucket, self) for number, bucket in buckets_of(binding).items()
            }
            known = replace(binding, code=None, more_rows=room).calling(calls)
            self._wide[binding] = known
        return known

    # ---- steps

    @contextlib.contextmanager
    def step(self, binding: Binding, recorders: Sequence[Keeper]) -> Iterator[None]:
        """Around a step, see :meth:`Exchange.step`.

        Raises:
            GangError: another trainer failed, is gone, or does not answer; the trainers parted,
                and meet again at the next step.
        """
        with self.party.together():
            self.party.steps += 1
            self._step = self._agreed.popleft()
            yield
        if recorders:  # what they were given is added to
            binding.recording.note_moved(self.group.moved)

    def extent(self, samples: Sequence[int]) -> tuple[int, int]:
        """Samples of the batch before those of this trainer, and of all trainers."""
        return self._step.first, self._step.total

    def barrier(self) -> None:
        """Nothing is overwritten before all trainers have done what can fail."""
        self.group.barrier(self.party.steps)


_AGREED = ("number of completed runs", "number of replicas", "gradients (by program and fetches)")
