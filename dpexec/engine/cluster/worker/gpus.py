"""Replicas on GPUs of workers: a worker's replicas use the first GPU that it sees.

dask-cuda starts a worker per GPU, and lets each of them see its own one first. Everything is
enqueued on the null stream, so the tasks of a worker come in order whichever of its threads they
are on. State stays on the GPU; what workers exchange goes through the host.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dpexec.engine.compile.binding import Binding
from dpexec.engine.compile.compilation import Compilation, require_capability
from dpexec.engine.compile.steps import Env, Step, run_steps
from dpexec.engine.core.places import CUDAPlace, Place, array_module
from dpexec.engine.core.ranges import Check
from dpexec.engine.gpu.checks import Checks
from dpexec.engine.gpu.graphs import GraphPiece, pieces_of

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
        self._tasks: WeakKeyDictionary[Binding, dict[int, _CapturedTask]] = WeakKeyDictionary()

    def run(self, binding: Binding, number: int, envs: Sequence[Env]) -> None:
        """Run a task.

        Args:
            binding: of the plan.
            number: of the task.
            envs: the values, per device.
        """
        plan, steps = binding.plan, binding.steps[number]
        device = plan.tasks[number].device
        if not plan.captured or plan.tasks[number].is_collective or device is None:
            run_steps(steps, envs)
            return
        known = self._tasks.setdefault(binding, {})
        if number not in known:
            known[number] = _CapturedTask(binding, device, steps)
        known[number].run(envs)


class _CapturedTask:
    """A task as pieces that are launched as graphs, and steps between them.

    Args:
        binding: that it is of.
        device: where it runs.
        steps: of the task.
    """

    def __init__(self, binding: Binding, device: int, steps: Sequence[Step]) -> None:
        place = binding.plan.graph.places[device]
        assert isinstance(place, CUDAPlace)
        self._place, self._device, self._checks = place, device, Checks()
        self._pieces = pieces_of(binding.plan, device, steps, self._begin, moving=True)

    def run(self, envs: Sequence[Env]) -> None:
        """Run it; nothing is overwritten before all that can fail has come to its end."""
        self._checks = Checks()
        usual = functools.partial(run_steps, envs=envs)
        fixed: dict[str, Any] = {}
        for piece in self._pieces:
            if isinstance(piece, GraphPiece):
                if piece.updates:
                    self._checks.look()
                piece.run(envs[self._device], usual, fixed)
            else:
                self._checks.look()
                usual(piece)
        self._checks.look()

    def _begin(self, check: Check, step: Step, inputs: Env) -> None:
        self._checks.begin(check, self._place, step, inputs)


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
