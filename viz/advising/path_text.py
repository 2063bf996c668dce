"""Sentences about a critical path: how the step's time was spent, and what was late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from dpexec.viz.measured.copies import Copies
from dpexec.viz.measured.critical_path import CriticalPath, Link
from dpexec.viz.pages.units import percent, seconds_text
from dpexec.viz.pages.words import PARTS

WORTH_SAYING = 0.03
"""A delay gets a sentence if it is at least this share of the step."""

_AT_MOST = 4

NO_COPIES = Copies({})


def path_sentences(path: CriticalPath, copies: Copies = NO_COPIES) -> list[str]:
    """Return how the path's time was spent, then the delays, the largest first.

    Args:
        path: The path.
        copies: What tasks copied before they began.
    """
    parts = sorted(path.parts.items(), key=lambda item: -item[1])
    spent = ", ".join(
        f"{percent(seconds / path.seconds)} {PARTS[name]}"
        for name, seconds in parts
        if path.seconds and seconds >= 0.0005 * path.seconds
    )
    late = _longest(
        found for found in _late(path, copies) if found[0] >= WORTH_SAYING * path.seconds
    )
    whole = f"The critical path of step {path.step} is all of its {seconds_text(path.seconds)}"
    free = path.parts["scheduler"]
    if free >= WORTH_SAYING * path.seconds:
        other = ", as other work takes nearly as long" if _hides(path, free) else ""
        late.append((0.0, f"If scheduling were free: {seconds_text(path.unhindered)}{other}."))
    return [f"{whole}: {spent}." if spent else f"{whole}.", *(text for _, text in late[:_AT_MOST])]


def _hides(path: CriticalPath, free: float) -> bool:
    """Whether less than half of the delays could be saved: another chain of work decides then."""
    return path.seconds - path.unhindered < free / 2


def waited(path: CriticalPath) -> dict[int, str]:
    """Return by id why slices of the path began late; slices without such a reason are left out."""
    texts = {
        "straggler": "{} after all else that it waited for: a straggler",
        "thread": "{} after it was ready: its thread was busy",
        "data": "as its last input came",
        "begin": "first",
    }
    found: dict[int, str] = {}
    for link in path.links:
        if link.reason == "order":
            continue
        text = texts[link.reason].format(seconds_text(link.lead))
        if link.delay > 0:
            text += f"; {seconds_text(link.delay)} late"
        found.setdefault(link.slice, text)
    return found


def _late(path: CriticalPath, copies: Copies) -> Iterator[tuple[float, str]]:
    """The waits on the path: seconds, and a sentence with a gap for them."""
    first = path.links[0]
    if first.delay > 0 and path.ordered:
        yield first.delay, f"{_who(first)} began {{}} into the step"
    waits: dict[str, float] = {}
    for link in path.links:
        if link.part == "straggler":
            waits[link.name] = waits.get(link.name, 0.0) + link.stop - link.start
    for name, seconds in waits.items():
        yield seconds, f"{{}} went by {name}, whose values came last"
    for before, link in pairwise(path.links):
        who = _who(link)
        other = _who(before._replace(name=before.task or before.name))
        last = f", which ended with {before.name}" if before.name != before.task else ""
        if link.delay > 0 and path.ordered:
            why = f", as {clause}" if (clause := copies.why(link.task, link.device)) else ""
            if link.held > link.delay / 2:
                why = ", as other threads ran Python"
            yield link.delay, f"{who} was ready {{}} before it began{why}"
        if link.reason == "straggler":
            alone = f"{other} alone{last}: a straggler, other devices were done"
            yield link.lead, f"{who} waited {{}} for {alone}"
        elif link.reason == "thread" and before.part != "straggler":
            yield link.lead, f"{who} waited {{}} for its thread, which was busy with {other}"


def _longest(waits: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    """The waits as whole sentences, longest first; of equal ones the longest, with their number."""
    alike: dict[str, list[float]] = {}
    for seconds, text in waits:
        alike.setdefault(text, []).append(seconds)
    found = []
    for text, times in alike.items():
        said = text.replace("{}", seconds_text(max(times)))
        more = f" (the longest of {len(times)} such waits)" if len(times) > 1 else ""
        found.append((max(times), f"{said}{more}."))
    return sorted(found, key=lambda wait: -wait[0])


def _who(link: Link) -> str:
    return link.name if link.device is None else f"{link.name} of device {link.device}"
