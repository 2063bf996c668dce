"""Checks without Sphinx that everything the documentation refers to is on the site.

``make docs`` finds every reference that leads nowhere, in minutes and in an environment of its own.
This finds most of them in seconds: roles and errors in docstrings of public names and their
members, types in signatures, roles and anchors in pages.
"""

import ast
import functools
import inspect
import re
import sys
from pathlib import Path

from meanings import HOMES, around, expanded, meanings, module

DOCS = Path(__file__).parents[1] / "docs"
ROLE = re.compile(
    r"(?::py)?:(?:func|class|meth|attr|mod|exc|data|obj):`~?\.?(?:[^`<]*<)?([\w.]+)>?`"
)
MARKDOWN_ROLE = re.compile(r"\{(?:py:)?(?:func|class|meth|attr|mod|exc|data|obj)\}`~?([\w.]+)`")
NO_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)


@functools.cache
def elsewhere():
    """Names in the inventories of other sites, and those that the site's settings let pass."""
    lines = "\n".join(path.read_text() for path in (DOCS / "_inventories").glob("*.txt"))
    settings = (DOCS / "conf.py").read_text()
    ignored = re.findall(r'^    \("py:\w+", "([\w.]+)"\)', settings, re.MULTILINE)
    return {line.split()[0] for line in lines.splitlines() if line.strip()} | set(ignored)


def leads_somewhere(target, spaces):
    """Whether the site finds a name that documentation refers to."""
    target = expanded(target)
    ends = any(
        home.endswith(f".{target}") for home in HOMES.values()
    )  # Sphinx looks for those, too
    known = target in elsewhere() or bool(module(target))
    meant = [key for key, _ in meanings(target, spaces)]
    without_page = target.startswith("dpexec.") or "." not in target  # shown without a link
    return known or ends or any(key in HOMES for key in meant) or bool(without_page and meant)


def docstrings(value):
    """The documentation of a public object and its public members: (what, text) each."""
    yield "", value.__doc__ or ""
    if inspect.isclass(value):
        for body in _bodies(value):
            for before, node in zip([None, *body], body, strict=False):
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    yield node.name, ast.get_docstring(node) or ""
                elif isinstance(before, ast.AnnAssign | ast.Assign) and _is_text(node):
                    yield ast.unparse(before).split()[0], node.value.value


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


def _bodies(kind):
    """The source of a class, and of those bases whose members are shown with it."""
    for base in kind.__mro__:
        if base is kind or base.__module__.startswith("dpexec"):
            path = base.__qualname__.split(".")
            body = _tree(base.__module__).body
            for part in path:
                found = [n for n in body if isinstance(n, ast.ClassDef) and n.name == part]
                body = found[-1].body if found else []
            yield body


@functools.cache
def _tree(place):
    path = getattr(sys.modules[place], "__file__", None)
    return ast.parse(Path(path).read_text(encoding="utf-8") if path else "")


def errors_named_by(text):
    """The exceptions in the section ``Raises``."""
    section = re.search(r"^( *)Raises:\n((?:\1 +.*\n?|\n)*)", text, re.MULTILINE)
    if not section:
        return []
    lines = inspect.cleandoc("\n" + section[2]).splitlines()
    return [found[1] for line in lines if (found := re.match(r"([A-Z][\w.]*):", line))]


def lost(name):
    """References in the documentation of a public name that lead nowhere."""
    value = name.value
    inner = inspect.unwrap(value) if callable(value) else value
    spaces = [*around(inner), sys.modules[name.module]]
    for member, text in docstrings(value):
        for target in (*ROLE.findall(text), *errors_named_by(text)):
            if not leads_somewhere(target, spaces):
                yield f"{name.full} {member}: {target}"
        for paragraph in text.split("\n\n"):
            if paragraph.count("``") % 2:
                yield f"{name.full} {member}: a literal that does not end: {paragraph.strip()}"
    for target in _types(inner):
        if not (target in elsewhere() or target.startswith(("dpexec.", "builtins."))):
            yield f"{name.full}: the type {target} in its signature"


def _types(value):
    """Full names of the types in a signature, where Python finds them."""
    try:
        signature = inspect.signature(value, eval_str=True)
    except (TypeError, ValueError, NameError, AttributeError):
        return  # shown as it is written
    annotations = [p.annotation for p in signature.parameters.values()]
    for annotation in (*annotations, signature.return_annotation):
        if inspect.isclass(annotation) and annotation.__module__ != "inspect":
            yield f"{annotation.__module__}.{annotation.__qualname__}"


def lost_in_page(page):
    """Anchors and roles of a Markdown page that lead nowhere."""
    text = page.read_text(encoding="utf-8")
    for target in MARKDOWN_ROLE.findall(text):
        if not leads_somewhere(target, ()):
            yield f"{page.name}: {target}"
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", text):
        other = (page.parent / path).resolve() if path else page
        if other.suffix == ".md" and anchor not in anchors(other):
            yield f"{page.name}: {path}#{anchor}"


@functools.cache
def anchors(page):
    """The anchors of a page's headings, as MyST and GitHub make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    titles = re.findall(r"^#{1,4} (.*)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "") for title in titles)
    labels = re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain} | {*labels}
