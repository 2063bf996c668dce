"""``python -m dpexec.onnx.exporting docs/onnx.md``: the table of operators in that guide."""

from __future__ import annotations

import argparse
from pathlib import Path

import dpexec.onnx.exporting.mappings  # noqa: F401 - registers the mappings
from dpexec.onnx.exporting.mapping import OPSETS, mappings

__all__ = ["main", "table", "write"]

_BEGIN, _END = "<!-- exported operators -->\n", "<!-- end of exported operators -->\n"
_HEAD = "| operators | from opset | must be constants | cannot be said |\n|---|---|---|---|\n"


def table() -> str:
    """The table in Markdown: a row for all operators with the same limits."""
    rows: dict[tuple[int, str, str], list[str]] = {}
    for type, mapping in mappings().items():
        limits = mapping.opset, ", ".join(f"`{c}`" for c in sorted(mapping.constants))
        rows.setdefault((*limits, mapping.without), []).append(f"`{type}`")
    first = sorted(rows, key=lambda limits: (limits != (OPSETS[0], "", ""), rows[limits]))
    lines = [
        f"| {', '.join(rows[limits])} | {limits[0]} | {limits[1]} | {limits[2]} |\n"
        for limits in first
    ]
    return f"{len(mappings())} operators:\n\n" + _HEAD + "".join(lines)


def write(text: str) -> str:
    """The text of a guide with its table brought up to date.

    Raises:
        ValueError: the lines around the table are missing.
    """
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"the guide has no lines {_BEGIN.strip()} and {_END.strip()}")
    return before + begin + "\n" + table() + "\n" + end + after


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser("python -m dpexec.onnx.exporting", description=__doc__)
    parser.add_argument("guide", type=Path, help="docs/onnx.md")
    guide = parser.parse_args(arguments).guide
    guide.write_text(write(guide.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
