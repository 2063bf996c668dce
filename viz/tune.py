"""`dpexec.viz.tune`: the strategies that were tried, and code that sets the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

from dpexec.viz.pages.page_data import FigureData, SectionData, StackData, TableData, TextData
from dpexec.viz.pages.units import counted, percent, seconds_text, spread_text, wrapped
from dpexec.viz.pages.view import View
from dpexec.viz.tune_svg import render
from dpexec.viz.tuning.confidence import Sure
from dpexec.viz.tuning.search import FINAL_PAIRS, Found, Search, Tried
from dpexec.viz.tuning.trial import Subject, untouched

from dpexec.engine.core.scope import Scope

_ROWS = 20
_MUCH = 0.9
"""After an improvement to this share of the old time, other settings may help, too."""


class Tuning(View):
    """The settings that were tried, with their results.

    Args:
        step: Seconds of a step with the user's settings.
        tried: The settings.
        found: The best setting, measured in fresh runs; None if none was faster.
        acting: Types of operators that have side effects, in trials, too.

    Attributes:
        lines: Code for the user's script; empty if nothing is faster beyond noise.

    Example:
        >>> from dpexec import viz
        >>> found = viz.tune(replicas, feed)  # doctest: +SKIP
        >>> found.lines  # doctest: +SKIP
        ['build_strategy.fuse_all_optimizer_ops = True']
    """

    def __init__(
        self, step: float, tried: Sequence[Tried], found: Found | None, acting: Sequence[str] = ()
    ) -> None:
        self.step, self.found, self._acting = step, found, acting
        self.tried = _ranked(tried)
        self.is_better = found is not None and found.is_better
        self.lines = _lines(found.setting.lines()) if found and self.is_better else []
        self.title = f"Tuned · {self._result()}"

    def _result(self) -> str:
        if self.found is None or not self.is_better:
            return f"nothing is faster beyond noise than a step of {seconds_text(self.step)}"
        before, after = self.found.before, self.found.after
        return (
            f"step {seconds_text(before.median)}{spread_text(before.spread)} → "
            f"{seconds_text(after.median)}{spread_text(after.spread)}, {_change(self.found.ratio)}"
        )

    @property
    def notes(self) -> list[str]:
        """Sentences that explain the figures."""
        ran = sum(one.ratio is not None for one in self.tried)
        notes = [
            f"{counted(len(self.tried), 'setting')}, of which {ran} ran: each in turns with what "
            "is set now, on a copy of the state. Parameters, random numbers and loaders are as "
            "before. The ratio of both is given with the interval that holds it in 19 of 20 cases."
        ]
        if self.found is not None and not self.is_better:
            notes.append(
                f"{self.found.setting} seemed faster, and was not, or hardly, when it was set up "
                f"and ran again: {_ratio(self.found.ratio)}."
            )
        if self.found is not None and self.is_better:
            same = "Both had the same results, bit for bit"
            if not self.found.same:
                same = "Results differ: by rounding, or since unseeded operators drew other numbers"
            notes.append(f"{same}.")
            notes.append(
                f"Both ran in turns, {counted(FINAL_PAIRS, 'time')}. The saving is the median over "
                f"these pairs, {_ratio(self.found.ratio)}, and not that of the two medians."
            )
            if self.found.ratio.median < _MUCH:
                notes.append("Tune once more with this set: now other settings may help, too.")
        if self._acting:
            notes.append(f"Trials ran {', '.join(self._acting)} as well.")
        return notes

    @cached_property
    def svg(self) -> str:
        """The settings with their ratios as an SVG document."""
        return render(self.title, [*self.notes, *self._paste()], self.tried)

    def _paste(self) -> list[str]:
        return ["To set it:", *self.lines] if self.lines else []

    def payload(self) -> StackData:
        """Return what the interactive page draws."""
        figures: list[FigureData] = []
        if self.found is not None and self.is_better:
            for label, typical in (("before", self.found.before), ("after", self.found.after)):
                hint = spread_text(typical.spread).strip()
                value = typical.median
                figures.append({"label": label, "value": value, "unit": "seconds", "hint": hint})
        sections: list[SectionData] = [{"heading": "Step", "figures": figures}] if figures else []
        if self.lines:
            sections.append({"heading": "To set it", "code": self.lines})
        text: TextData = {
            "type": "text",
            "title": self.title,
            "notes": self.notes,
            "sections": sections,
        }
        table: TableData = {
            "type": "table",
            "title": "Settings",
            "notes": [],
            "columns": [
                {"label": "setting", "unit": "text"},
                {"label": "forecast", "unit": "text"},
                {"label": "step", "unit": "ratio"},
                {"label": "at least", "unit": "ratio"},
                {"label": "at most", "unit": "ratio"},
                {"label": "verdict", "unit": "text"},
            ],
            "rows": [_cells(one) for one in self.tried],
            "file": "settings.csv",
        }
        views = [text, table]
        return {"type": "stack", "title": self.title, "notes": [], "views": views}

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        found = None
        if self.found is not None:
            found = {
                "setting": {n: str(value) for n, value in self.found.setting.fields.items()},
                "before": asdict(self.found.before),
                "after": asdict(self.found.after),
                "ratio": asdict(self.found.ratio),
                "same_bits": self.found.same,
                "is_better": self.is_better,
            }
        tried = [one.to_json() for one in self.tried]
        return {"step": self.step, "found": found, "lines": self.lines, "tried": tried}

    def __str__(self) -> str:
        lines = [*wrapped(self.title, *self.notes), ""]
        shown = self.tried[:_ROWS]
        width = max((len(str(one.setting)) for one in shown), default=0)
        for one in shown:
            lines.append(f"{one.setting!s:<{width}}  {forecast_text(one):>14}  {result_text(one)}")
        if len(self.tried) > _ROWS:
            lines.append(f"and {len(self.tried) - _ROWS} more")
        if self.lines:
            lines += ["", "To set it:", "", *self.lines]
        return "\n".join(lines)


def _ranked(tried: Sequence[Tried]) -> tuple[Tried, ...]:
    """The settings that ran, fastest first, then the rest."""
    ran = [one for one in tried if one.ratio is not None]
    ran.sort(key=lambda one: one.ratio.median if one.ratio else 1.0)
    return (*ran, *(one for one in tried if one.ratio is None))


def _lines(changes: Sequence[str]) -> list[str]:
    """The lines, after those that create the strategies they set."""
    made = []
    for variable, name in (
        ("build_strategy", "BuildStrategy"),
        ("execution_strategy", "ExecutionStrategy"),
    ):
        if any(line.startswith(variable) for line in changes):
            made.append(f"{variable} = fluid.{name}()  # or yours, as it was set before")
    return [*made, *changes]


def _change(ratio: Sure) -> str:
    return f"{percent(abs(1 - ratio.median))} {'shorter' if ratio.median < 1 else 'longer'}"


def _ratio(ratio: Sure) -> str:
    return f"×{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def forecast_text(one: Tried) -> str:
    """Return the expected saving by a setting, in a few words."""
    saved = one.forecast.saved
    if saved is None:
        return "no model"
    if one.forecast.basis == "at most":
        return f"at most −{percent(max(0.0, saved))}"
    return f"{'−' if saved > 0 else '+'}{percent(abs(saved))}" if saved else "as now"


def result_text(one: Tried) -> str:
    """Return the result of a setting in words."""
    if one.ratio is None:
        return f"{one.verdict}: {one.reason}"
    return f"{_ratio(one.ratio)}  {one.verdict}"


def _cells(one: Tried) -> list[str | float | None]:
    ratio = one.ratio
    figures = (ratio.median, ratio.low, ratio.high) if ratio else (None, None, None)
    verdict = f"{one.verdict}: {one.reason}" if one.reason else one.verdict
    return [str(one.setting), forecast_text(one), *figures, verdict]


def tune(
    replicas: Any,
    feed: Any,
    fetch_list: Any = None,
    *,
    scope: Scope | None = None,
    seconds: float = 60.0,
    rounding: bool = False,
    progress: bool = True,
) -> Tuning:
    """Try strategies for a program, and report which is faster.

    Modes of aggregation, passes, sizes of buckets, threads, schedulers and granularity are judged
    by simulation and replays of some recorded steps. Promising settings run in turns with the
    current ones. All trials work on copies: parameters, counters of random numbers and strategies
    do not change.

    Args:
        replicas: A ParallelExecutor or a data-parallel CompiledProgram on devices of this process.
        feed: A batch, as `run` takes it.
        fetch_list: Variables to fetch; None for the loss.
        scope: Scope of the variables, for a CompiledProgram that has not run; None for the global
            scope.
        seconds: Time limit after which no further setting is tried.
        rounding: Whether to try settings that change results by rounding, too.
        progress: Show a bar.

    Returns:
        A view: `print` it; its `lines` set the faster strategy.

    Raises:
        TypeError: `replicas` is neither an executor nor a compiled program.
        ValueError: The program runs on a cluster, trains with other processes, writes files, or
            needs a feed.
        EnforceNotMet: It cannot run: variables have no values, or the batch does not fit.

    Example:
        >>> from dpexec import viz
        >>> found = viz.tune(replicas, feed, seconds=30)  # doctest: +SKIP
        >>> print(found)  # doctest: +SKIP
        >>> found.save("tuned.html")  # doctest: +SKIP
    """
    subject = Subject.of(replicas, feed, fetch_list, scope, loads=False)
    return tuned(subject, seconds, rounding, progress)


def tuned(subject: Subject, seconds: float, rounding: bool, progress: bool) -> Tuning:
    """Try strategies for a subject, see `tune`."""
    from tqdm import tqdm  # imported when it is used; tqdm.auto would warn in notebooks

    search = Search(subject, seconds, rounding)
    with untouched(), tqdm(unit="setting", disable=not progress) as bar:
        for at in search:
            bar.total = at.total
            bar.set_description_str(at.text)
            bar.update(at.done - bar.n)
    return Tuning(search.step, search.tried, search.found, subject.acting)
