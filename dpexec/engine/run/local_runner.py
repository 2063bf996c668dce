"""Steps of a plan in this process: envs, tasks on a scheduler, and what is stored at the end."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dpexec.engine.compile.binding import Binding
from dpexec.engine.compile.plan import Plan
from dpexec.engine.compile.recording import Recording
from dpexec.engine.compile.replicas import Replicas
from dpexec.engine.compile.steps import Env, Shard, Step, run_steps
from dpexec.engine.core.copies import with_arrays
from dpexec.engine.core.interrupts import Uninterrupted
from dpexec.engine.core.kept import Kept
from dpexec.engine.core.places import available_cpus
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.program import Program
from dpexec.engine.run.fetch import collect
from dpexec.engine.run.local_scheduler import LocalGraph, LocalScheduler, inline
from dpexec.engine.strategy.strategies import ExecutionStrategy
from dpexec.engine.threads.interrupts import InterruptGate

if TYPE_CHECKING:
    from dpexec.engine.compile.code.notes import CodeNotes
    from dpexec.engine.compile.code.step import CodeStep
    from dpexec.engine.compile.code.sums import Joined
    from dpexec.engine.threads.crew import Crew
    from dpexec.engine.trace.live import Keeper

__all__ = ["LocalRunner"]

_GRAPHS_KEPT = 32  # of dask, for plans


class LocalRunner:
    """Runs the plans of an engine on threads of this process.

    Args:
        strategy: how; None runs all tasks on the calling thread, one after another.
        num_threads: size of the thread pool; 0: the calling thread does everything.
        replicas: the persistable variables.
        label: the program whose runs are counted.

    Attributes:
        envs: the values of the latest step, per device; none after they were dropped.
        binding: what ran in the latest step.
    """

    def __init__(
        self,
        strategy: ExecutionStrategy | None,
        num_threads: int,
        replicas: Replicas,
        label: Program,
    ) -> None:
        self._strategy = strategy
        self._num_threads = num_threads
        self._replicas = replicas
        self._label = label
        self._code: weakref.WeakKeyDictionary[Binding, CodeStep | None]
        self._code = weakref.WeakKeyDictionary()
        self._recorders: tuple[Keeper, ...] = ()
        self._recording: Recording | None = None  # of a step whose tasks run one by one
        self._gate = InterruptGate()
        self.envs: list[Env] = []
        self.binding: Binding | None = None
        self._joined: Sequence[Joined] = ()
        self._graphs: Kept[tuple[Plan, bool], LocalGraph] = Kept(_GRAPHS_KEPT)
        self._crews: dict[int, Crew] = {}

    def step(
        self,
        binding: Binding,
        feeds: Feeds,
        shards: Callable[[], list[Shard]],
        merged: bool,
        recorders: tuple[Keeper, ...] = (),
    ) -> list[Any]:
        """Run a step.

        Args:
            binding: what runs.
            feeds: what the devices are fed.
            shards: gives every device's part of the run.
            merged: how to return fetches, see :func:`collect`.
            recorders: are to keep when tasks and operators ran.

        Returns:
            The fetches.

        Raises:
            EnforceNotMet: something is wrong; no variable has changed.
        """
        self.binding, self._recorders, self._joined = binding, recorders, ()
        binding.runs += 1
        code = self._code_step(binding, feeds)
        results = None if code is None else self._run_code(code, feeds, shards, merged)
        if results is not None:
            return results
        if not recorders:
            return self._run_tasks(binding, feeds, shards(), merged)
        self._recording = binding.recording
        try:
            self._recording.begin()
            results = self._run_tasks(binding, feeds, shards(), merged)
            self._recording.end(recorders)
        finally:
            self._recording = None
        return results

    @property
    def joined_bytes(self) -> int | None:
        """How many bytes of sparse values the latest step added up; None: nobody knows."""
        if self.binding is None:
            return None
        in_code = sum(int(joined.number[0]) * joined.row_bytes for joined in self._joined)
        return in_code + sum(sum(env.joined.values()) for env in self.envs)

    # ---- what is different when several processes train together

    def begin(self) -> None:
        """Called before the batches of a run are bound."""

    def ready(self, binding: Binding, feeds: Feeds) -> Binding:
        """Called with what was bound for each batch; gives what runs."""
        return binding

    def extent(self, samples: Sequence[int]) -> tuple[int, int]:
        """Samples of the batch before those of this process, and of all processes.

        Args:
            samples: per device.
        """
        return 0, sum(samples)

    # ---- tasks, one by one

    def _run_tasks(
        self, binding: Binding, feeds: Feeds, shards: Sequence[Shard], merged: bool
    ) -> list[Any]:
        plan = binding.plan
        _ = binding.steps  # bound here, before tasks of several threads ask for it
        self.envs = self._make_envs(plan, feeds, shards)
        if self._recording is not None:
            self._recording.begin_tasks()
        with InterruptGate() as self._gate:
            for env in self.envs:
                env.go_on = self._gate.begin_task
            try:
                results = self._schedule(plan, merged)
            except BaseException:
                self.envs = []
                raise
            self._gate.begin_updates()
            self._commit(plan, feeds)
            self._replicas.scope.count_run(self._label)
        return results

    def _make_envs(self, plan: Plan, feeds: Feeds, shards: Sequence[Shard]) -> list[Env]:
        replicas = self._replicas
        envs = []
        fed = feeds.private(replicas.shared)
        for device, (shard, values) in enumerate(zip(shards, fed, strict=True)):
            found = ((name, replicas.value(device, name)) for name in plan.reads[device])
            stored = {name: value for name, value in found if value is not None}
            envs.append(plan.make_env(shard, {**stored, **self._placed(plan, device, values)}))
        return envs

    def _placed(self, plan: Plan, device: int, values: dict[str, Any]) -> dict[str, Any]:
        """What a device is fed, where the device can use it."""
        return values

    def _schedule(self, plan: Plan, merged: bool) -> list[Any]:
        def run_task(number: int) -> None:
            self._run_task(plan, number)

        def fetch() -> list[Any]:
            if self._recording is None:
                return self._collect(plan, merged)
            start = time.perf_counter_ns()
            results = self._collect(plan, merged)
            self._recording.note("Fetch", "fetch", start)
            return results

        if self._strategy is None:
            return inline(plan, run_task, fetch)
        key = plan, merged
        if key not in self._graphs:
            self._graphs[key] = LocalGraph(plan, run_task, fetch)
        self._gate.between_tasks = self._scheduler.caller_works
        return self._scheduler.run(self._graphs[key])

    def _collect(self, plan: Plan, merged: bool) -> list[Any]:
        """The fetches, on the host."""
        for device, name, home in plan.fetched_elsewhere:
            self.envs[device][name] = self.envs[home][name]
        return collect(self.envs, plan.fetch, plan.active, merged)

    @functools.cached_property
    def _scheduler(self) -> LocalScheduler:
        assert self._strategy is not None
        return LocalScheduler(self._num_threads, self._strategy.use_experimental_executor)

    def _run_task(self, plan: Plan, number: int) -> None:
        assert self.binding is not None
        self._gate.begin_task()
        if number in plan.updates:
            self._gate.begin_updates()
        if self._recording is None:
            self._run_steps(self.binding.steps[number], self.envs)
        else:
            self._recording.run(number, self.envs, self._run_steps)

    def _run_steps(self, steps: Sequence[Step], envs: Sequence[Env]) -> None:
        """Run the steps of a task."""
        run_steps(steps, envs)

    def _commit(self, plan: Plan, feeds: Feeds) -> None:
        replicas = self._replicas
        reads = enumerate(plan.reads) if plan.commits else ()
        held = {id(_memory(self.envs[d].get(name))) for d, names in reads for name in names}
        for device, name in plan.commits:
            value = self.envs[device].get(name)
            if value is None:
                continue
            memory = _memory(value)
            if not hasattr(memory, "dtype"):  # an array of tensors, which shares them with others
                value = with_arrays(value, functools.partial(self._copy, device))
            elif getattr(memory, "base", None) is not None or id(memory) in held:
                value = self._copy(device, value)  # two variables must never share memory
            held.add(id(_memory(value)))
            replicas.commit(device, name, value)
        shared = replicas.shared
        done = {name if shared else (device, name) for device, name in plan.commits}
        for device, env in enumerate(self.envs[:1] if shared else self.envs):
            for name in feeds.persistable & env.keys():
                if (name if shared else (device, name)) not in done:
                    replicas.commit(device, name, self._copy(device, env[name]))
        replicas.written(plan.written | feeds.persistable)

    def _copy(self, device: int, value: Any) -> Any:
        """A copy of a value of a device."""
        return value.copy()

    # ---- whole steps of code

    def _code_step(self, binding: Binding, feeds: Feeds) -> CodeStep | None:
        """The code of a whole step, made when shapes come again; None: its tasks run singly."""
        usual = self._strategy is None or self._scheduler.caller_works
        again = binding.runs > 1 or binding.rows  # sizes that are left open rarely come twice
        if not again or feeds.persistable or not binding.native or not usual:
            return None
        home = binding.opened or binding
        if home not in self._code:
            from dpexec.engine.compile.code.step import code_step

            self._code[home] = code_step(binding, feeds, self._crew(binding.plan).size)
        code = self._code[home]
        if code is not None and binding.rows:
            code.resize(binding)
        return code

    def _crew(self, plan: Plan) -> Crew:
        """As many threads as find something to do."""
        size = min(self._most_threads, plan.width)
        if size not in self._crews:
            from dpexec.engine.threads.crew import Crew

            threads = None if self._strategy is None else self._scheduler.threads
            self._crews[size] = Crew(threads, size)
        return self._crews[size]

    @functools.cached_property
    def _most_threads(self) -> int:
        """How many may work at once: to ask the system in every step would make small ones dear."""
        return 1 if self._strategy is None else min(self._num_threads, available_cpus())

    def _run_code(
        self, code: CodeStep, feeds: Feeds, shards: Callable[[], list[Shard]], merged: bool
    ) -> list[Any] | None:
        """Run a step of code; None if it cannot, or refused its values: its tasks will say why."""
        replicas, crew = self._replicas, self._crew(code.plan)
        notes = code.notes
        if self._recorders is not (() if notes is None else notes.recorders):
            notes = self._make_room(code, crew)
        began = 0 if notes is None else time.perf_counter_ns()
        held = code.bring(feeds, replicas)  # until the end of the run
        if held is None:
            return None
        if code.needs_numbers:
            code.number(shards())
        try:
            with Uninterrupted():  # code ends by itself, and the step is whole
                if not crew.run(code.schedule):
                    code.note(None)
                    code.check_begun()
                    return None
                self.envs, self._joined = code.results(feeds, replicas), code.joined
                results = collect(self.envs, code.plan.fetch, code.plan.active, merged)
                code.commit(replicas)
                replicas.scope.count_run(self._label)
        except BaseException:
            code.note(None)  # what comes next is noted over what this step noted
            raise
        if notes is not None:
            notes.add(began, time.perf_counter_ns())
        return results

    def _make_room(self, code: CodeStep, crew: Crew) -> CodeNotes | None:
        """Let runs of code note something for other recorders, or where there is room."""
        assert self.binding is not None
        code.note(None)
        if not self._recorders:
            return None
        notes = self.binding.recording.room(code, crew)
        notes.follow(self._recorders)
        code.note(notes)
        return notes


def _memory(value: Any) -> Any:
    """The array that the numbers of a value are in."""
    return value.value if isinstance(value, SelectedRows) else value
