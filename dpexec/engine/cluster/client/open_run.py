"""A run that is ordered but not completed: its outcome is still awaited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from dpexec.engine.cluster.client.step_outcome import count_made
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet, mistake_behind
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.run.fetch import Later, collect

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.binding_registry import News
    from dpexec.engine.cluster.client.step_outcome import BoundBatch, StepOutcome, StepRequest
    from dpexec.engine.compile.bindings.binding import Binding
    from dpexec.engine.trace.live import Counter

__all__ = ["OpenRun", "may_come_later", "raising"]


@dataclass
class OpenRun:
    """A run whose steps have been ordered.

    Args:
        wanted: its steps.
        numbers: the numbers of the steps.
        news: what workers were told of their bindings.
        counter: counts steps; None: nothing does.
        finish: waits for the outcome of the order.
        settle: calls ``finish``, and stores the outcome here.

    Attributes:
        outcome: the outcome; None: it is still to come.
        error: why the run ended early.
        late: an error that came when all steps were made.
    """

    wanted: Sequence[StepRequest]
    numbers: range
    news: News
    counter: Counter | None
    finish: Callable[[], StepOutcome]
    settle: Callable[[], None]
    outcome: StepOutcome | None = None
    error: BaseException | None = None
    late: BaseException | None = None
    _results: list[Any] | None = None

    @property
    def steps(self) -> list[BoundBatch]:
        """Its steps, as the user ordered them."""
        return [(wanted.binding, wanted.feeds) for wanted in self.wanted]

    def wait(self, noted: Callable[[StepOutcome, range, News], StepOutcome]) -> None:
        """Wait for the outcome now; if the run ended early, ``settle`` will find out why.

        Args:
            noted: notes how many steps are complete.
        """
        try:
            made = self.finish()
            if made.error is None:
                self.outcome = noted(made, self.numbers, self.news)
            else:
                self.finish = lambda: made
        except BaseException as failed:  # also an interrupt: ``settle`` meets it again
            self.finish = partial(raising, failed)
        if self.outcome is not None and self.counter is not None:
            count_made(self.counter, self.steps, len(self.wanted), self.results())

    def fetches(self) -> list[Later]:
        """The fetches of the last step, which wait for the outcome when they are read."""
        return [Later(partial(self._result, i)) for i in range(len(self._plan.fetch))]

    def _result(self, index: int) -> Any:
        return self.results()[index]

    def results(self) -> list[Any]:
        """The fetches of the last step; waits for the outcome.

        Raises:
            EnforceNotMet: an operator failed in this run.
            ClusterError: workers were lost that cannot be replaced.
        """
        if self._results is None:
            if self.outcome is None and self.error is None:
                self.settle()
            made, plan = self._without_error(), self._plan
            self._results = collect(made.fetched, plan.fetch, plan.sources, True)
        return self._results

    def taken(self) -> StepOutcome:
        """The outcome; raises the error of the run, if there is one."""
        made = self._without_error()
        if self.late is not None:
            raise self.late
        return made

    def _without_error(self) -> StepOutcome:
        if isinstance(self.error, EnforceNotMet):  # its text says all, our traceback adds nothing
            raise self.error.with_traceback(None) from mistake_behind(self.error)
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome

    @property
    def _plan(self) -> Any:
        return self.wanted[-1].binding.plan


def raising(error: BaseException) -> NoReturn:
    """Raise an error.

    Args:
        error: the error.
    """
    raise error


def may_come_later(binding: Binding) -> bool:
    """Whether a step fetches only arrays, for which :class:`Later` can stand."""
    specs, plan = binding.specs, binding.plan
    fetched = zip(plan.fetch, plan.sources, strict=True)
    found = [[specs[d][n].kind for d in held if n in specs[d]] for n, held in fetched]
    return all(set(kinds) == {VarType.LOD_TENSOR} for kinds in found)
