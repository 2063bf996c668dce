"""Who looks at the steps of an engine while they are made: recorders, and watchers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpexec.trace import live, profile
from dpexec.trace.recorder import Recorder

if TYPE_CHECKING:
    from dpexec.runtime.binding import Binding
    from dpexec.runtime.engine import Engine
    from dpexec.runtime.feeds.splitting import Feeds

__all__ = ["Observers"]


class Observers:
    """Those that are told of an engine's steps.

    Args:
        recorder: keeps all steps; None: ``ExecutionStrategy.trace`` is off.
    """

    def __init__(self, recorder: Recorder | None) -> None:
        self.recorder = recorder
        self._watchers: Sequence[live.Watcher] = ()
        self._samplers: list[Recorder] = []

    def begin(self, engine: Engine, binding: Binding) -> None:
        """Tell watchers that a step begins, which they may want to have recorded.

        Args:
            engine: whose step it is.
            binding: what runs.
        """
        self._watchers = live.watchers()
        for watcher in self._watchers:
            recorder = watcher.begin(engine, binding)
            if recorder is not None:
                self._samplers.append(recorder)

    def end(self, engine: Engine, feeds: Feeds, results: Sequence[Any] | None) -> None:
        """Tell watchers that the step is over that began last.

        Args:
            engine: whose step it was.
            feeds: on what it ran.
            results: what it gave; None: it failed.
        """
        self._samplers.clear()
        for watcher in self._watchers:
            watcher.end(engine, feeds.samples, results)

    def end_all(
        self,
        engine: Engine,
        steps: Sequence[tuple[Binding, Feeds]],
        done: int,
        results: Sequence[Any] | None,
    ) -> None:
        """Tell watchers, who know that the first step began, of steps that workers made together.

        Args:
            engine: whose steps they are.
            steps: what was to run, on what.
            done: how many steps are complete.
            results: what the last one gave; None: a step failed.
        """
        self._samplers.clear()
        for index, (binding, feeds) in enumerate(steps[: done + (results is None)]):
            unknown = [None for _ in binding.plan.fetch]
            for watcher in self._watchers:
                if index:
                    watcher.begin(engine, binding)
                last = results is not None and index == done - 1
                told = results if last else unknown if index < done else None
                watcher.end(engine, feeds.samples, told)

    @property
    def recorders(self) -> Sequence[Recorder]:
        """Those that want to have the next step recorded: usually nobody, or one."""
        profiler = profile.active()
        if profiler is None and not self._samplers:
            return () if self.recorder is None else (self.recorder,)
        wanted = (self.recorder, profiler, *self._samplers)
        return [recorder for recorder in wanted if recorder is not None]
