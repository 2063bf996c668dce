"""The programs and commands that the guides show, for the tests that run them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILT = {"_build", "api", "notebooks", "project"}  # what `make docs` writes into docs


def _written(folder: str) -> list[Path]:
    paths = sorted((ROOT / folder).rglob("*.md"))
    return [path for path in paths if path.relative_to(ROOT / folder).parts[0] not in BUILT]


GUIDES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *_written("docs"),
    ROOT / "tests" / "benchmarks" / "README.md",
]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def programs(guide: str) -> list[str]:
    """The blocks of Python in a guide, in their order.

    Each has empty lines before it, so that errors point at lines of the guide.

    Args:
        guide: its path below the root.
    """
    text = (ROOT / guide).read_text(encoding="utf-8")
    blocks = [block for block in _FENCED.finditer(text) if block[1] == "python"]
    return ["\n" * text[: block.start(2)].count("\n") + block[2] for block in blocks]


def commands(text: str, program: str) -> Iterator[list[str]]:
    """The arguments of all calls of a program: in blocks of code, and between backticks."""
    lines = re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)
    for language, code in _FENCED.findall(text):
        lines += [] if language else code.replace("\\\n", "").splitlines()
    for line in [*lines, *re.findall(r"`([^`\n]+)`", _FENCED.sub("", text))]:
        if called := re.match(rf"(?:\w+=\S+ )*{program}(?: +(.*))?$", line):
            yield shlex.split(called[1] or "", comments=True)
