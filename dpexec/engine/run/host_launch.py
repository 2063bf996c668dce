"""Tasks on processors: a task has run when its call returns."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.bindings.recording import Recording
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import run_steps
from dpexec.engine.run.fetch import fetched_of

__all__ = ["HostLaunch"]


class HostLaunch:
    """Runs tasks on the thread that asks for them."""

    def step(self, recording: Recording | None) -> AbstractContextManager[None]:
        """Around a step, see :meth:`Launch.step`."""
        return contextlib.nullcontext()

    def feed(self, plan: Plan, device: int, values: dict[str, Any]) -> dict[str, Any]:
        """The feed of a device, unchanged."""
        return values

    def run(
        self, binding: Binding, number: int, envs: Sequence[Env], recording: Recording | None
    ) -> None:
        """Run a task, see :meth:`Launch.run`."""
        if recording is None:
            run_steps(binding.steps[number], envs)
        else:
            recording.run(number, envs, run_steps)

    def copy(self, device: int, value: Any) -> Any:
        """A copy of a value."""
        return value.copy()

    def fetch(
        self, plan: Plan, envs: Sequence[Env], merged: bool, recording: Recording | None
    ) -> list[Any]:
        """Copies of the fetches, see :meth:`Launch.fetch`."""
        return fetched_of(plan, envs, merged)
