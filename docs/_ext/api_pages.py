"""Pages of the site for every public name, written when it is built, and links to them."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_origin

import families
import public_names
from docutils import nodes
from meanings import HOMES, Meaning, around, expanded, meanings, module, reach
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import dpexec.layers.learning_rate_scheduler as scheduler

PLAIN = (object, int, str, float, dict, list, tuple, set, BaseException, Exception)


def write_pages(app: Sphinx) -> None:
    """Write ``docs/api``: a page for each module, and one for each name that it describes."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    known: dict[str, list[public_names.Name]] = {place: [] for place in public_names.modules()}
    for name in public_names.names():
        known[name.module].append(name)
    texts = {"index": _index()}
    for place, found in known.items():
        texts[place] = _module_page(place, found)
        own = (name for name in found if name.home == name.full)
        texts |= {public_names.page_of(name.full): _name_page(name) for name in own}
    for file in folder.glob("dpexec*.rst"):
        if file.stem not in texts:
            file.unlink()
    for stem, text in texts.items():
        file = folder / f"{stem}.rst"
        if not file.exists() or file.read_text(encoding="utf-8") != text:  # else it is built again
            file.write_text(text, encoding="utf-8")


def _index() -> str:
    lines = [*_title("Every public name"), "``import dpexec as fluid`` gives all of these.", ""]
    for section, places in public_names.SECTIONS.items():
        lines += [*_title(section, "-"), ".. toctree::", "   :maxdepth: 1", ""]
        lines += [*(f"   {place}" for place in places), ""]
    return "\n".join(lines)


def _module_page(place: str, found: list[public_names.Name]) -> str:
    lines = [*_title(f"{place}"), f".. automodule:: {place}", "   :no-members:", ""]
    if not any(name.home == name.full for name in found) and not found:
        return "\n".join(lines)
    lines += [".. list-table::", "   :widths: 30 70", "   :class: names", ""]
    for name in found:
        page = public_names.page_of(name.home)
        lines += [f"   * - :doc:`{name.name} <{page}>`", f"     - {_summary(name)}"]
    own = [name for name in found if name.home == name.full]
    if own:
        lines += ["", ".. toctree::", "   :hidden:", ""]
        lines += [f"   {name.name} <{public_names.page_of(name.full)}>" for name in own]
    return "\n".join([*lines, ""])


def _summary(name: public_names.Name) -> str:
    if public_names.identity(name.value) is None and not callable(name.value):
        return f"a constant of type ``{type(name.value).__name__}``"
    first = " ".join(public_names.text(name).split("\n\n")[0].split())
    return re.sub(r":\w+:`~?([^`]+)`", r"``\1``", first)  # links are on the page of the name


def _name_page(name: public_names.Name) -> str:
    lines = _title(name.full)
    target = f"{name.module}::{name.name}"
    home = public_names.identity(name.value)
    if home and not home[0].startswith("dpexec"):
        lines += [f"The same as :py:obj:`{'.'.join(home).removeprefix('builtins.')}`."]
    elif isinstance(name.value, type):
        inside = vars(name.value).items()
        elsewhere = [k for k, v in inside if type(v).__module__.startswith("sklearn.")]
        nested = elsewhere + [k for k, v in inside if public_names.identity(v) in HOMES]
        lines += [f".. autoclass:: {target}", "   :members:", "   :show-inheritance:"]
        lines += [f"   :inherited-members: {_described_bases(name.value)}"]
        lines += [f"   :exclude-members: {', '.join(nested)}"] if nested else []
    elif get_origin(name.value) is Annotated:
        lines += [f".. py:data:: {name.full}", "", f"   {public_names.text(name)}"]
    elif inspect.isroutine(name.value) or hasattr(name.value, "__wrapped__"):
        lines += [f".. autofunction:: {target}"]
    else:
        lines += [f".. autodata:: {target}"]
    if not _is_documented_by_autodoc(name):
        lines += ["", *_see_also(name.full)]
    return "\n".join([*lines, ""])


def _is_documented_by_autodoc(name: public_names.Name) -> bool:
    """Whether :func:`add_see_also` sees its docstring; else its page says what is beside it."""
    home = public_names.identity(name.value)
    return home is not None and home[0].startswith("dpexec")


@functools.cache
def _known() -> dict[str, public_names.Name]:
    """All public names."""
    return {name.full: name for name in public_names.names()}


def _see_also(full: str) -> list[str]:
    """The section about the neighbours of a name, each with its first sentence."""
    lines = []
    for other in families.neighbours(full):
        first = _summary(_known()[other]).partition(" Source: ")[0]
        lines.append(f"   :py:obj:`~{other}`: {re.split(r'(?<=[.;:]) ', first)[0].rstrip(';:')}")
        lines.append("")
    return [".. seealso::", "", *lines] if lines else []


def add_see_also(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Give docstrings without a ``See Also`` the neighbours of their families."""
    if what in ("function", "class", "exception") and "See Also:" not in lines:
        found = _see_also(name)
        examples = [place for place, line in enumerate(lines) if line in ("Example:", "Examples:")]
        place = examples[0] if examples else len(lines)
        lines[place:place] = ["", *found]


COMMON_ERRORS = """Raises:
    TypeError: an argument is no variable, or has a type that the layer does not take.
    EnforceNotMet: shapes or attributes do not fit."""
SCHEDULE_ERRORS = """Raises:
    TypeError: an argument has the wrong type.
    ZeroDivisionError: a number of steps is 0."""


def add_errors(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Give layers and learning rates that list no errors of their own those of all of them."""
    if what != "function" or not name.startswith("dpexec.layers.") or "Raises:" in lines:
        return
    first = next(iter(inspect.signature(value).parameters.values()), None)
    schedule = inspect.getsourcefile(inspect.unwrap(value)) == scheduler.__file__
    if schedule or (first is not None and "Variable" in str(first.annotation)):
        behind = [lines.index(one) for one in ("See Also:", "Example:") if one in lines]
        place = min(behind, default=len(lines))
        common = SCHEDULE_ERRORS if schedule else COMMON_ERRORS
        lines[place:place] = [*common.splitlines(), ""]


def _described_bases(kind: type) -> str:
    """Bases with a page of their own, and those of Python: their methods are not repeated."""
    bases = kind.__mro__[1:]
    shown = [b for b in bases if public_names.identity(b) in HOMES or "dpexec" not in b.__module__]
    return ", ".join(sorted({base.__name__ for base in (*shown, *PLAIN)}))


def _title(text: str, line: str = "=") -> list[str]:
    return [text, line * len(text), ""]


def qualify(app: Sphinx, document: nodes.document) -> None:
    """Give references the public names of what they mean, seen from the object that says it."""
    for node in list(document.findall(addnodes.pending_xref)):
        if node.get("refdomain") != "py":
            continue
        target = node["reftarget"] = expanded(node["reftarget"])
        found = [HOMES[key] + rest for key, rest in _meanings(node) if key in HOMES]
        if found:
            node["reftarget"], node["refspecific"] = found[0], False
        elif _in_signature(node) and sum(h.endswith(f".{target}") for h in HOMES.values()) > 1:
            node.replace_self(nodes.Text(target))  # nobody knows which


def resolve(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Show what has no page without a link.

    A name in prose that is nothing at all is left alone, of which Sphinx warns.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    domain = env.domains.python_domain
    if target in domain.objects:  # a role for another kind: `class` of what is made by a function
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)
    ours = target.startswith("dpexec.") or "." not in target
    if ours and (_in_signature(node) or module(target) or any(_meanings(node))):
        return content
    return None


def _meanings(node: addnodes.pending_xref) -> Iterator[Meaning]:
    """Objects that the name of a reference may be."""
    return meanings(node["reftarget"], _spaces(node))


def _spaces(node: addnodes.pending_xref) -> Iterator[Any]:
    """Where a name is looked up: in the class that speaks, its module, those of its bases."""
    described = [parent for parent in _parents(node) if isinstance(parent, addnodes.desc)]
    for description in described:
        for signature in description.findall(addnodes.desc_signature):
            place = sys.modules.get(signature.get("module") or "")
            value = reach(place, signature.get("fullname", "").split("."))
            yield from around(inspect.unwrap(value) if callable(value) else value)
            break
    if (place := sys.modules.get(node.get("py:module") or "")) is not None:
        yield place


def _in_signature(node: nodes.Node) -> bool:
    return any(isinstance(parent, addnodes.desc_signature) for parent in _parents(node))


def _parents(node: nodes.Node) -> Iterator[nodes.Node]:
    while node.parent is not None:
        node = node.parent
        yield node


COLON = "\N{RATIO}"
COLONS = re.compile(r"(:\w+:`[^`]*`|``.*?``|::)|:")  # but for those of roles and code


def hide_colons(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Keep napoleon from taking the words before a colon for the type of an attribute."""
    if what in ("attribute", "data", "property"):
        lines[:] = [COLONS.sub(lambda found: found[1] or COLON, line) for line in lines]


def show_colons(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Undo :func:`hide_colons`."""
    lines[:] = [line.replace(COLON, ":") for line in lines]


@functools.cache
def _sidebars() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Of each page in ``api``: its module, and the module's names with their pages."""
    found: dict[str, tuple[str, list[tuple[str, str]]]] = {
        f"api/{place}": (place, []) for place in public_names.modules()
    }
    for name in _known().values():
        if name.home == name.full:
            page = f"api/{public_names.page_of(name.full)}"
            found[page] = found[f"api/{name.module}"]
            found[page][1].append((name.name, page))
    return found


def show_module(
    app: Sphinx, page: str, template: str, context: dict[str, Any], document: nodes.document | None
) -> None:
    """Give the sidebar of a page in ``api`` the names of its module."""
    if page in _sidebars():
        context["module"], context["module_names"] = _sidebars()[page]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", hide_colons, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", add_errors, priority=440)
    app.connect("autodoc-process-docstring", add_see_also, priority=450)
    app.connect("autodoc-process-docstring", show_colons, priority=600)
    app.connect("doctree-read", qualify)
    app.connect("html-page-context", show_module)
    app.connect("missing-reference", resolve, priority=900)  # after intersphinx
    return {"parallel_read_safe": True, "parallel_write_safe": True}
