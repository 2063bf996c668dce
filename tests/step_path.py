"""Draws the calls of a step: ``docs/pictures/step.svg``.

Usage: python -m tests.step_path, from the root of the repository. A small net trains on two
replicas of this process. Each call of a function of dpexec in the caller's thread is a line, for a
step whose batch has a shape that was seen before. A test compares the file.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import dpexec as fluid
from tests.architecture import ROOT

PICTURE = ROOT / "docs" / "pictures" / "step.svg"
PACKAGE = ROOT / "dpexec"
WIDTH, LINE, INDENT, FILE, PURPOSE = 1180, 17, 14, 210, 590
LETTERS = 96  # of a purpose that fit beside the calls
LIGHT = ("#dcebd8", "#cfe3f5", "#f6dfc0", "#e8dcf0", "#f5d9d6", "#d9efee", "#efecc9", "#e4e4e4")


@dataclass
class Call:
    """One line of the picture.

    Args:
        depth: number of callers above it.
        path: the file of the function.
        name: the function, with its class.
        line: where the function begins in its file.
        times: how often it is called in a row.
    """

    depth: int
    path: Path
    name: str
    line: int
    times: int = 1

    @property
    def file(self) -> str:
        """Its path below the engine."""
        return self.path.relative_to(PACKAGE).as_posix().removeprefix("engine/")

    @property
    def purpose(self) -> str:
        """The first line of its documentation; "" if it has none."""
        for node in ast.walk(_parsed(self.path)):
            decorated = min(
                [getattr(node, "lineno", 0)]
                + [item.lineno for item in getattr(node, "decorator_list", ())]
            )
            if isinstance(node, ast.FunctionDef) and self.line in (node.lineno, decorated):
                found = ast.get_docstring(node)
                return re.sub(r":\w+:|`", "", (found or "").partition("\n")[0])
        return ""


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def trained() -> Any:
    """A function that makes another step of a small net."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4])
        loss = fluid.layers.mean(fluid.layers.fc(x, 2))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    replicas = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=fluid.cpu_places(2))
    batch = {"x": np.ones((8, 4), "float32")}
    step = functools.partial(exe.run, replicas, feed=batch, fetch_list=[loss])
    for _ in range(3):  # plans, code and threads are there
        step()
    return step


def calls() -> list[Call]:
    """The calls of the shortest of several steps, in which no sleeping thread had to be woken."""
    step = trained()
    return _merged(min((_recorded(step) for _ in range(20)), key=len))


def _recorded(step: Callable[[], Any]) -> list[Call]:
    found: list[Call] = []
    depth = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth
        code = frame.f_code
        path = Path(code.co_filename)
        if not path.is_relative_to(PACKAGE):
            return
        # How many libraries have threads to limit depends on what else the process has imported.
        hidden = "<locals>" in code.co_qualname or code.co_name == "_set_threads"
        if event == "call" and not hidden:
            name = code.co_qualname.removesuffix(".__call__")
            found.append(Call(depth, path, name, code.co_firstlineno))
        depth += {"call": 1, "return": -1}.get(event, 0)

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    return found


def _merged(found: Sequence[Call]) -> list[Call]:
    lines: list[Call] = []
    for call in found:
        last = lines[-1] if lines else None
        if last and (last.depth, last.path, last.name) == (call.depth, call.path, call.name):
            last.times += 1
        else:
            lines.append(call)
    return lines


def _row(number: int, call: Call, colour: str) -> Iterable[str]:
    y = 18 + LINE * number
    times = f" \N{MULTIPLICATION SIGN} {call.times}" if call.times > 1 else ""
    x = FILE + 16 + INDENT * call.depth
    yield (
        f'<rect x="8" y="{y - 12}" width="{FILE - 8}" height="{LINE - 2}" rx="3" fill="{colour}"/>'
    )
    yield f'<text x="14" y="{y}" class="file">{call.file}</text>'
    yield f'<text x="{x}" y="{y}" class="call">{escape(call.name)}{times}</text>'
    purpose = textwrap.shorten(call.purpose, LETTERS, placeholder=" …")
    yield f'<text x="{PURPOSE}" y="{y}">{escape(purpose)}</text>'


def picture() -> str:
    """The drawing as SVG."""
    found = calls()
    rooms = list(dict.fromkeys(call.file.partition("/")[0] for call in found))
    rows = [
        part
        for number, call in enumerate(found)
        for part in _row(number, call, LIGHT[rooms.index(call.file.partition("/")[0]) % len(LIGHT)])
    ]
    height = 18 + LINE * len(found)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif" font-size="11">',
            "<title>The calls of a step on two replicas of one process</title>",
            "<style>.call{font-weight:600}.file{font-size:10px}</style>",
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *rows,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))
