"""Runs tasks on GPUs in pieces: some as CUDA graphs, the steps between them one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import Step
from dpexec.engine.core.places import CUDAPlace
from dpexec.engine.core.ranges import Check
from dpexec.engine.gpu.checks import Checks
from dpexec.engine.gpu.graphs import GraphPiece, Pieces, pieces_of

__all__ = ["CapturedTasks"]


class CapturedTasks:
    """Runs tasks with CUDA graphs, if their plan allows them.

    Args:
        moving: whether variables have new addresses at every step, see :func:`pieces_of`.
    """

    def __init__(self, moving: bool = False) -> None:
        self._moving = moving
        self._pieces: WeakKeyDictionary[Binding, dict[int, Pieces]] = WeakKeyDictionary()

    def run(
        self,
        binding: Binding,
        number: int,
        envs: Sequence[Env],
        checks: Checks,
        usual: Callable[[Sequence[Step]], None],
    ) -> None:
        """Run a task on the current stream; its checks are complete before its updates begin.

        Args:
            binding: the binding of the plan.
            number: number of the task.
            envs: the values, per device.
            checks: pending checks of the step; checks of this task are added.
            usual: runs steps that are not in a graph.
        """
        plan, device = binding.plan, binding.plan.tasks[number].device
        if not plan.captured or plan.tasks[number].is_collective or device is None:
            usual(binding.steps[number])
            return
        place = plan.graph.places[device]

        def begin(check: Check, step: Step, inputs: Env) -> None:
            assert isinstance(place, CUDAPlace)
            checks.begin(check, place, step, inputs)

        known = self._pieces.setdefault(binding, {})
        if number not in known:
            known[number] = pieces_of(plan, device, binding.steps[number], self._moving)
        fixed: dict[str, Any] = {}
        for piece in known[number]:
            if isinstance(piece, GraphPiece):
                if piece.updates:
                    checks.look()
                piece.run(envs[device], usual, fixed, begin)
            else:
                usual(piece)
