"""`dpexec.viz.compare`: two runs of the same network, operator by operator."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from dpexec.viz.compare_svg import LONGEST, ROWS, Bar, render
from dpexec.viz.comparing.causes import ENOUGH, Cause, Split, cause_text, split
from dpexec.viz.comparing.changes import change_of, lone_of, per_step
from dpexec.viz.comparing.circumstances import circumstances, located
from dpexec.viz.comparing.figures import ends_text, figures, signed, spread, times_longer
from dpexec.viz.comparing.rewritten import are_related, regrouped
from dpexec.viz.measured.contention import CROWDED, Contention, remaining
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.pages.load import as_trace
from dpexec.viz.pages.page_data import CompareData
from dpexec.viz.pages.units import (
    counted,
    percent,
    room,
    seconds_text,
    shortened,
    signed_percent,
    wrapped,
)
from dpexec.viz.pages.view import View
from dpexec.viz.tuning.rhythm import Rhythm

from dpexec.engine.trace import Trace

_CAUSES = 10
_EQUAL = 0.0005  # of a step; less would be written as 0.0%
_BLAMED = 3
_SHORTEST = 16  # characters of a label that are always printed
_WORTH = 0.03  # of a step; changes between steps that are smaller are not mentioned


@dataclass(frozen=True)
class Gate:
    """The verdict on whether a run is too much slower than another one.

    Args:
        limit: The share of a step by which it may be slower.
        passed: False if it is slower by more than the limit, beyond noise.
        text: The verdict in words, with the causes if it did not pass.
    """

    limit: float
    passed: bool
    text: str


class Comparison(View):
    """Two runs side by side: why steps take longer, and operators, the largest difference first.

    Args:
        before: The first run.
        after: The second run.
        names: Names of the runs.
        steps: For each run, the numbers of the steps to compare; None for all except slow first
            ones.

    Raises:
        ValueError: A trace is empty, or has no such step.

    Example:
        >>> from dpexec import viz
        >>> found = viz.compare("old.json.gz", "new.json.gz")  # doctest: +SKIP
        >>> print(found)  # doctest: +SKIP
        >>> found.save("compare.html")  # doctest: +SKIP
    """

    def __init__(
        self,
        before: Trace,
        after: Trace,
        names: tuple[str, str] = ("before", "after"),
        steps: tuple[Iterable[int] | None, Iterable[int] | None] = (None, None),
    ) -> None:
        runs = self._runs = Schedule(before, steps[0]), Schedule(after, steps[1])
        self.names = names
        self.split: Split = split(runs[0], runs[1])
        self.steps = self.split.before, self.split.after
        self._rhythms = Rhythm.of(runs[0]), Rhythm.of(runs[1])
        self._contention = Contention(runs[0]), Contention(runs[1])
        one, other, self._rewritten = regrouped(*(per_step(run) for run in runs))
        changes = [change_of(one[key], other[key]) for key in one if key in other]
        changes.sort(key=lambda change: (-change.certain, -abs(change.difference)))
        self.changes = tuple(changes)
        self.only_before = lone_of(one, other)
        self.only_after = lone_of(other, one)
        self.title = (
            f"{names[1]} against {names[0]} · step {seconds_text(self.steps[0])} → "
            f"{seconds_text(self.steps[1])}"
        )

    @cached_property
    def svg(self) -> str:
        """The causes and the largest differences as an SVG document."""
        bars = [
            Bar(change.short(LONGEST), change.before, change.after, figures(change))
            for change in self.changes
        ]
        lone = [
            [f"{x.short(LONGEST)}, {seconds_text(x.seconds)}" for x in side]
            for side in (self.only_before, self.only_after)
        ]
        return render(self.title, self.notes, self.names, self.steps, self._falls(), bars, lone)

    @property
    def is_related(self) -> bool:
        """Whether both are runs of one network, judged by their operators."""
        lone = len(self.only_before) + len(self.only_after)
        return are_related(self.changes, lone, self._rewritten)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Why the second run's steps take longer; small causes of one kind are added up.

        Their differences add up to that of the median steps. Unrelated runs have none.
        """
        return self.split.largest(_CAUSES) if self.is_related else ()

    def _falls(self) -> list[Bar]:
        at, found = self.steps[0], []
        for cause in self.causes:
            end = at + cause.difference
            found.append(Bar(cause_text(cause), at, end, spread(cause), not cause.is_noise))
            at = end
        return found

    def gate(self, limit: float) -> Gate:
        """Say whether the second run is slower than the first by more than a share, beyond noise.

        Args:
            limit: The share: 0.03 lets steps be slower by 3%.

        Raises:
            ValueError: They are runs of different networks, or of too few steps to tell noise.
        """
        if not self.is_related:
            raise ValueError(self.notes[0])
        slower, low, high = self.split.slower
        if low is None or high is None:
            least = min(self.split.steps)
            raise ValueError(
                f"{counted(least, 'step')} of a run tell nothing of noise: record {ENOUGH} or "
                "more, better 20, besides first ones that are slower"
            )
        change = f"is {abs(slower):.1%} {'slower' if slower > 0 else 'faster'} than"
        if abs(slower) < _EQUAL:
            change = "is as fast as"
        elif multiple := times_longer(slower):
            change = f"takes {multiple} as"
        about = (
            f"the median step of {self.names[1]} {change} that of {self.names[0]} "
            f"{ends_text(slower, low, high)}"
        )
        most = f"{100 * limit:g}%"
        left, surely_left = remaining(*self._contention)
        busier = self._contention[1].share > self._contention[0].share
        if busier and low > limit >= surely_left:
            return Gate(limit, True, f"{about}. {self._crowded(left)}; record again to be sure")
        longer = self._late(limit)
        if low > limit:
            why = f"{self._blamed()}{'. ' if longer else ''}{self._between if longer else ''}"
            return Gate(limit, False, f"{about}, more than {most}. Why: {why}")
        if longer or self._work(limit):
            text = f"{longer or self._work(limit)} For the rest, {about}"
            return Gate(limit, False, text)
        unsure = "" if slower <= limit else "; it may be more: record more steps to be sure"
        return Gate(limit, True, f"{about}, not more than {most} beyond noise{unsure}")

    def _late(self, limit: float) -> str:
        """A sentence if steps begin later than they may, because of the time between them."""
        one, other = self._rhythms
        longer = self._between if other.between.median > one.between.median else ""
        if not longer or other.each.low <= (1 + limit) * one.each.high:
            return ""
        rhythm = seconds_text(one.each.median), seconds_text(other.each.median)
        begins = f"a step begins every {rhythm[1]}, before every {rhythm[0]}"
        return f"{begins}: more than {100 * limit:g}%. Why: {longer}"

    def _work(self, limit: float) -> str:
        """A sentence if operators alone take longer than a step may, while waits hide it."""
        work, low, high = self.split.work
        crowded = max(run.share for run in self._contention) >= CROWDED
        if crowded or low is None or high is None or low <= limit:
            return ""
        ends = f"({signed_percent(low)} to {signed_percent(high)})"
        longer = f"operators take {work:.1%} of a step longer {ends}"
        return f"{longer}, more than {100 * limit:g}%: {self._blamed()}."

    def _crowded(self, left: float) -> str:
        """How busy the processors were in both runs, and what remains without that."""
        one, other = (percent(run.share) for run in self._contention)
        more = f"are about {percent(abs(left))} {'slower' if left > 0 else 'faster'}"
        if multiple := times_longer(left):
            more = f"take about {multiple}"
        return (
            f"Threads of {self.names[1]} had no processor for {other} of their time, of "
            f"{self.names[0]} for {one}; without that, steps {more}"
        )

    def _blamed(self) -> str:
        """The causes of longer steps that noise does not explain, the largest ones."""
        found = [cause for cause in self.causes if cause.is_certain and cause.difference > 0]
        texts = [f"{cause_text(cause)} {spread(cause)}" for cause in found[:_BLAMED]]
        return ", ".join(texts) or "a little of all"

    @property
    def _between(self) -> str:
        """What changed between the steps, in words; empty if nothing did beyond noise."""
        one, other = (rhythm.between for rhythm in self._rhythms)
        least = _WORTH * self.steps[0]
        if min(rhythm.count for rhythm in self._rhythms) < ENOUGH:
            return ""
        if other.low - one.high < least and one.low - other.high < least:
            return ""
        return (
            f"The time between steps is {seconds_text(other.median)}, before "
            f"{seconds_text(one.median)}. It is no part of a step: batches are read, or the script "
            "works."
        )

    @property
    def notes(self) -> list[str]:
        """Sentences that explain the figures, and the result."""
        before, after = self.steps
        same, all_ = len(self.changes), len(self.changes) + len(self.only_before)
        if not self.is_related:
            return [
                f"These seem to be runs of different networks: of {counted(all_, 'operator')} of "
                f"{self.names[0]} and {same + len(self.only_after)} of {self.names[1]} "
                f"{same} do the same, by what they make and where. Their steps are not compared."
            ]
        order = "Medians over the steps of each run; what noise does not explain comes first."
        if max(self.split.steps) == 1:
            order = "The largest differences come first."
        notes = [order]
        if before:
            share = after / before - 1
            more = "less" if after < before else "more"
            took = times_longer(share) or f"{percent(abs(share))} {more} time"
            took = "as long" if before == after else took
            _, low, high = self.split.slower
            sure_text = ""
            if low is not None and high is not None:
                sure_text = f" {ends_text(share, low, high)}"
            noise = low is not None and high is not None and low <= 0 <= high
            doubt = ", which noise may explain" if noise and before != after else ""
            notes.insert(0, f"A step takes {took}{sure_text}{doubt}.")
        notes[1:1] = circumstances(*self._runs)
        notes += located(self.causes, self.changes, self._runs)
        if self._between:
            notes.insert(0, self._between)
        if max(run.share for run in self._contention) >= CROWDED:
            notes.insert(0, f"{self._crowded(remaining(*self._contention)[0])}.")
        lone = len(self.only_before), len(self.only_after)
        if any(lone):
            notes.append(
                f"Only in {self.names[0]}: {counted(lone[0], 'operator')}; only in "
                f"{self.names[1]}: {lone[1]}."
            )
        return notes

    def payload(self) -> CompareData:
        """Return what the interactive page draws."""
        one, other = (
            {"name": name, "step": step} for name, step in zip(self.names, self.steps, strict=True)
        )
        return {
            "type": "compare",
            "title": self.title,
            "notes": self.notes,
            "sides": (one, other),
            "causes": [
                (cause_text(c), c.difference, spread(c), not c.is_noise, c.nodes)
                for c in self.causes
            ],
            "rows": [(c.label, c.before, c.after, c.nodes) for c in self.changes],
            "unmatched": (
                [lone.label for lone in self.only_before],
                [lone.label for lone in self.only_after],
            ),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "names": list(self.names),
            "steps": list(self.steps),
            "slower": list(self.split.slower),
            "causes": [asdict(cause) for cause in self.causes],
            "changes": [asdict(change) for change in self.changes],
            "only": [[asdict(x) for x in self.only_before], [asdict(x) for x in self.only_after]],
        }

    def __str__(self) -> str:
        lines = [*wrapped(self.title, *self.notes), "", *self._reasons()]
        labels = [change.short(LONGEST) for change in self.changes[:ROWS]]
        width = max(map(len, labels), default=0)
        for change, label in zip(self.changes, labels, strict=False):
            lines.append(f"{label:<{width}}  {figures(change, 9)}")
        lines += _rest(self.changes)
        for name, lone in zip(self.names, (self.only_before, self.only_after), strict=True):
            lines += [
                f"only in {name}: {x.short(LONGEST)}, {seconds_text(x.seconds)}"
                for x in lone[:ROWS]
            ]
            lines += _rest(lone)
        return "\n".join(lines)

    def _reasons(self) -> list[str]:
        """The causes as lines."""
        causes = self.causes
        if not causes:
            return []
        texts = [f"  {spread(cause)}{'  (noise)' if cause.is_noise else ''}" for cause in causes]
        longest = max(_SHORTEST, min(LONGEST, room() - max(map(len, texts))))
        labels = [shortened(cause_text(cause), longest) for cause in causes]
        width = max(map(len, labels))
        rows = [f"{label:<{width}}{said}" for label, said in zip(labels, texts, strict=True)]
        total = self.steps[1] - self.steps[0]
        return [f"Why, of {signed(total)} a step:", *rows, "", "Operators:"]


def _rest(rows: Sequence[Any]) -> list[str]:
    """A line with the number of rows that are not shown, if there are any."""
    return [f"and {len(rows) - ROWS} more"] if len(rows) > ROWS else []


def compare(
    before: Any,
    after: Any,
    *,
    names: Sequence[str] | None = None,
    steps: tuple[int | Iterable[int], int | Iterable[int]] | None = None,
) -> Comparison:
    """Compare two runs of the same network by operator; they may differ in the number of steps.

    Two steps of one run are compared by `viz.compare(replicas, replicas, steps=(3, 2))`: why step 2
    took longer than step 3.

    Args:
        before: A Trace, an executor that recorded one, or the path of a saved one.
        after: The same for the second run.
        names: Names of the runs; None takes the names of files, else "before" and "after", or the
            numbers of two steps.
        steps: For each run, the number of a step, or several; None for all except slow first ones.

    Returns:
        A view: differences beyond noise first; operators without a partner are listed.

    Raises:
        FileError: A file is damaged, empty, or no trace.
        ValueError: Not two names, or a trace has no such step.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import viz
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
        >>> how = fluid.ExecutionStrategy()
        >>> how.trace = True
        >>> two = fluid.CompiledProgram(main).with_data_parallel(
        ...     loss.name, exec_strategy=how, places=fluid.cpu_places(2)
        ... )
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     for step in range(3):
        ...         _ = exe.run(two, feed={"x": np.ones([4, 2], "float32")}, fetch_list=[loss])
        >>> verdict = viz.compare(two, two)  # before and after a change, say
        >>> isinstance(verdict, viz.Comparison)
        True
    """
    if names is None and steps is not None and all(isinstance(each, int) for each in steps):
        names = [f"step {each}" for each in steps]
    if names is None:
        names = _names((before, after))
    if len(names) != 2:
        raise ValueError(f"compare takes two names, not {len(names)}")
    one, other = ([each] if isinstance(each, int) else each for each in steps or (None, None))
    return Comparison(as_trace(before), as_trace(after), (names[0], names[1]), (one, other))


def _names(sources: Iterable[Any]) -> list[str]:
    paths = [os.path.basename(s) if isinstance(s, (str, os.PathLike)) else None for s in sources]
    found = [
        str(path) if path is not None else default
        for path, default in zip(paths, ("before", "after"), strict=True)
    ]
    return found if found[0] != found[1] else ["before", "after"]
