"""Support for scripts that use one-element arrays as numbers, as NumPy allowed before 2.4.

``"%f" % np.exp([x])``, ``float(np.array([1.0]))``, ``int(...)``, ``math.sqrt(...)`` and ``row[i] =
np.array([1.0])`` were correct when fluid programs were written. As arrays cannot be patched,
`dpexec run` compiles these expressions of a script, and of modules beside it, to calls of the
functions here. Everything else, including line numbers, stays unchanged.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from dpexec.engine.run.fetch import array

__all__ = ["compiled", "explain_numbers", "formatted", "local_modules", "numbered", "stored"]

NEEDED = np.lib.NumpyVersion(np.__version__) >= "2.4.0"
"""Whether NumPy refuses what older scripts do."""

_CONVERTERS = (float, int, complex)
_COMPILERS = {"kernel", "jit", "njit", "vectorize", "guvectorize", "stencil", "cfunc"}
"""Decorators of dpexec and numba that compile functions."""
_REFUSALS = (
    "only 0-dimensional arrays can be converted",
    "a real number is required, not numpy.ndarray",
    "setting an array element with a sequence",
)


# ---- what rewritten scripts call


def _number(value: Any) -> Any:
    """Return a value, but a one-element array as an object that converts to a number."""
    return value.view(array) if type(value) is np.ndarray and value.size == 1 else value


def formatted(left: Any, right: Any) -> Any:
    """``left % right``, with one-element arrays formatted as numbers.

    Example:
        >>> formatted("loss %.2f, all %s", (np.array([0.5]), np.array([0.5])))
        'loss 0.50, all [0.5]'
    """
    if isinstance(left, str | bytes):
        if isinstance(right, tuple):
            right = tuple(map(_number, right))
        elif type(right) is dict:
            right = {name: _number(value) for name, value in right.items()}
        else:
            right = _number(right)
    return left % right


def numbered(function: Any, *arguments: Any, **named: Any) -> Any:
    """``function(...)``; functions that convert to numbers accept one-element arrays.

    Example:
        >>> numbered(float, np.array([[0.5]]))
        0.5
        >>> list(numbered(map, int, [np.array([3]), 4]))
        [3, 4]
    """
    if _makes_numbers(function):
        arguments = tuple(map(_number, arguments))
    elif function is map and arguments and _makes_numbers(arguments[0]):
        convert, *rest = arguments
        return map(lambda *values: convert(*map(_number, values)), *rest)
    return function(*arguments, **named)


def _makes_numbers(function: Any) -> bool:
    return (
        function in _CONVERTERS or getattr(math, getattr(function, "__name__", ""), 0) is function
    )


def stored(value: Any, holder: Any) -> Any:
    """The value that ``holder[...] = value`` stores; in arrays, a one-element array is a number."""
    return _number(value) if isinstance(holder, np.ndarray) else value


# ---- rewriting


class _Rewriter(ast.NodeTransformer):
    """Replaces formats, conversions and element assignments by calls."""

    def __init__(self, tree: ast.Module) -> None:
        self.names = {kind.__name__ for kind in _CONVERTERS} | {"map"}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "math":
                self.names |= {found.asname or found.name for found in node.names}
        self.used: set[str] = set()

    def _call(self, function: Callable[..., Any], node: ast.AST, *values: ast.expr) -> ast.Call:
        name = function.__name__
        self.used.add(name)
        called = ast.Name(_hidden(name), ast.Load())
        return _at(node, ast.Call(_at(node, called), list(values), []))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if any(_decorator(each) in _COMPILERS for each in node.decorator_list):
            return node  # its code becomes machine code, which calls no function of Python
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        number = isinstance(node.left, ast.Constant) and not isinstance(
            node.left.value, str | bytes
        )
        if not isinstance(node.op, ast.Mod) or number:
            return node
        return self._call(formatted, node, node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not (isinstance(node.op, ast.Mod) and isinstance(node.target, ast.Name)):
            return node
        old = _at(node, ast.Name(node.target.id, ast.Load()))
        return _at(node, ast.Assign([node.target], self._call(formatted, node, old, node.value)))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        named = isinstance(called, ast.Name) and called.id in self.names
        # np.float, np.int: names that NumPy had for Python's own
        of_module = (
            isinstance(called, ast.Attribute)
            and isinstance(called.value, ast.Name)
            and (called.value.id == "math" or called.attr in self.names)
        )
        if not (named or of_module):
            return node
        made = self._call(numbered, node, called, *node.args)
        made.keywords = node.keywords
        return made

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        (target, *others) = node.targets
        if others or not isinstance(target, ast.Subscript) or not _is_plain(target.value):
            return node
        holder = ast.parse(ast.unparse(target.value), mode="eval").body
        for part in ast.walk(holder):
            ast.copy_location(part, node)
        node.value = self._call(stored, node, node.value, holder)
        return node


def _hidden(name: str) -> str:
    return f"__dpexec_{name}__"  # which classes do not mangle


def _at(node: ast.AST, made: Any) -> Any:
    return ast.copy_location(made, node)


def _decorator(node: ast.expr) -> str:
    """The name of a decorator, without its module and its arguments."""
    called = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(called).rpartition(".")[2]


def _is_plain(node: ast.AST) -> bool:
    """Whether a node is a name or an attribute of one, which can safely be evaluated twice."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def compiled(source: bytes, path: str) -> CodeType:
    """Compile a script; with a new NumPy, one-element arrays work as numbers.

    Args:
        source: the script's source.
        path: the script's file.

    Raises:
        SyntaxError: the source is not valid Python.
    """
    if not NEEDED:
        return compile(source, path, "exec", dont_inherit=True)
    tree = ast.parse(source, path)
    rewriter = _Rewriter(tree)
    rewriter.visit(tree)
    if rewriter.used:
        names = [ast.alias(name, _hidden(name)) for name in sorted(rewriter.used)]
        first = ast.ImportFrom(__name__, names, 0, lineno=1, col_offset=0)
        tree.body.insert(_after_head(tree), first)
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def _after_head(tree: ast.Module) -> int:
    """The position of the first statement after the docstring and imports from ``__future__``."""
    place = 1 if ast.get_docstring(tree, clean=False) is not None else 0
    for node in tree.body[place:]:
        if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        place += 1
    return place


# ---- modules beside the script


class _Loader(importlib.machinery.SourceFileLoader):
    """A loader that always compiles, since cached bytecode lacks the changes."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compiled(self.get_data(path), path)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules of a folder, except installed packages below it.

    Args:
        folder: the script's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] == __name__.partition(".")[0]:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader:
            return None
        file = Path(spec.loader.path).resolve()
        if not file.is_relative_to(self.folder) or "site-packages" in file.parts:
            return None
        spec.loader = _Loader(fullname, spec.loader.path)
        return spec


@contextmanager
def local_modules(folder: Path) -> Iterator[None]:
    """Inside the with block, compile modules of a script's folder like the script.

    Args:
        folder: an absolute path.
    """
    finder = _Finder(folder)
    if NEEDED:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if NEEDED:
            sys.meta_path.remove(finder)


# ---- what is refused all the same


def explain_numbers(error: BaseException) -> None:
    """Add line and remedy to NumPy's error about an array that does not convert to a number."""
    cause: BaseException | None = error
    while cause is not None:
        refused = isinstance(cause, TypeError | ValueError)
        everywhere = traceback.extract_tb(cause.__traceback__)
        frames = [frame for frame in everywhere if frame.filename != __file__]
        if refused and frames and any(text in str(cause) for text in _REFUSALS):
            frame = frames[-1]
            error.add_note(
                f"{frame.filename}, line {frame.lineno}: NumPy {np.__version__} does not take an "
                "array for a number unless its shape is (). If it has one element, write .item() "
                "behind it, or run the script with an older NumPy: pip install 'dpexec[legacy]'"
            )
            return
        cause = cause.__cause__ or cause.__context__
