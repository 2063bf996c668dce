"""Replicas on GPUs of workers: a worker's replicas use the first GPU that it sees.

dask-cuda starts a worker per GPU, and lets each worker see its own GPU first. Everything is
enqueued on the null stream, so the tasks of a worker run in order, whichever thread enqueues them.
State stays on the GPU. Workers exchange values by NCCL (:mod:`dpexec.engine.exchange.nccl`), by UCX
(:mod:`.exports`), or through the host.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.compilation import Compilation, require_capability
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import Step, run_steps
from dpexec.engine.core.copies import copy_on, values_on
from dpexec.engine.core.places import CUDAPlace, Place, array_module
from dpexec.engine.gpu.captured_tasks import CapturedTasks
from dpexec.engine.gpu.checks import Checks
from dpexec.engine.run.fetch import host_copy

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.recording import Recording

__all__ = ["WorkerLaunch", "require_gpu"]


def require_gpu(spec: Compilation, worker: str) -> None:
    """Refuse a worker that cannot be a home of the replicas of a run.

    Args:
        spec: how program and plans are compiled.
        worker: the address of this worker.

    Raises:
        RuntimeError: replicas are on GPUs, but this worker has none; or its GPU cannot round
            products as asked.
    """
    place = spec.places[0]
    if not isinstance(place, CUDAPlace):
        return
    try:
        place = CUDAPlace(place.device_id)  # raises if there is no such GPU here
        if spec.planning.rounding:
            require_capability(place, spec.planning.rounding)
    except RuntimeError as error:
        raise RuntimeError(f"replicas are on GPUs, but worker {worker}: {error}") from error


class WorkerLaunch:
    """Runs tasks on a worker: with CUDA graphs on its GPU, if the plan allows them.

    Parameters lie in another array after every step, as there are two versions of them. So graphs
    work on copies of all values that they read.

    Args:
        place: the device of the worker's replicas.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._captured = CapturedTasks(moving=True)

    def step(self, recording: Recording | None) -> AbstractContextManager[None]:
        """An empty context, see :meth:`Launch.step`: tasks wait for what they enqueue."""
        return contextlib.nullcontext()

    def feed(self, plan: Plan, device: int, values: dict[str, Any]) -> dict[str, Any]:
        """The feed of a replica, on its device."""
        return values_on(self._place, values)

    def run(
        self, binding: Binding, number: int, envs: Sequence[Env], recording: Recording | None
    ) -> None:
        """Run a task, see :meth:`Launch.run`.

        Checks of operators on a GPU are awaited before updates, and at the end of the task. In a
        recorded step the host waits for each operator.
        """
        if recording is None:
            self._run(binding, number, envs)
        elif isinstance(self._place, CUDAPlace):
            self._run_timed(recording, number, envs)
        else:
            recording.run(number, envs)

    def _run(self, binding: Binding, number: int, envs: Sequence[Env]) -> None:
        checks = Checks()

        def usual(steps: Sequence[Step]) -> None:
            checks.look()
            run_steps(steps, envs)

        self._captured.run(binding, number, envs, checks, usual)
        checks.look()

    def _run_timed(self, recording: Recording, number: int, envs: Sequence[Env]) -> None:
        stream = array_module(self._place).cuda.get_current_stream()
        ends = []

        def run(steps: Sequence[Step], envs: Sequence[Env]) -> None:
            for step in steps:
                run_steps([step], envs)
                stream.synchronize()
                ends.append(time.perf_counter_ns())

        start = time.perf_counter_ns()
        recording.run(number, envs, run)
        recording.correct(number, start, ends, get_ident())

    def copy(self, device: int, value: Any) -> Any:
        """A copy of a value, on the device."""
        return copy_on(self._place, value)

    def fetch(
        self, plan: Plan, envs: Sequence[Env], merged: bool, recording: Recording | None
    ) -> list[Any]:
        """The fetches, per device and by name; the client merges them."""
        names, found = plan.fetch, []
        for env in envs:  # loops, as every step comes through here
            own: dict[str, Any] = {}
            for name in names:
                if name in env:
                    value = env[name]
                    own[name] = np.array(value) if type(value) is np.ndarray else host_copy(value)
            found.append(own)
        return found
