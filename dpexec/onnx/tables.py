"""The tables of operators in the guide to ONNX: ``python -m dpexec.onnx.tables docs/onnx.md``."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path

import dpexec.onnx.exporting.mappings
import dpexec.onnx.loading.operators  # noqa: F401 - both fill their tables of mappings
from dpexec.onnx.exporting.mapping import OPSETS, mappings
from dpexec.onnx.loading.mapping import MAPPINGS

__all__ = ["exported", "loaded", "main", "update"]


def exported() -> str:
    """Fluid's operators that can be exported, one row per set of limits."""
    rows: dict[tuple[int, str, str], list[str]] = {}
    for type, mapping in mappings().items():
        limits = mapping.opset, ", ".join(f"`{c}`" for c in sorted(mapping.constants))
        rows.setdefault((*limits, mapping.without), []).append(f"`{type}`")
    first = sorted(rows, key=lambda limits: (limits != (OPSETS[0], "", ""), rows[limits]))
    lines = [
        f"| {', '.join(rows[limits])} | {limits[0]} | {limits[1]} | {limits[2]} |\n"
        for limits in first
    ]
    titles = ("operators", "from opset", "must be constants", "cannot be exported")
    head = f"| {' | '.join(titles)} |\n|---|---|---|---|\n"
    return f"\n{len(mappings())} operators:\n\n{head}{''.join(lines)}\n"


def loaded() -> str:
    """ONNX's operators that can be loaded, one row per mapping."""
    rows: dict[str, list[str]] = {}
    for (domain, name), function in sorted(MAPPINGS.items()):
        remark = (inspect.getdoc(function) or "").splitlines()[0].replace("``", "`")
        rows.setdefault(remark, []).append(f"`{f'{domain}.' if domain else ''}{name}`")
    lines = [f"| {', '.join(names)} | {remark} |" for remark, names in rows.items()]
    return "| operators | how |\n|---|---|\n" + "\n".join(sorted(lines)) + "\n"


_TABLES: dict[str, Callable[[], str]] = {
    "exported operators": exported,
    "loaded operators": loaded,
}


def update(text: str) -> str:
    """The text of a guide with both tables brought up to date, each between two marks.

    Raises:
        ValueError: a mark is missing.
    """
    for name, table in _TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            raise ValueError(f"the guide has no lines {begin.strip()} and {end.strip()}")
        text = before + begin + table() + end + after
    return text


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser("python -m dpexec.onnx.tables", description=__doc__)
    parser.add_argument("guide", type=Path, help="docs/onnx.md")
    guide = parser.parse_args(arguments).guide
    guide.write_text(update(guide.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
