"""Sentences about the time between steps: the script, batches, other trainers, new shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from dpexec.viz.advising.waits import WORTH_SAYING, Advice
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.shares import StepTime, between, in_calls, meeting, preparing, reading
from dpexec.viz.pages.page_data import FigureData
from dpexec.viz.pages.units import counted, percent, seconds_text

_MUCH = 0.25  # of the whole time; less is no headline
_IN_BETWEEN = {
    False: "other programs run, batches are read, or the script works",
    True: "calls of run take it, as steps are short",
}
"""What happens between steps, by whether they follow each other at once."""

_SHAPES = 2  # of a variable, which are said


class Apart:
    """How much of the whole time passes between steps, and for what.

    Args:
        steps: The counted steps.
    """

    def __init__(self, steps: Sequence[StepTime]) -> None:
        self.reading, self.preparing = reading(steps), preparing(steps)
        self.meeting, self.script = meeting(steps), between(steps)
        self.in_between = _IN_BETWEEN[in_calls(steps)]

    def headlines(self) -> Iterator[str]:
        """A sentence for each of them that takes much."""
        lost = "For {} of the whole time, "
        said = (
            (self.script, f"{{}} of the whole time passes between the steps: {self.in_between}"),
            (self.reading, lost + "steps wait for batches that are read too slowly"),
            (self.preparing, lost + "steps are prepared for new shapes"),
            (self.meeting, lost + "this trainer waits for others to begin a step"),
        )
        for share, text in said:
            if share >= _MUCH:
                yield f"{text.format(percent(share))}; all other figures are about the rest."

    def figures(self) -> list[FigureData]:
        """What is worth a figure on the page."""
        rows = (
            ("waiting for batches", self.reading, "reading is slow"),
            ("preparing steps", self.preparing, "shapes are new"),
            ("between steps", self.script, self.in_between),
        )
        return [
            {
                "label": label,
                "value": share,
                "unit": "fraction",
                "hint": f"share of the whole time: {why}",
            }
            for label, share, why in rows
            if share >= WORTH_SAYING
        ]


def apart_advice(steps: Sequence[StepTime], schedule: Schedule) -> Iterator[Advice]:
    """Give advice on the time between steps.

    Args:
        steps: The counted steps.
        schedule: The trace.
    """
    share = between(steps)
    why = (
        "where other programs run, batches are read, or the script works: a DataLoader with "
        "use_double_buffer, or train_from_dask, reads batches while steps run; persist() keeps a "
        "Dask collection that every epoch would compute again"
    )
    if in_calls(steps):
        why = "in calls of run, as steps are short: larger batches need fewer calls"
    yield Advice(f"{percent(share)} of the whole time passes between the steps, {why}", (), share)
    yield _waits_for_batches(steps)
    yield _preparation(steps, schedule)
    share = meeting(steps)
    yield Advice(
        f"for {percent(share)} of the whole time, this trainer waits for others to begin a step: "
        "see what they do between steps, such as reading batches",
        (),
        share,
    )


def _waits_for_batches(steps: Sequence[StepTime]) -> Advice:
    share = percent(reading(steps))
    waits = sorted((step.read for step in steps if step.gap is not None), reverse=True)
    few = waits[: len(waits) // 5]
    if sum(few) >= 0.8 * sum(waits) > 0.0:
        long = sum(wait >= 0.1 * waits[0] for wait in few)
        text = (
            f"for {share} of the whole time, steps wait for batches, nearly all of it before "
            f"{counted(long, 'step')} (at most {seconds_text(waits[0])}): there a reader begins. "
            "Processes (num_workers, use_multiprocess) start anew in each epoch: read in threads, "
            "or make epochs longer"
        )
    else:
        each = seconds_text(median(waits)) if waits else ""
        text = (
            f"for {share} of the whole time, {each} a step, steps wait for batches: reading them "
            "takes longer than the steps. DataLoader(dataset, num_workers=2) reads in processes, "
            "DataLoader.from_generator(use_multiprocess=True) in one, fluid.io.xmap_readers in "
            "several threads, a data set with set_thread in several, too"
        )
    return Advice(text, (), reading(steps))


def _preparation(steps: Sequence[StepTime], schedule: Schedule) -> Advice:
    share = preparing(steps)
    prepared = sum(step.prepared > 0 for step in steps)
    others = ""
    if schedule.trace.meta.get("scheduler") == "distributed":
        others = ", or since other programs changed variables"
    return Advice(
        f"for {percent(share)} of the whole time, steps are prepared for new shapes{others}, "
        f"before {prepared} of {counted(len(steps), 'step')}{_reshaped(schedule)}",
        (),
        share,
    )


def _reshaped(schedule: Schedule) -> str:
    """Names what had most new shapes, and says what to do about it."""
    found: dict[str, dict[tuple[int, ...], None]] = {}
    for _, name, shape in schedule.trace.meta.get("shapes") or ():
        found.setdefault(name, {})[tuple(shape)] = None
    fewer = "batches of few different shapes need less of it"
    if not found:
        return f": {fewer}"
    name = max(found, key=lambda each: len(found[each]))
    shapes = ["×".join(map(str, shape)) for shape in found[name]]
    some = f", such as {' and '.join(shapes[-_SHAPES:])}" if len(shapes) > 1 else f": {shapes[0]}"
    facts = schedule.facts
    if facts is not None and any(var["persistable"] for var in facts.vars if var["name"] == name):
        fewer = "a variable that keeps its shape needs none of it"
    else:
        fewer += " (pad them to some sizes); only numbers of rows may differ freely"
    return f". {name} had {counted(len(shapes), 'new shape')}{some}: {fewer}"
