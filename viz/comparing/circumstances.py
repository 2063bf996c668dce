"""Sentences about two runs: how their settings and batches differ, and where a cause lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dpexec.viz.comparing.causes import Cause
from dpexec.viz.comparing.changes import Change
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.pages.units import seconds_text

_SETTINGS = {
    "devices": "devices",
    "places": "places",
    "scheduler": "scheduler",
    "num_threads": "threads",
    "mode": "mode",
    "native": "machine code",
    "cpus": "processors",
}
_LOCATED = 3  # causes
_DEVICES = 2  # whose times are said


def circumstances(before: Schedule, after: Schedule) -> Iterator[str]:
    """Say what differs between two runs besides their times: settings, and sizes of batches."""
    sides = before.trace.meta, after.trace.meta
    changed = [
        f"{text} {said[0]} → {said[1]}"
        for key, text in _SETTINGS.items()
        if key in sides[0] and key in sides[1]
        if len(said := list(dict.fromkeys(_said(side[key]) for side in sides))) == 2
    ]
    one, other = (side.get("build") or {} for side in sides)
    changed += [
        f"BuildStrategy.{name} {_said(one[name])} → {_said(other[name])}"
        for name in one
        if name in other and one[name] != other[name]
    ]
    if changed:
        yield f"The runs have other settings: {', '.join(changed)}."
    rows = [run.facts.rows if run.facts else {} for run in (before, after)]
    names = dict.fromkeys(name for by in rows[0].values() for name in by)
    for name in names:
        one, other = ({d: by[name] for d, by in run.items() if by.get(name)} for run in rows)
        if not one or not other or one == other:
            continue
        if sum(one.values()) == sum(other.values()):
            now, then = (", ".join(f"{n:,}" for n in side.values()) for side in (other, one))
            yield f"Devices are fed {now} rows of {name}, before {then}."
        else:
            yield f"The last batch has {_rows(other, 'rows')} of {name}, before {_rows(one)}."
        return


def _rows(by_device: Mapping[int, int], noun: str = "") -> str:
    """The number of rows; if devices get different numbers, also those."""
    text = f"{sum(by_device.values()):,} {noun}".strip()
    if len(set(by_device.values())) == 1:
        return text
    return f"{text} ({', '.join(f'{n:,}' for n in by_device.values())})"


def _said(value: object) -> str:
    """A setting in words; of a table of versions, whether there is anything in it."""
    if isinstance(value, (bool, Mapping)):
        return "on" if value else "off"
    return str(value)


def located(
    causes: Iterable[Cause], changes: Sequence[Change], runs: tuple[Schedule, Schedule]
) -> Iterator[str]:
    """Say for the first certain causes of operators which layer and line made them.

    Args:
        causes: The causes, the largest first.
        changes: The times of operators in both runs.
        runs: The runs.
    """
    said: set[tuple[str, str]] = set()
    for cause in causes:
        facts = runs[cause.kind == "added"].facts
        if facts is None or not cause.nodes or not cause.is_certain or len(said) == _LOCATED:
            continue
        if cause.kind == "communication" or cause.is_several:
            continue
        nodes = [facts.by_id[node] for node in cause.nodes]
        places = {(str(node["layer"]), str(node["line"] or "")) for node in nodes}
        if len(places) != 1 or places <= said:  # many operators; or said already
            continue
        said |= places
        [(layer, line)] = places
        of = f" of layer {layer}" if layer else ""
        yield f"{_name(cause)}{of}{f', made at {line}' if line else ''}{_times(cause, changes)}."


def _name(cause: Cause) -> str:
    """The name without the device, which the times say."""
    return cause.name.rpartition(", device")[0] or cause.name


def _times(cause: Cause, changes: Sequence[Change]) -> str:
    """The times on devices in both runs, the largest difference first."""
    name = _name(cause)
    mine = [c for c in changes if c.name == name and c.device is not None]
    mine.sort(key=lambda change: -abs(change.difference))
    times = [
        f"{seconds_text(c.after)} on device {c.device}, before {seconds_text(c.before)}"
        for c in mine[:_DEVICES]
    ]
    return f": {'; '.join(times)}" if times else ""
