"""Finds a better strategy: forecasts choose the settings to try, short interleaved runs decide.

A setting and the user's settings run in turns, block by block, so that other programs disturb both
equally; each pair of blocks gives one ratio. Faster settings are then tried together. Finally the
best setting is compared with the user's again, in six fresh runs, because the fastest of many
settings looks too good in the runs by which it was chosen.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from dpexec.viz.measured.typical import Typical
from dpexec.viz.pages.units import percent
from dpexec.viz.tuning.confidence import Sure, sure
from dpexec.viz.tuning.forecast import Forecast, Forecaster
from dpexec.viz.tuning.settings import Setting, settings
from dpexec.viz.tuning.trial import Subject, Trial

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.feeds.splitting import Feeds

Verdict = Literal["faster", "slower", "the same", "not tried", "impossible"]

HOPELESS = 0.01
"""A setting is not tried if it cannot save this share of a step, nor advised if it does not."""

BLOCKS = 9, 41
"""The least number of pairs of blocks for a setting, and the largest, if blocks are short."""

FINAL_PAIRS = 6
"""The number of fresh runs of the best setting. All of them are faster by chance in one case of 64
only."""

_PAIRS_SECONDS = 1.0  # duration of a setting's runs; the best one runs three times as long
_BLOCK_SECONDS = 0.008
_MOST_CALLS = 200
_WARM = 2
_RECORDED = 8


@dataclass(frozen=True)
class Tried:
    """A setting with its result.

    Args:
        setting: The difference from the user's settings.
        forecast: The expected saving.
        ratio: Time of a step with the setting, divided by that without it; None if it was not
            tried.
        verdict: The verdict by the ratio; "the same" within noise.
        reason: Why it was not tried, or a remark on its runs; "" for none.
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
    """The best setting, measured in fresh runs.

    Args:
        setting: The difference from the user's settings.
        before: Seconds of a step with the user's settings.
        after: Seconds of a step with the setting.
        ratio: The ratio of both, pair by pair.
        same: Whether both fetched the same bits after equally many steps from the same state.
    """

    setting: Setting
    before: Typical
    after: Typical
    ratio: Sure
    same: bool

    @property
    def is_better(self) -> bool:
        """Whether it is faster beyond noise, and by a relevant share."""
        return self.ratio.high < 1 and self.ratio.median <= 1 - HOPELESS


@dataclass(frozen=True)
class Progress:
    """The progress of the search.

    Args:
        done: Number of settings with a result.
        total: Number of all settings.
        text: The setting that is tried now.
    """

    done: int
    total: int
    text: str


class Search:
    """Looks for the best strategy of a program; iterate over it to run it.

    Args:
        subject: The program to tune.
        seconds: Time limit after which no further setting is tried.
        rounding: Whether results may change by rounding.

    Attributes:
        tried: All settings, after it has run.
        found: The best setting; None if none was faster.
        step: Seconds of a step with the user's settings.
    """

    def __init__(self, subject: Subject, seconds: float, rounding: bool) -> None:
        self.subject, self.seconds, self.rounding = subject, seconds, rounding
        self.tried: list[Tried] = []
        self.found: Found | None = None
        self._batches: list[Feeds] = []
        self._calls, self._block = 1, 1.0  # calls in a block, and its seconds

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

    # ---- choice

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
        """The settings to try, the most promising first, and the others."""
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
        """Seconds of a step in blocks of both, which take turns in being first, and the ratios."""
        before: list[float] = []
        after: list[float] = []
        least, most = BLOCKS
        for number in range(max(least, min(most, round(seconds / 2 / self._block)))):
            for trial in (base, other) if number % 2 else (other, base):
                took = trial.run(self._batches, self._calls)
                (before if trial is base else after).append(took)
        return before, after, [b / a for a, b in zip(before, after, strict=True)]

    def _together(self, winners: Sequence[Tried]) -> Setting | None:
        """The best single setting, joined with every other one that makes it faster."""
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
        """Compare a setting with the user's several times, each time from the same state.

        The addresses of its arrays and the cores of its threads make a trial faster or slower as
        long as it exists. So new trials are made for each comparison, and each pair counts once.
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
