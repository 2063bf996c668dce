"""Replicas on GPUs of workers: a worker's replicas use the first GPU that it sees.

dask-cuda starts a worker per GPU, and lets each of them see its own one first. Everything is
enqueued on the null stream, so the tasks of a worker come in order whichever of its threads they
are on. State stays on the GPU; what workers exchange goes through the host.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import get_ident
from typing import TYPE_CHECKING

from dpexec.engine.compile.binding import Binding
from dpexec.engine.compile.compilation import Compilation, require_capability
from dpexec.engine.compile.steps import Env, Step, run_steps
from dpexec.engine.core.places import CUDAPlace, Place, array_module
from dpexec.engine.gpu.captured_tasks import CapturedTasks
from dpexec.engine.gpu.checks import Checks

if TYPE_CHECKING:
    from dpexec.engine.compile.recording import Recording

__all__ = ["Graphs", "require_gpu", "run_timed"]


def require_gpu(spec: Compilation, worker: str) -> None:
    """Refuse a worker that cannot be the home of the replicas of a run.

    Args:
        spec: how program and plans are compiled.
        worker: the address of this one.

    Raises:
        RuntimeError: they are on GPUs, but there is none here; or it cannot round products as
            asked.
    """
    place = spec.places[0]
    if not isinstance(place, CUDAPlace):
        return
    try:
        place = CUDAPlace(place.device_id)  # which looks whether there is such a GPU here
        if spec.planning.rounding:
            require_capability(place, spec.planning.rounding)
    except RuntimeError as error:
        raise RuntimeError(f"replicas are on GPUs, but worker {worker}: {error}") from error


class Graphs:
    """What runs tasks on a worker: with CUDA graphs, if the plan allows them.

    Parameters are elsewhere after every step, as there are two versions of them. So graphs work on
    copies of all that they read.
    """

    def __init__(self) -> None:
        self._captured = CapturedTasks(moving=True)

    def run(self, binding: Binding, number: int, envs: Sequence[Env]) -> None:
        """Run a task; nothing is overwritten before all that can fail has come to its end.

        Args:
            binding: of the plan.
            number: of the task.
            envs: the values, per device.
        """
        checks = Checks()

        def usual(steps: Sequence[Step]) -> None:
            checks.look()
            run_steps(steps, envs)

        self._captured.run(binding, number, envs, checks, usual)
        checks.look()


def run_timed(recording: Recording, number: int, envs: Sequence[Env], place: Place) -> None:
    """Run a task that notes when its operators end; the host waits for each of them on a GPU.

    Args:
        recording: has the steps.
        number: of the task.
        envs: the values, per device.
        place: where it runs.
    """
    if not isinstance(place, CUDAPlace):
        recording.run(number, envs)
        return
    stream = array_module(place).cuda.get_current_stream()
    ends = []

    def run(steps: Sequence[Step], envs: Sequence[Env]) -> None:
        for step in steps:
            run_steps([step], envs)
            stream.synchronize()
            ends.append(time.perf_counter_ns())

    start = time.perf_counter_ns()
    recording.run(number, envs, run)
    recording.correct(number, start, ends, get_ident())
