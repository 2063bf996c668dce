"""Steps that an error ended: sentences about what failed, and what had run by then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpexec.viz.measured.schedule import FAILURE, Schedule, Slice, Step
from dpexec.viz.pages.units import counted

SHOWN = 3
"""Failures that are told one by one."""

_LONGEST = 300  # characters of a message


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that failed.

    Args:
        step: The step.
        piece: What failed.
        text: A sentence about it.
        nodes: The operator of the graph; none if it is unknown.
    """

    step: Step
    piece: Slice
    text: str
    nodes: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        event = self.piece.event
        return {
            "step": self.step.number,
            "operator": None if event.node is None else event.name,
            "device": event.device,
            "line": event.args.get("line"),
            "text": self.text,
            "nodes": list(self.nodes),
        }


def failures(schedule: Schedule) -> list[Failure]:
    """Return the failures of a run, in order."""
    found = []
    for step in schedule.failed:
        pieces = (schedule.by_id[index] for index in step.slices)
        piece = next(piece for piece in pieces if piece.event.kind == FAILURE)
        nodes = () if piece.event.node is None else (piece.event.node,)
        found.append(Failure(step, piece, _text(schedule, step, piece), nodes))
    return found


def failure_texts(found: Sequence[Failure]) -> list[str]:
    """Return sentences about the first failures of a run."""
    more = [others(found)] if len(found) > SHOWN else []
    return [*(one.text for one in found[:SHOWN]), *more]


def others(found: Sequence[Failure]) -> str:
    """Return a sentence about the failures behind the first ones."""
    return f"{counted(len(found) - SHOWN, 'further step')} failed."


def _text(schedule: Schedule, step: Step, piece: Slice) -> str:
    event = piece.event
    args = event.args
    where = "" if event.device is None else f" on device {event.device}"
    place = _place(piece)
    message = str(args.get("text", "")).partition("\n")[0]
    prefix = f"operator {event.name}{where}: "
    message = message.removeprefix(prefix).removeprefix(f"operator {event.name}: ")
    if args.get("error") not in ("EnforceNotMet", None) and not message.startswith(args["error"]):
        message = f"{args['error']}: {message}"
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]}…"
    sentences = [f"Step {step.number} failed{where}{place}: {message.rstrip('.')}."]
    if "raised" in args:
        sentences.append(f"The function raised it at {args['raised']}.")
    return " ".join([*sentences, *_ran(schedule, step, piece)])


def _place(piece: Slice) -> str:
    """The operator that failed, with the user's line; or that the batch was at fault."""
    event = piece.event
    line = event.args.get("line")
    if event.args.get("while") == "feeding":
        return " while it was fed"
    if event.name == "failed":
        return ""
    return f" in {event.name}" + (f", made at {line}" if line else "")


def _ran(schedule: Schedule, step: Step, piece: Slice) -> Iterator[str]:
    """How many operators of each device had run, if the step's notes tell that."""
    facts = schedule.facts
    if facts is None or piece.parent is None:
        return
    done: dict[int, set[int]] = {device: set() for device in schedule.devices}
    for index in step.slices:
        other = schedule.by_id[index]
        if other.event.kind == "op" and other.event.device in done:
            done[other.event.device].update(schedule.nodes_of(other))
    parts = []
    for device, nodes in done.items():
        its = [node["id"] for node in facts.nodes if node["device"] == device]
        parts.append(f"{len(nodes & set(its))} of {len(its)} operators of device {device}")
    if parts:
        yield f"By then, {' and '.join(parts)} had run."
