"""The table of operators whose results differ from Paddle 1.8.5, made from their samples' notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import OpDef, SampleRng
from dpexec.engine.ir.opfacts import Sample
from dpexec.engine.ir.roles import GRAD_SUFFIX

__all__ = ["table", "update", "write"]

_HEAD = "| where | Paddle 1.8.5 | dpexec | shown by |\n|---|---|---|---|\n"
_BEGIN, _END = "<!-- operators -->\n", "<!-- end -->\n"
_ALL = "*"  # the slot of a call that Paddle cannot run at all


def table() -> str:
    """The table in Markdown: a row for each note of a sample (``Sample.deviates``).

    Raises:
        ValueError: a note does not say what Paddle does and what dpexec does.
    """
    where: dict[str, dict[str, set[str]]] = {}
    shown: dict[str, set[str]] = {}
    for definition, sample in _samples():
        for slot, note in sample.deviates.items():
            where.setdefault(note, {}).setdefault(definition.type, set()).add(slot)
            shown.setdefault(note, set()).update(_shown(slot, sample))
    rows = []
    for note in sorted(where, key=lambda note: min(where[note])):
        cells = [_named(where[note]), *_parts(note), ", ".join(sorted(shown[note], reverse=True))]
        rows.append(f"| {' | '.join(cells)} |\n")
    return _HEAD + "".join(rows)


def _samples() -> Iterator[tuple[OpDef, Sample]]:
    for _, definition in sorted(opdef.registered().items()):
        for sample in definition.samples(SampleRng()) if definition.samples else ():
            yield definition, sample


def _parts(note: str) -> tuple[str, str]:
    """The two halves of a note: what Paddle does, and what dpexec does."""
    paddle, mark, ours = note.partition("; dpexec ")
    if not mark:
        raise ValueError(
            f"deviates={note!r} must be 'what Paddle does; dpexec does something else': it is a "
            "row of docs/differences.md"
        )
    return paddle.replace("|", "\\|"), ours.replace("|", "\\|")


def _named(types: dict[str, set[str]]) -> str:
    """The operators, each with the slots that differ, unless the whole call does."""
    slots = sorted(set().union(*types.values()) - {_ALL})
    outputs = [slot for slot in slots if not slot.endswith(GRAD_SUFFIX)]
    gradients = [slot.removesuffix(GRAD_SUFFIX) for slot in slots if slot not in outputs]
    text = _quoted(sorted(types))
    if slots:
        text += ": " + _quoted(outputs)
    if gradients:
        text += (
            f"{', ' * bool(outputs)}gradient{'s' * (len(gradients) > 1)} of {_quoted(gradients)}"
        )
    return text


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _shown(slot: str, sample: Sample) -> list[str]:
    if slot == _ALL:
        return ["refusal"]
    checked = sample.grad is None or slot.removesuffix(GRAD_SUFFIX) in sample.grad
    derived = slot.endswith(GRAD_SUFFIX) and checked and sample.smooth
    return ["values", *["derivative"] * derived]


def write(text: str) -> str:
    """The text of a guide with its table brought up to date.

    Args:
        text: the guide, with the lines ``<!-- operators -->`` and ``<!-- end -->``.

    Raises:
        ValueError: these lines are missing, or a note cannot be made a row.
    """
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"the guide has no lines {_BEGIN.strip()} and {_END.strip()}")
    return before + begin + "\n" + table() + "\n" + end + after


def update(path: Path) -> None:
    """Bring the table in a guide up to date; errors as for :func:`write`."""
    path.write_text(write(path.read_text("utf-8")), "utf-8")
