"""Source text behind operators: the user's statements, the declarations and the kernels."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypedDict

from dpexec.engine.graph.parts import line_of
from dpexec.engine.ir import opdef
from dpexec.engine.ir.callsite import CallSite
from dpexec.engine.ir.operator import Operator

__all__ = [
    "Listing",
    "Listings",
    "Statements",
    "Texts",
    "python_listing",
    "source_of",
    "texts_of",
]

_LONGEST = 12
"""How many lines of a statement are shown at most."""
_LARGEST = 20_000
"""The longest file, in lines, that is parsed for statements; in longer ones a single line is shown.
"""


class Listing(TypedDict):
    """The text of a function."""

    name: str  # with its module
    kind: Literal["declaration", "machine code", "Python"]
    takes: str  # the types of its arguments, where it was specialised for them; else ""
    source: str  # "" where nobody knows it any more


class Listings:
    """Distinct texts by number.

    Attributes:
        all: the texts in the order of their numbers.
    """

    def __init__(self, found: Iterable[Listing] = ()) -> None:
        self.all: list[Listing] = list(found)
        self._numbers = {_key(listing): number for number, listing in enumerate(self.all)}

    def number(self, listing: Listing) -> int:
        """The number of a text; a new text is added.

        Args:
            listing: the text.
        """
        number = self._numbers.setdefault(_key(listing), len(self.all))
        if number == len(self.all):
            self.all.append(listing)
        return number


def _key(listing: Listing) -> tuple[str, str, str]:
    return listing["kind"], listing["name"], listing["source"]


@functools.cache
def python_listing(
    function: Callable[..., Any], kind: Literal["declaration", "Python"] = "Python"
) -> Listing:
    """The text of a function, with its decorators.

    Args:
        function: the function.
        kind: what it is for.
    """
    plain = inspect.unwrap(getattr(function, "func", function))
    if not hasattr(plain, "__qualname__"):  # an object that can be called: its class has the text
        plain = type(plain)
    name = f"{plain.__module__}.{plain.__qualname__}"
    return {"name": name, "kind": kind, "takes": "", "source": source_of(plain)}


def source_of(function: Callable[..., Any]) -> str:
    """The source of a function; "" if there is none, such as for functions written in C.

    Args:
        function: the function.
    """
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


class Statements:
    """The user's statements, by the source line that operators record."""

    def __init__(self) -> None:
        self._spans: dict[str, dict[int, tuple[int, int]]] = {}

    def text(self, site: CallSite) -> str:
        """The statement around a line, cut to a maximum number of lines; "" if unknown.

        Args:
            site: the line.
        """
        lines = linecache.getlines(site.filename)
        if not 0 < site.line <= len(lines):
            return ""
        if site.filename not in self._spans:
            self._spans[site.filename] = _spans("".join(lines)) if len(lines) < _LARGEST else {}
        first, last = self._spans[site.filename].get(site.line, (site.line, site.line))
        return textwrap.dedent("".join(lines[first - 1 : min(last, first + _LONGEST - 1)])).rstrip()


def _spans(text: str) -> dict[int, tuple[int, int]]:
    """First and last line of the statement around each line; only the head if it has a body."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a cell with magic commands
        return {}
    found: dict[int, tuple[int, int]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        last = node.end_lineno or node.lineno
        if isinstance(body, list) and body:
            last = max(node.lineno, body[0].lineno - 1)
        found.update(dict.fromkeys(range(node.lineno, last + 1), (node.lineno, last)))
    return found


class Texts(TypedDict):
    """Source texts of some operators, without duplicates.

    Args:
        lines: the user's statements, by file and line.
        listings: texts of functions.
        declarations: for each operator type, the number of the text that declares it.
    """

    lines: dict[str, str]
    listings: list[Listing]
    declarations: dict[str, int]


def texts_of(ops: Iterable[Operator | None], types: Iterable[str]) -> Texts:
    """Collect the source texts of some operators.

    Args:
        ops: operators of the program, whose bodies are included; None is skipped.
        types: types whose declarations are wanted; names that are not operator types are skipped.
    """
    listings = Listings()
    found = {type: opdef.find(type) for type in dict.fromkeys(types)}
    declarations = {
        type: listings.number(python_listing(definition.kernel, "declaration"))
        for type, definition in found.items()
        if definition is not None
    }
    return {"lines": _lines(ops), "listings": listings.all, "declarations": declarations}


def _lines(ops: Iterable[Operator | None]) -> dict[str, str]:
    statements = Statements()
    lines: dict[str, str] = {}
    files: dict[str, str] = {}
    for op in _with_inner(ops):
        line = line_of(op)
        if line is None or op.callsite is None:
            continue
        file = op.callsite.filename
        if files.setdefault(line, file) != file:  # two files of one name
            lines[line] = ""
        elif line not in lines:
            lines[line] = statements.text(op.callsite)
    return lines


def _with_inner(ops: Iterable[Operator | None]) -> Iterator[Operator]:
    """The operators and, without duplicates, those of their bodies."""
    seen: set[int] = set()
    for op in ops:
        if op is not None and id(op) not in seen:
            seen.add(id(op))
            yield op
            for block in op.bodies:
                yield from _with_inner(block.ops)
