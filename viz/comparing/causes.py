"""Why the steps of one run take longer than those of another: causes that add up exactly.

The median step of a run is divided into parts in proportion to the middle half of its steps
(`step_parts`). So the parts add up to the median, and differences of parts to the difference of the
medians. The cause of an operator is its longer duration, and with it the longer waits of other
threads for it. If threads had to wait for each other more often, for a thread or for Python, that
is a separate cause. The variation of each cause is estimated by drawing steps repeatedly
(bootstrap).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from dpexec.viz.comparing.gathering import Ends, Gathering
from dpexec.viz.comparing.rewritten import alike, find_rewritten, is_unit
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.step_parts import (
    BEHIND,
    Behind,
    Divider,
    LateOn,
    Part,
    PartKind,
    StepParts,
)
from dpexec.viz.pages.words import PARTS

CauseKind: TypeAlias = PartKind | Literal["added", "removed"]

_TOGETHER = {
    "operator": " other operators",
    "communication": " other collectives",
    "added": " operators",
    "removed": " operators",
}
_DRAWS = 500
_SEED = 20160919
_CLOCK = 1e-9
_LEAST = 0.01  # of all differences; causes that are smaller stand together
ENOUGH = 5
"""The least number of steps that allow an estimate of noise."""

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cause:
    """A part of the difference of two runs.

    Args:
        kind: Its kind.
        name: Name of an operator or collective; "" for other kinds.
        before: Seconds of the median step of the first run.
        after: The same for the second run.
        difference: Seconds that it adds to a step; they add up to the difference of the medians.
            For waits for threads and for Python it is not `after - before`: if the awaited
            operators take longer, that counts for these operators.
        low: Lower bound of the difference, in 39 of 40 cases; None if there are too few steps.
        high: Upper bound, likewise.
        nodes: Operators in the graph of the first run; added ones, in that of the second.
        is_several: Whether it stands for several causes of its kind.
    """

    kind: CauseKind
    name: str
    before: float
    after: float
    difference: float
    low: float | None
    high: float | None
    nodes: tuple[int, ...] = ()
    is_several: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether it is more than noise and the resolution of clocks."""
        if self.low is None or self.high is None or abs(self.difference) < _CLOCK:
            return False
        return not self.low <= 0 <= self.high

    @property
    def is_noise(self) -> bool:
        """Whether noise explains it; False if there are too few steps to tell."""
        return self.low is not None and not self.is_certain


@dataclass(frozen=True)
class Split:
    """The difference of two runs, divided.

    Args:
        before: Seconds of the median step of the first run.
        after: The same for the second run.
        slower: The share by which the second one is longer: the measured value, and the ends of
            the interval that holds it in 19 of 20 cases; None if there are too few steps.
        steps: The number of counted steps of each run.
        causes: The causes: certain ones first, then by size.
    """

    before: float
    after: float
    slower: tuple[float, float | None, float | None]
    steps: tuple[int, int]
    causes: tuple[Cause, ...]
    _draws: Mapping[int, Rows]  # by position of a cause: its difference in every draw

    @property
    def work(self) -> tuple[float, float | None, float | None]:
        """The share of a step by which operators take longer, without waits; as for `slower`.

        It varies less than steps do, as waits depend on what else the machine does.
        """
        drawn = [
            self._draws[place]
            for place, cause in enumerate(self.causes)
            if cause.kind in ("operator", "added", "removed")
        ]
        if not drawn or not self.before:
            return 0.0, *((None, None) if min(self.steps) < ENOUGH else (0.0, 0.0))
        shares = np.sum(drawn, axis=0) / self.before
        return (float(shares[0]), *_ends(shares, self.steps))

    def largest(self, number: int) -> tuple[Cause, ...]:
        """Return the first causes, then one for the rest of each kind."""
        least = _least(self.causes)
        large = [abs(cause.difference) >= least for cause in self.causes[:number]]
        shown = [cause for cause, is_large in zip(self.causes, large, strict=False) if is_large]
        rest: dict[CauseKind, list[int]] = {}
        for place, cause in enumerate(self.causes):
            if place >= number or not large[place]:
                rest.setdefault(cause.kind, []).append(place)
        for kind, places in rest.items():
            together = [self.causes[place] for place in places]
            drawn = sum(self._draws[place] for place in places)
            low, high = _ends(np.asarray(drawn), self.steps)
            names = [cause.name for cause in together if cause.name]
            if len(together) == 1:
                shown += together
                continue
            shown.append(
                Cause(
                    kind,
                    f"{len(names)}{_TOGETHER[kind]}" if names and kind in _TOGETHER else "",
                    sum(cause.before for cause in together),
                    sum(cause.after for cause in together),
                    sum(cause.difference for cause in together),
                    low,
                    high,
                    tuple(node for cause in together for node in cause.nodes),
                    is_several=True,
                )
            )
        return tuple(shown)


class _Run:
    """The steps of a run as rows of seconds by part.

    Args:
        schedule: Its trace.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.divider = Divider(schedule)
        self.steps = [self.divider.parts(step) for step in schedule.counted]
        self.seconds = np.array([step.seconds for step in self.steps])

    def known(self) -> dict[Part, None]:
        """All parts of its steps."""
        found: dict[Part, None] = {}
        for step in self.steps:
            for parts in (step.own, *step.behind.values(), step.unit):
                found.update(dict.fromkeys(parts))
        return found

    def drawn(self, generator: np.random.Generator) -> Rows:
        """Weights of the steps: a row for the actual steps, then a row for every draw."""
        count = len(self.steps)
        chosen = [np.arange(count), *generator.integers(0, count, (_DRAWS, count))]
        return np.array([self._weights(members) for members in chosen])

    def _weights(self, members: npt.NDArray[np.int64]) -> Rows:
        """By step: the weights with which the middle half of some steps gives their median."""
        ordered = members[np.argsort(self.seconds[members], kind="stable")]
        count = len(ordered)
        middle = ordered[count // 4 : count - count // 4]
        weights = np.bincount(middle, minlength=len(self.seconds)).astype(np.float64)
        total = weights @ self.seconds
        return weights * (np.median(self.seconds[members]) / total if total else 0.0)

    def table(
        self, parts: Sequence[Part], what: Callable[[StepParts], Mapping[Part, float]]
    ) -> Rows:
        """A row for each step, a column for each part."""
        rows = [what(step) for step in self.steps]
        return np.array([[row.get(part, 0.0) for part in parts] for row in rows])


def split(before: Schedule, after: Schedule) -> Split:
    """Divide the difference of two runs.

    Args:
        before: The first run.
        after: The second run.
    """
    runs = _Run(before), _Run(after)
    known = [run.known() for run in runs]
    parts = list(dict.fromkeys([*known[0], *known[1]]))
    generator = np.random.default_rng(_SEED)
    weights = [run.drawn(generator) for run in runs]
    medians = [w @ run.seconds for w, run in zip(weights, runs, strict=True)]
    columns = {part: column for column, part in enumerate(parts)}
    own = [w @ run.table(parts, lambda s: s.own) for w, run in zip(weights, runs, strict=True)]
    differences = own[1] - own[0]
    waits = []
    for kind in BEHIND:
        awaited = [
            part for part in parts if any(part in s.behind[kind] for r in runs for s in r.steps)
        ]
        if awaited:
            behind, longer, waited = _behind(kind, awaited, runs, weights)
            differences[:, [columns[part] for part in awaited]] += longer
            one, other = (float(rows[0].sum()) for rows in behind)
            waits.append((Cause(kind, "", one, other, 0.0, None, None), waited))
    count = len(runs[0].steps), len(runs[1].steps)
    found = _gathered(parts, own, differences, runs)
    found += waits
    measured = _measured(found, count)
    least = _least(cause for cause, _ in measured)
    ordered = sorted(measured, key=lambda each: _rank(each[0], least))
    return Split(
        float(medians[0][0]),
        float(medians[1][0]),
        _slower(medians, count),
        count,
        tuple(cause for cause, _ in ordered),
        {place: drawn for place, (_, drawn) in enumerate(ordered)},
    )


def _behind(
    kind: Behind, awaited: Sequence[Part], runs: tuple[_Run, _Run], weights: Sequence[Rows]
) -> tuple[list[Rows], Rows, Rows]:
    """Waits of a kind for each part; the difference that longer work makes, and the rest of it."""
    behind = [
        w @ run.table(awaited, lambda s: s.behind[kind])
        for w, run in zip(weights, runs, strict=True)
    ]
    unit = [
        _of_a_step(w @ run.table(awaited, lambda s: s.unit), w)
        for w, run in zip(weights, runs, strict=True)
    ]
    return behind, *_longer(behind, unit)


def _of_a_step(rows: Rows, weights: Rows) -> Rows:
    total = weights.sum(axis=1, keepdims=True)
    return rows / np.where(total > 0, total, 1.0)


def _longer(behind: Sequence[Rows], unit: Sequence[Rows]) -> tuple[Rows, Rows]:
    """Divide the longer waits: awaited operators took longer, or there were more."""
    one, other = (np.where(u > 0, u, v) for u, v in (unit, unit[::-1]))
    before = np.divide(behind[0], one, out=np.zeros_like(one), where=one > 0)
    after = np.divide(behind[1], other, out=np.zeros_like(one), where=other > 0)
    unknown = np.where(one > 0, 0.0, behind[1] - behind[0])  # of no operator
    waited = (after - before) * one + unknown
    return behind[1] - behind[0] - waited, waited.sum(axis=1)


def _gathered(
    parts: Sequence[Part],
    own: Sequence[Rows],
    differences: Rows,
    runs: tuple[_Run, _Run],
) -> list[tuple[Cause, Rows]]:
    """The causes with their differences; what has one cause is put together."""
    known = [run.known() for run in runs]
    first = {p: float(differences[0, column]) for column, p in enumerate(parts)}
    rounds = _rounds(runs)
    names = {**runs[1].divider.names, **runs[0].divider.names}
    rewritten = _rewritten(known, names)
    gathering = Gathering(first, _on_devices(parts, runs), rounds, names, rewritten)
    columns: dict[Part, list[int]] = {}
    for column, part in enumerate(parts):
        columns.setdefault(gathering.cause(part), []).append(column)
    found = []
    for cause, members in columns.items():
        here = [any(parts[column] in run for column in members) for run in known]
        kind: CauseKind = cause.kind
        if kind in ("operator", "communication") and not all(here):
            kind = "removed" if here[0] else "added"
        nodes = runs[kind == "added"].divider.nodes  # of the graph that is shown with the cause
        made = dict.fromkeys(n for column in members for n in nodes.get(parts[column], ()))
        before, after = (float(rows[0, members].sum()) for rows in own)
        name = gathering.names.get(cause, "")
        several = cause in rewritten.values()
        one = Cause(kind, name, before, after, 0.0, None, None, tuple(made), several)
        found.append((one, differences[:, members].sum(axis=1)))
    return found


def _rewritten(known: Sequence[Mapping[Part, None]], names: dict[Part, str]) -> dict[Part, Part]:
    """By operator that the other run replaces by others: the part for all of its kind, named."""
    one, other = ([p.key for p in run if p.kind == "operator" and is_unit(p.key)] for run in known)
    found: dict[Part, Part] = {}
    for name, members in alike(find_rewritten(one, other)):
        stands = Part("operator", ("rewritten", name))
        names[stands] = name
        units = (unit for each in members for unit in (*each.before, *each.after))
        found.update((Part("operator", unit), stands) for unit in units)
    was, now = (
        [p for p in run if p.kind == "communication" and p not in rest]
        for run, rest in (known, known[::-1])
    )
    if was and now:
        stands = Part("communication", "rewritten")
        names[stands] = f"{names[now[0]]}, before {names[was[0]]}"
        found.update((part, stands) for part in (*was, *now))
    return found


def _on_devices(parts: Sequence[Part], runs: tuple[_Run, _Run]) -> dict[Part, Ends]:
    """For parts of late devices: median seconds of their operator there, so without interrupts."""
    late = {part: part.key for part in parts if isinstance(part.key, LateOn)}
    sides = []
    for run in runs:
        sides.append(
            {
                part: statistics.median(
                    s.by_device.get(key.what, {}).get(key.device, 0.0) for s in run.steps
                )
                for part, key in late.items()
            }
        )
    return {part: (sides[0][part], sides[1][part]) for part in late}


def _rounds(runs: tuple[_Run, _Run]) -> dict[Part, Ends]:
    """By loop: its rounds in a step."""
    one, other = (run.divider.rounds() for run in runs)
    return {loop: (one[loop], other[loop]) for loop in one if loop in other}


def _measured(
    found: Iterable[tuple[Cause, Rows]], steps: tuple[int, int]
) -> list[tuple[Cause, Rows]]:
    """The causes with their differences; causes without a difference are left out."""
    measured = []
    for cause, drawn in found:
        if cause.before or cause.after or drawn[0]:
            low, high = _ends(drawn, steps)
            measured.append((replace(cause, difference=float(drawn[0]), low=low, high=high), drawn))
    return measured


def _ends(drawn: Rows, steps: tuple[int, int]) -> tuple[float | None, float | None]:
    if min(steps) < ENOUGH:
        return None, None
    low, high = np.quantile(drawn[1:], (0.025, 0.975))
    return float(low), float(high)


def _slower(
    medians: Sequence[Rows], steps: tuple[int, int]
) -> tuple[float, float | None, float | None]:
    before = np.where(medians[0] > 0, medians[0], 1.0)
    ratio = medians[1] / before - 1
    return (float(ratio[0]), *_ends(ratio, steps))


def _least(causes: Iterable[Cause]) -> float:
    """The seconds from which on a cause stands alone."""
    return _LEAST * sum(abs(cause.difference) for cause in causes)


def _rank(cause: Cause, least: float) -> tuple[bool, float]:
    size = abs(cause.difference)
    return not (cause.is_certain and size >= least), -size


def cause_text(cause: Cause) -> str:
    """Return a cause's name in words."""
    if cause.kind in ("added", "removed"):
        return f"{'new' if cause.kind == 'added' else 'gone'}: {cause.name}"
    if cause.kind in ("operator", "communication", "straggler") and cause.name:
        return cause.name
    return PARTS[cause.kind]
