"""The table of ONNX operators that can be loaded: ``python -m dpexec.onnx.loading.tables FILE``.

Writes it into a guide, between two marks.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from dpexec.onnx.loading import operators  # noqa: F401  (fills the table of mappings)
from dpexec.onnx.loading.mapping import MAPPINGS

__all__ = ["table", "update"]

_BEGIN, _END = "<!-- loaded operators -->\n", "<!-- end of loaded operators -->\n"


def table() -> str:
    """The table in Markdown: what is loaded by one mapping is a row."""
    rows: dict[str, list[str]] = {}
    for (domain, name), function in sorted(MAPPINGS.items()):
        remark = (inspect.getdoc(function) or "").splitlines()[0].replace("``", "`")
        rows.setdefault(remark, []).append(f"`{f'{domain}.' if domain else ''}{name}`")
    lines = [f"| {', '.join(names)} | {remark} |" for remark, names in rows.items()]
    return "| operators | how |\n|---|---|\n" + "\n".join(sorted(lines)) + "\n"


def update(text: str) -> str:
    """A guide with the table between its marks.

    Raises:
        ValueError: the guide has no marks.
    """
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the guide has no lines {_BEGIN.strip()} and {_END.strip()}")
    return f"{before}{begin}{table()}{end}{after}"


if __name__ == "__main__":
    guide = Path(sys.argv[1])
    guide.write_text(update(guide.read_text(encoding="utf-8")), encoding="utf-8")
