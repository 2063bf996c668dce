"""A worker of a cluster: it holds replicas, and runs the tasks that come for them.

The functions run on workers. They get the epoch of the run whose replicas they work on
(:class:`dpexec.engine.cluster.client.runner.ClusterRunner`). When the homes of replicas change,
another epoch begins, and tasks of earlier epochs are refused.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from distributed import get_worker

from dpexec.engine.cluster.messages import BindingKey, Epoch, Feeding, NewBinding, StepOf
from dpexec.engine.cluster.worker.bindings import WorkerBinding
from dpexec.engine.cluster.worker.gpus import WorkerLaunch
from dpexec.engine.cluster.worker.version_store import VersionStore, own_arrays
from dpexec.engine.cluster.worker.versions import StaleTaskError, Versions
from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.bindings.recording import Recording
from dpexec.engine.compile.bindings.records import Marks
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.compile.plans.plan import Plan, PlanKey
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.memory import Memory
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.copies import values_on
from dpexec.engine.core.memory import keep_freed_memory
from dpexec.engine.core.places import CUDAPlace
from dpexec.engine.ir.sizes import Counts
from dpexec.engine.threads.kernel_threads import one_kernel_thread

Kind = Literal["stores", "left", "mirrors", "left_own"]
"""What state of replicas is on a worker, see :class:`HeldState`."""
KINDS: tuple[Kind, ...] = get_args(Kind)


class HeldState:
    """State of a run's replicas on one worker, which need not be able to run them.

    A worker that is closed may leave its state with one that takes no part in the run.

    Args:
        epoch: the present epoch.
        peers: addresses of all workers with replicas.

    Attributes:
        stores: the persistable variables of replicas that live here.
        mirrors: own state of replicas on other workers.
        left: the persistable variables of replicas that lived on closed workers; on the host.
        left_own: own state of replicas, as closed workers had it. It may come when replicas have
            moved already, and steps do not keep it up to date as they do with mirrors.
        running: how many tasks run now.
    """

    def __init__(self, epoch: Epoch, peers: Sequence[str] = ()) -> None:
        self.epoch, self.peers = epoch, peers
        self.stores: dict[int, Versions] = {}
        self.mirrors: dict[int, Versions] = {}
        self.left: dict[int, Versions] = {}
        self.left_own: dict[int, Versions] = {}
        self.running = 0
        self._lock = threading.Lock()

    @property
    def kinds(self) -> Mapping[Kind, Mapping[int, Versions]]:
        """All state: versions by replica, by what they are here."""
        return {
            "stores": self.stores,
            "left": self.left,
            "mirrors": self.mirrors,
            "left_own": self.left_own,
        }

    @contextlib.contextmanager
    def working(self, epoch: Epoch) -> Iterator[None]:
        """Let a task work on the replicas.

        Raises:
            StaleTaskError: the task is of another epoch.
        """
        self.begin_work(epoch)
        try:
            yield
        finally:
            self.end_work()

    def begin_work(self, epoch: Epoch) -> None:
        """Called when a task begins to work, see :meth:`working`."""
        with self._lock:
            if epoch != self.epoch:
                raise StaleTaskError(
                    f"a task of epoch {epoch.number} came in epoch {self.epoch.number}"
                )
            self.running += 1

    def end_work(self) -> None:
        """Called when such a task has ended."""
        with self._lock:
            self.running -= 1


class WorkerReplicas(HeldState):
    """The replicas that live on one worker, with what their steps need.

    Args:
        epoch: the present epoch.
        spec: how program and plans are compiled.
        peers: addresses of all workers with replicas.

    Attributes:
        place: the device of the replicas.
        launch: runs tasks.
    """

    def __init__(self, epoch: Epoch, spec: Compilation, peers: Sequence[str] = ()) -> None:
        import dpexec.engine.ops  # noqa: F401 - the kernels must be registered in this process

        super().__init__(epoch, peers)
        keep_freed_memory()
        self.spec, self.place = spec, spec.places[0]
        self.graph, _ = spec.graph()
        self.launch = WorkerLaunch(self.place)
        self._plans: dict[PlanKey, Plan] = {}
        self._bindings: dict[int, WorkerBinding] = {}
        self._memory = Memory()
        self._envs: list[Env] = []
        self._store = VersionStore(self.stores, -1)
        self._step = -1
        self._recorded = -1
        self._recording: Recording | None = None
        self._done: set[Hashable] = set()

    def bind(self, new: Sequence[NewBinding], kept: Collection[int]) -> None:
        """Bind plans to the shapes of batches, and forget bindings that the client does not keep.

        Args:
            new: the new bindings.
            kept: numbers of all bindings that the client keeps, the new ones among them.
        """
        with self._lock:
            for number in self._bindings.keys() - set(kept):
                del self._bindings[number]
            for told in new:
                if told.plan not in self._plans:
                    self._plans[told.plan] = self.spec.plan(self.graph, told.plan)
                if told.number not in self._bindings:  # told again when workers have joined
                    plan, how = self._plans[told.plan], self.spec
                    binding = Binding(plan, told.specs, how.native, self._memory, how.halves)
                    self._bindings[told.number] = WorkerBinding(binding)
            used = {found.binding.plan.key for found in self._bindings.values()}
            for plan_key in self._plans.keys() - used:
                del self._plans[plan_key]

    def binding(self, key: BindingKey) -> Binding:
        """The binding of a key, with the steps of its tasks."""
        return self._bindings[key.number].of(key.rows, by_task=True)

    def numbered(self, number: int, rows: tuple[Counts, ...]) -> Binding:
        """The binding of a number, without the steps of its tasks.

        Args:
            number: of the binding.
            rows: the numbers of rows of every device's batch, if it leaves them open.
        """
        return self._bindings[number].of(rows)

    def knows(self, number: int) -> bool:
        """Whether a binding is still kept."""
        return number in self._bindings

    def envs(self, plan: Plan, step: StepOf) -> list[Env]:
        """The envs of a step, made by its first task on this worker.

        Raises:
            StaleTaskError: a later step has begun, so tasks of this one must not run any more.
        """
        with self._lock:
            if step.number < self._step:
                raise StaleTaskError(f"a task of step {step.number} came in step {self._step}")
            if step.number > self._step:
                self._step, self._done = step.number, set()
                for versions in self.stores.values():
                    versions.stand_at(step.base)
                self._store = VersionStore(self.stores, step.number)
                self._envs = self._store.envs(plan)
            return self._envs

    def feed(self, env: Env, feeding: Feeding, blocks: Sequence[Any]) -> None:
        """Give a replica its samples and its shard.

        Args:
            env: the values of the replica.
            feeding: its feed.
            blocks: blocks of which parts of the feed are rows.
        """
        env.shard = feeding.shard
        variables = self.graph.program.global_block().vars
        fed = dict(feeding.values)
        for rows in feeding.held:
            fed.update(*rows.batches(blocks))
        kept = {name for name in fed if variables[name].persistable}
        env.update(own_arrays(values_on(self.place, fed), fed, kept))

    def run(self, key: BindingKey, number: int, envs: Sequence[Env], step: int) -> None:
        """Run a task of the plan.

        Args:
            key: of the binding.
            number: of the task.
            envs: the values, per device.
            step: number of the step.

        Raises:
            StaleTaskError: the task ran already.
        """
        binding, recording = self.binding(key), self.recording(step)
        self.once(number)
        plan, device = binding.plan, binding.plan.tasks[number].device
        if device is not None and number in plan.updates:
            self._store.overwrite_on(plan, device, envs[device])
        with one_kernel_thread():
            self.launch.run(binding, number, envs, recording)

    def commit(self, plan: Plan, device: int, env: Env, fed: Sequence[str]) -> None:
        """Store the results of the present step."""
        self._store.commit_on(plan, device, env, fed)

    def record(self, key: BindingKey, step: int) -> None:
        """Note when the tasks of a step run."""
        with self._lock:
            if step > self._recorded:
                self._recorded, self._recording = step, self.binding(key).recording
                self._recording.begin()
                self._recording.begin_tasks()

    def recording(self, step: int) -> Recording | None:
        """The recording of a step; None if it is not recorded."""
        return self._recording if step == self._recorded else None

    def once(self, task: Hashable) -> None:
        """Refuse to do work of the current step twice: updates would be applied twice.

        Args:
            task: number of the task, or another key of the work.

        Raises:
            StaleTaskError: it was done already.
        """
        with self._lock:
            if task in self._done:
                raise StaleTaskError(f"task {task} of step {self._step} was started twice")
            self._done.add(task)


NEVER = -1
"""Number of an epoch that no task has."""

_workers: dict[tuple[str, str], HeldState] = {}
_ended = LimitedCache[str, None](limit_of("ended runs"))
_changing = threading.Lock()  # tasks make room while an event loop takes what others leave


def state_at(token: str, address: str) -> HeldState:
    """The state of a run on the worker of an address, which is in this process.

    Raises:
        StaleTaskError: the worker has none.
    """
    if (token, address) not in _workers:
        raise StaleTaskError(f"worker {address} has no state of run {token}")
    return _workers[token, address]


def replicas_at(token: str, address: str) -> WorkerReplicas:
    """The replicas of a run on the worker of an address, which is in this process.

    Raises:
        StaleTaskError: the worker has none.
    """
    found = state_at(token, address)
    if not isinstance(found, WorkerReplicas):
        raise StaleTaskError(f"worker {address} only keeps state of run {token} for others")
    return found


def runs_at(address: str) -> list[str]:
    """The tokens of the runs that have state on the worker of an address."""
    return [token for token, where in list(_workers) if where == address]


@contextlib.contextmanager
def at_work(epoch: Epoch) -> Iterator[WorkerReplicas]:
    """The replicas of a run on this worker, for a task.

    Raises:
        StaleTaskError: the task is of another epoch.
    """
    replicas = replicas_at(epoch.token, get_worker().address)
    with replicas.working(epoch):
        yield replicas


def keep(replicas: WorkerReplicas, address: str, also_left: bool) -> None:
    """Keep the replicas of a run on a worker.

    Args:
        replicas: the replicas, without state so far.
        address: of the worker.
        also_left: whether to keep also what closed workers left there.
    """
    key = replicas.epoch.token, address
    with _changing:
        if also_left and key in _workers:
            replicas.left |= _workers[key].left
            replicas.left_own |= _workers[key].left_own
        _workers[key] = replicas


def take_over(
    token: str, address: str, left: Mapping[int, Versions], own: Mapping[int, Versions]
) -> None:
    """Keep state that a closed worker hands on, unless a later one is there, or the run has ended.

    Args:
        token: of the run.
        address: of the worker that takes the state.
        left: all variables of replicas.
        own: own state of replicas.
    """
    with _changing:
        if token in _ended:  # nobody would tell this worker again to forget it
            return
        state = _workers.setdefault((token, address), HeldState(Epoch(token, NEVER)))
        for known, found in (state.left, left), (state.left_own, own):
            for device, versions in found.items():
                if device not in state.stores and (
                    device not in known or known[device].step < versions.step
                ):
                    known[device] = versions


def release(token: str, dask_worker: Any) -> None:
    """Forget the state of a run."""
    state = _workers.pop((token, dask_worker.address), None)
    for versions in () if state is None else state.stores.values():
        versions.late = None  # it refers to code, which refers to all versions


def end(token: str, dask_worker: Any) -> None:
    """Forget the state of a run that has ended, also what closed workers are still handing on."""
    with _changing:
        _ended[token] = None
    release(token, dask_worker)


def marks(token: str, key: BindingKey, dask_worker: Any) -> Marks:
    """The meaning of the notes of a recorded step."""
    return replicas_at(token, dask_worker.address).binding(key).recording.marks


# ---- tasks


def bind(epoch: Epoch, step: int, new: Sequence[NewBinding], kept: Collection[int]) -> None:
    """Bind plans of a run to the shapes of batches, see :meth:`WorkerReplicas.bind`."""
    with at_work(epoch) as replicas:
        replicas.bind(new, kept)


def rehearse(epoch: Epoch, step: int, spec: Compilation, new: Sequence[NewBinding]) -> None:
    """Load what a worker needs to make steps, before replicas move to it; the objects are dropped.

    The process then knows programs and kernels, so that moved replicas only wait for their state.

    Args:
        epoch: the present epoch.
        step: number of the last complete step.
        spec: how program and plans are compiled.
        new: bindings that are likely to come.
    """
    if not isinstance(spec.places[0], CUDAPlace):  # it would take memory of a GPU
        WorkerReplicas(epoch, spec).bind(new, [told.number for told in new])
