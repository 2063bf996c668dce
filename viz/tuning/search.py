"""Finding a better strategy: forecasts choose what is tried, short interleaved runs decide.

A setting and what the user has set run in turns, block by block, so that both share the moments in
which others use the machine; a block gives one ratio. What was faster is tried together with the
others that were. The best runs against what the user has set once more, since the fastest of many
would look too good in the runs that it was chosen by: six times, set up anew.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from dpexec.viz.measured.confidence import Sure, sure
from dpexec.viz.measured.typical import Typical
from dpexec.viz.pages.units import percent
from dpexec.viz.tuning.forecast import Forecast, Forecaster
from dpexec.viz.tuning.settings import Setting, settings
from dpexec.viz.tuning.trial import Subject, Trial

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.feeds.splitting import Feeds

Verdict = Literal["faster", "slower", "the same", "not tried", "impossible"]

HOPELESS = 0.01
"""What cannot save that share of a step is not tried, and what does not is no advice."""

BLOCKS = 9, 41
"""So many pairs of blocks a setting gets at least, and at most if they are short."""

FINAL_PAIRS = 6
"""So often the best setting is set up anew: that all of these are faster by chance happens once in
64 cases."""

_PAIRS_SECONDS = 1.0  # so long a setting runs; the best one three times as long
_BLOCK_SECONDS = 0.008
_MOST_CALLS = 200
_WARM = 2
_RECORDED = 8


@dataclass(frozen=True)
class Tried:
    """A setting, and what became of it.

    Args:
        setting: What differs from what the user has set.
        forecast: What it should be worth.
        ratio: Time of a step by that without it; None if it was not tried.
        verdict: What the ratio says; "the same" within noise.
        reason: Why it was not tried, or what its runs said; "" for nothing.
    """

    setting: Setting
    forecast: Forecast
    ratio: Sure | None = None
    verdict: Verdict = "not tried"
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        ratio = None
        if self.ratio is not None:
            ratio = {"median": self.ratio.median, "low": self.ratio.low, "high": self.ratio.high}
        return {
            "setting": {name: str(value) for name, value in self.setting.fields.items()},
            "forecast": {"saved": self.forecast.saved, "basis": self.forecast.basis},
            "ratio": ratio,
            "verdict": self.verdict,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Found:
    """The best setting, as fresh runs have it.

    Args:
        setting: What to change.
        before: Seconds of a step as the user has set it.
        after: Seconds of a step with the setting.
        ratio: Of both, pair by pair.
        same: Whether both fetched the same bits after as many steps from the same state.
    """

    setting: Setting
    before: Typical
    after: Typical
    ratio: Sure
    same: bool

    @property
    def is_better(self) -> bool:
        """Whether it is faster beyond noise, and by more than is worth nothing."""
        return self.ratio.high < 1 and self.ratio.median <= 1 - HOPELESS


@dataclass(frozen=True)
class Progress:
    """What the search is at.

    Args:
        done: Settings that are decided.
        total: Settings that there are.
        text: What is tried now.
    """

    done: int
    total: int
    text: str


class Search:
    """Looks for the best strategy of a program; iterate over it to run it.

    Args:
        subject: What is tuned.
        seconds: After that many it tries no further settings.
        rounding: Whether results may change by rounding.

    Attributes:
        tried: All settings, when it has run.
        found: The best of them that was faster; None if none was.
        step: Seconds of a step as the user has set it.
    """

    def __init__(self, subject: Subject, seconds: float, rounding: bool) -> None:
        self.subject, self.seconds, self.rounding = subject, seconds, rounding
        self.tried: list[Tried] = []
        self.found: Found | None = None
        self._batches: list[Feeds] = []
        self._calls, self._block = 1, 1.0  # of steps, and seconds

    def __iter__(self) -> Iterator[Progress]:
        begun = time.monotonic()
        yield Progress(0, 1, "as it is set")
        base = self._begin()
        planned, idle = self._plan(base)
        self.tried += idle
        total, done = len(self.tried) + len(planned), len(self.tried)
        winners: list[Tried] = []
        for number, one in enumerate(planned):
            yield Progress(done + number, total + 1, str(one.setting))
            if time.monotonic() - begun > self.seconds:
                one = replace(one, reason=f"{self.seconds:g} seconds were over")
            else:
                one = self._try(base, one)
            self.tried.append(one)
            winners += [one] if one.verdict == "faster" else []
        yield Progress(total, total + 1, "the best of them together")
        best = self._together(winners)
        if best is not None:
            self.found = self._final(best)
        yield Progress(total + 1, total + 1, "done")

    # ---- before

    def _begin(self) -> Trial:
        base = Trial(self.subject, Setting())
        self._batches = base.batches()
        base.run(self._batches, _WARM)
        took = min(base.run(self._batches, 1) for _ in range(3)) * len(self._batches)
        self._calls = max(1, min(_MOST_CALLS, round(_BLOCK_SECONDS / max(took, 1e-9))))
        self._block = self._calls * took
        self.step = took / len(self._batches)
        return base

    def _plan(self, base: Trial) -> tuple[list[Tried], list[Tried]]:
        """What is to be tried, the most promising first; and what is not."""
        trace = base.recorded(self._batches, _RECORDED)
        forecaster = Forecaster(self.subject, trace)
        planned, idle = [], []
        for setting in settings(self._situation(forecaster), self.rounding):
            forecast = forecaster.of(setting)
            if forecast is None:
                continue
            one = Tried(setting, forecast)
            if forecast.saved is not None and forecast.saved < HOPELESS:
                idle.append(replace(one, reason=_hopeless(forecast)))
            else:
                planned.append(one)
        planned.sort(key=lambda one: -(one.forecast.saved or 0.0))
        return planned, idle

    def _situation(self, forecaster: Forecaster) -> Any:
        facts = forecaster.schedule.facts
        nodes = facts.nodes if facts is not None else []
        moved = (facts.output_bytes(n["id"]) for n in nodes if n["role"] == "collective")
        return self.subject.situation(sum(moved) // max(1, len(self.subject.places)))

    # ---- trials

    def _try(self, base: Trial, one: Tried) -> Tried:
        try:
            ratio = sure(self._pairs(base, self._made(one.setting), _PAIRS_SECONDS)[2])
        except (EnforceNotMet, RuntimeError, ValueError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return replace(one, verdict="impossible", reason=lines[-1])
        return replace(one, ratio=ratio, verdict=_verdict(ratio))

    def _made(self, setting: Setting) -> Trial:
        trial = Trial(self.subject, setting)
        trial.run(self._batches, _WARM)
        return trial

    def _pairs(
        self, base: Trial, other: Trial, seconds: float
    ) -> tuple[list[float], list[float], list[float]]:
        """Seconds of a step in blocks of both, each first in turn, and their ratios."""
        before: list[float] = []
        after: list[float] = []
        least, most = BLOCKS
        for number in range(max(least, min(most, round(seconds / 2 / self._block)))):
            for trial in (base, other) if number % 2 else (other, base):
                took = trial.run(self._batches, self._calls)
                (before if trial is base else after).append(took)
        return before, after, [b / a for a, b in zip(before, after, strict=True)]

    def _together(self, winners: Sequence[Tried]) -> Setting | None:
        """The best single setting, joined by each other one that makes it faster."""
        ranked = sorted(winners, key=lambda one: one.ratio.median if one.ratio else 1.0)
        if not ranked:
            return None
        best, trial = ranked[0].setting, None
        for one in ranked[1:]:
            if best.fields.keys() & one.setting.fields.keys():
                continue
            trial = trial or self._made(best)
            joined = Tried(best | one.setting, Forecast(None, "no model"))
            tried = self._try(trial, joined)
            if tried.verdict == "faster":
                best, trial = joined.setting, None
        return best

    def _final(self, setting: Setting) -> Found:
        """Both from the same state, once more, several times.

        Where its arrays and threads lie makes a trial faster or slower for as long as it lives; so
        trials are made anew, and each pair of them counts once.
        """
        before: list[float] = []
        after: list[float] = []
        ratios, same = [], True
        for number in range(FINAL_PAIRS):
            order = (Setting(), setting) if number % 2 else (setting, Setting())
            made = [self._made(one) for one in order]
            base, other = made if number % 2 else made[::-1]
            found = self._pairs(base, other, _PAIRS_SECONDS / 2)
            before += found[0]
            after += found[1]
            ratios.append(statistics.median(found[2]))
            same = same and _all_equal(base.fetched, other.fetched)
        return Found(setting, Typical.of(before), Typical.of(after), sure(ratios), same)


def _all_equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(_equal, one, other))


def _equal(one: Any, other: Any) -> bool:
    parts = one if isinstance(one, list) else [one]
    others = other if isinstance(other, list) else [other]
    return len(parts) == len(others) and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(parts, others, strict=True)
    )


def _hopeless(forecast: Forecast) -> str:
    """Why a setting is not tried."""
    saved = forecast.saved or 0.0
    if forecast.basis == "at most":
        return f"it can save {percent(max(0.0, saved))} of a step at most"
    if abs(saved) < 0.0005:
        return "simulated, steps take as long"
    return f"simulated, steps are {percent(abs(saved))} {'shorter' if saved > 0 else 'longer'}"


def _verdict(ratio: Sure) -> Verdict:
    if ratio.high < 1:
        return "faster"
    return "slower" if ratio.low > 1 else "the same"
