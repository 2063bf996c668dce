"""Steps of a plan whose sums go over the replicas of several processes.

Every trainer has a graph of its own replicas and runs its tasks as in any local run; only where
values of all replicas are added up, those of the other trainers come in, in the order of trainers
and replicas: ``((g0 + g1) + g2) + ...``. So losses and parameters have the bits that one process
with all the replicas would give them.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpexec.core.places import CUDAPlace
from dpexec.core.tensors import LoDTensor
from dpexec.errors import EnforceNotMet
from dpexec.ir.program import Program
from dpexec.runtime.binding import Binding
from dpexec.runtime.env import Env, Shard
from dpexec.runtime.feed import Feeds
from dpexec.runtime.gang.buckets import Bucket, bucket_of
from dpexec.runtime.gang.group import Group
from dpexec.runtime.gang.wire import GangError, Tag
from dpexec.runtime.local_runner import LocalRunner
from dpexec.runtime.partition import SUMS, Task
from dpexec.runtime.plan import Plan
from dpexec.runtime.recording import Recording
from dpexec.runtime.replicas import Replicas
from dpexec.runtime.steps import Step
from dpexec.runtime.strategy import BuildStrategy, ExecutionStrategy
from dpexec.runtime.trainers.choice import party_for

__all__ = ["TrainerRunner"]


class _Sum:
    """The call that stands for the nodes of a task that adds up values of all trainers.

    Args:
        bucket: what it adds up.
        runner: whose step it is a part of.
    """

    def __init__(self, bucket: Bucket, runner: TrainerRunner) -> None:
        self._bucket, self._runner = bucket, runner
        self._group: Group | None = None
        self._work: Any = None

    def __call__(self, envs: Sequence[Env]) -> None:
        group = self._runner.group
        if self._group is not group:
            self._group, self._work = group, group.work(self._bucket)
        before = [Env()] * (self._runner.party.rank * len(envs))
        tag = Tag(self._runner.party.steps, self._bucket.number, self._bucket.text)
        self._work.run([*before, *envs], tag)


@dataclass
class _Step:
    """What is agreed on for the step that runs.

    Args:
        first: samples of the batch at the trainers before this one.
        total: samples of all trainers.
        ready: whether all trainers have done what can fail.
    """

    first: int = 0
    total: int = 0
    ready: bool = False


class TrainerRunner(LocalRunner):
    """Runs the plans of an engine together with those of other trainers.

    Args:
        strategy: how.
        num_threads: size of the thread pool.
        replicas: the persistable variables.
        label: the program whose runs are counted.
        build_strategy: who the trainers are.
        program: what is run: ``label``, or a copy of it.

    Attributes:
        party: the trainers.
        group: the same, for collectives.

    Raises:
        EnforceNotMet: a device is a GPU, or number, endpoints and id of the trainers do not fit.
    """

    def __init__(
        self,
        strategy: ExecutionStrategy,
        num_threads: int,
        replicas: Replicas,
        label: Program,
        build_strategy: BuildStrategy,
        program: Program,
    ) -> None:
        super().__init__(strategy, num_threads, replicas, label)
        if any(isinstance(place, CUDAPlace) for place in replicas.places):
            raise EnforceNotMet("BuildStrategy.num_trainers > 1 is for CPU devices only")
        self.party = party_for(build_strategy, label)
        self.group: Group
        self._program = program
        self._limit = float(strategy.collective_timeout)
        self._meeting = 0
        self._shared = False
        self._digests: weakref.WeakKeyDictionary[Binding, str] = weakref.WeakKeyDictionary()
        self._step = _Step()
        self._updating = threading.Lock()

    # ---- before steps

    def begin(self) -> None:
        """Meet the others, and begin with the values of trainer 0.

        Raises:
            GangError: somebody did not come.
        """
        with self._together():
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
        found = ((name, scope.find_var(name)) for name in stored)
        values = {
            name: var.value.numpy()
            for name, var in found
            if var is not None and isinstance(var.value, LoDTensor) and var.value._is_initialized()
        }
        spread = self.party.spread(values, self._limit)
        for name, value in spread.items() if self.party.rank else ():
            scope.var(name).get_tensor().set(value)

    def bound(self, binding: Binding) -> Binding:
        """Let the sums of a binding go over all trainers."""
        plan, steps = binding.plan, binding.steps
        buckets = {
            task.id: self._for_all(bucket_of(plan, task, binding.specs))
            for task in plan.tasks
            if task.nodes[0].kind in SUMS
        }
        vars(binding)["steps"] = [
            _instead(task, _Sum(buckets[task.id], self)) if task.id in buckets else bound
            for task, bound in zip(plan.tasks, steps, strict=True)
        ]
        digest = hashlib.sha256(repr([b.sums for b in buckets.values()]).encode())
        self._digests[binding] = digest.hexdigest()
        return binding

    def _for_all(self, bucket: Bucket) -> Bucket:
        """The sums of a task for the replicas of all trainers."""
        count = len(self._replicas.places)

        def everywhere(devices: Sequence[int]) -> tuple[int, ...]:
            return tuple(t * count + d for t in range(self.party.size) for d in devices)

        sums = (
            replace(s, sources=everywhere(s.sources), targets=everywhere(s.targets))
            for s in bucket.sums
        )
        return replace(bucket, sums=tuple(sums))

    # ---- steps

    def step(
        self,
        binding: Binding,
        feeds: Feeds,
        shards: Callable[[], list[Shard]],
        merged: bool,
        recording: Recording | None = None,
    ) -> list[Any]:
        """Run a step, see :meth:`LocalRunner.step`.

        Raises:
            GangError: another trainer failed, is gone, or does not answer; the trainers parted,
                and meet again at the next step.
            EnforceNotMet: they do not run the same step; or something is wrong here.
        """
        with self._together():
            self.party.steps += 1
            self._agree(binding, feeds)
            return super().step(binding, feeds, shards, merged, recording)

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """Do what all trainers do; if it fails here, the others are told."""
        with self.party.busy:
            try:
                yield
            except BaseException as error:
                self.party.part(self._farewell(error))
                raise

    def extent(self, samples: Sequence[int]) -> tuple[int, int]:
        """Samples of the batch before those of this trainer, and of all trainers."""
        return self._step.first, self._step.total

    def _agree(self, binding: Binding, feeds: Feeds) -> None:
        """Make sure that all trainers run the same step, and learn how many samples they have."""
        if not all(feeds.samples):
            raise EnforceNotMet(
                f"{self.party.name(self.party.rank)} was fed {sum(feeds.samples)} samples for "
                f"{len(feeds.samples)} replicas: with several trainers each replica needs one"
            )
        run = self._replicas.scope.run_count(self._label)
        own = [run, len(feeds.samples), self._digests[binding], sum(feeds.samples)]
        heard = self.party.tell(own, f"the begin of run {run}", self._limit)
        for rank, words in enumerate(heard):
            for what, mine, theirs in zip(_AGREED, own, words, strict=False):
                if mine != theirs:
                    raise EnforceNotMet(
                        f"{self.party.name(rank)} and {self.party.name(self.party.rank)} must "
                        f"have the same {what}, but they have {theirs} and {mine}"
                    )
        counts = [words[-1] for words in heard]
        self._step = _Step(sum(counts[: self.party.rank]), sum(counts))

    def _code_step(self, binding: Binding, feeds: Feeds) -> None:
        """No step of code: it could not wait for other trainers in its middle."""

    def _run_task(self, plan: Plan, number: int) -> None:
        if number in plan.updates:
            self._gate.begin_updates()
            self._wait_for_all()
        super()._run_task(plan, number)

    def _commit(self, plan: Plan, feeds: Feeds) -> None:
        self._wait_for_all()
        super()._commit(plan, feeds)

    def _wait_for_all(self) -> None:
        """Nothing is overwritten before all trainers have done what can fail."""
        with self._updating:
            if not self._step.ready:
                self.group.barrier(self.party.steps)
                self._step.ready = True

    def _farewell(self, error: BaseException) -> str:
        if isinstance(error, GangError):
            return str(error)
        first = (str(error) or type(error).__name__).strip().splitlines()[0]
        return f"{self.party.name(self.party.rank)} failed at step {self.party.steps}: {first}"


_AGREED = ("number of completed runs", "number of replicas", "gradients (by program and fetches)")


def _instead(task: Task, call: _Sum) -> list[Step]:
    """The steps of a task that adds up: its first node does the work of all."""
    return [Step(node, _nothing if index else call) for index, node in enumerate(task.nodes)]


def _nothing(envs: Sequence[Env]) -> None:
    """What remains to do for the other nodes."""
