"""Source text behind operators: the user's statements, declarations, and what computed them."""

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
"""Lines of a statement that are told."""
_LARGEST = 20_000
"""Lines of a file in which statements are looked for; of larger ones the single line is told."""


class Listing(TypedDict):
    """The text of a function."""

    name: str  # with its module
    kind: Literal["declaration", "machine code", "Python"]
    takes: str  # the types of its arguments, where it was specialised for them; else ""
    source: str  # "" where nobody knows it any more


class Listings:
    """Texts, each once, by number.

    Attributes:
        all: in the order of their numbers.
    """

    def __init__(self, found: Iterable[Listing] = ()) -> None:
        self.all: list[Listing] = list(found)
        self._numbers = {_key(listing): number for number, listing in enumerate(self.all)}

    def number(self, listing: Listing) -> int:
        """The number of a text, which is added if it is new.

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
    """The source of a function; "" where there is none, as of one of C.

    Args:
        function: the function.
    """
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


class Statements:
    """The user's statements, by the line that operators know of them."""

    def __init__(self) -> None:
        self._spans: dict[str, dict[int, tuple[int, int]]] = {}

    def text(self, site: CallSite) -> str:
        """The statement that a line belongs to, of several lines at most so many; "" if unknown.

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
    """First and last line of the statement around each line; of those with a body, of its head."""
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
    """What is written of some operators, each once.

    Args:
        lines: the user's statements, by file and line.
        listings: texts of functions.
        declarations: numbers of those that declare operators, by their types.
    """

    lines: dict[str, str]
    listings: list[Listing]
    declarations: dict[str, int]


def texts_of(ops: Iterable[Operator | None], types: Iterable[str]) -> Texts:
    """What is written of some operators.

    Args:
        ops: operators that users made, with the blocks that they run; nothing is said of None.
        types: whose declarations are wanted; others than those of operators have none.
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
    """Operators, each once, with those of the blocks that they run."""
    seen: set[int] = set()
    for op in ops:
        if op is not None and id(op) not in seen:
            seen.add(id(op))
            yield op
            for block in op.bodies:
                yield from _with_inner(block.ops)
