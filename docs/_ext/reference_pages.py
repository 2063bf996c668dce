"""The pages of the reference that are made of the code: operators, and the help of commands."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

import dpexec.engine.ops  # noqa: F401 - registers all operators
from dpexec.cli import main
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import OpDef, Slot
from dpexec.engine.kernels.implementations import backends_of

OPERATORS = """\
Operators
=========

A layer adds operators to the program; this is the list of them, as they appear in
``program.global_block().ops``. Names in italics may be left out, those with dots take several
variables. Attributes have their defaults; those without one must be given. Attributes that only
choose among libraries of Paddle (``use_cudnn``, ``use_mkldnn`` and their kin) are accepted and not
listed.

*Engines*: each operator runs on NumPy, and on GPUs by CuPy. ``code`` is machine code, part of a
whole step; ``host`` is machine code that Python calls; ``gpu`` is a kernel of its own for GPUs.
``python -m dpexec.ops coverage`` prints accuracy and tests of each, too, and which operators of
Paddle are missing, and why.

.. list-table::
   :header-rows: 1
   :widths: 18 22 30 15 15
   :class: operators

   * - operator
     - inputs → outputs
     - attributes
     - engines
     - gradient
"""
IGNORED = (
    "mkldnn",
    "cudnn",
    "quantizer",
    "Scale_",
    "fuse_",
    "force_fp32",
    "workspace",
    "exhaustive",
)


def write_pages(app: Sphinx) -> None:
    """Write the list of operators where the pages of names are."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    text = OPERATORS + "".join(_rows())
    file = folder / "operators.rst"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def _rows() -> Iterator[str]:
    known = opdef.registered()
    for name in sorted(known):
        if name.removesuffix("_grad") != name and name.removesuffix("_grad") in known:
            continue  # it is in the row of its operator
        definition = known[name]
        inputs, outputs = _slots(definition.inputs), _slots(definition.outputs)
        engines = ", ".join(f"``{backend}``" for backend in backends_of(name))
        cells = [f"``{name}``", f"{inputs} → {outputs}", _attributes(definition), engines]
        first, *rest = [*cells, _gradient(definition, known)]
        yield f"   * - {first}\n" + "".join(f"     - {cell}\n" for cell in rest)


def _slots(slots: tuple[Slot, ...]) -> str:
    shown = (f"{slot.name}{' ...' if slot.many else ''}" for slot in slots)
    pairs = zip(shown, slots, strict=True)
    return ", ".join(f"*{text}*" if slot.optional else text for text, slot in pairs) or "nothing"


def _attributes(definition: OpDef) -> str:
    attrs = {k: v for k, v in definition.attrs.items() if not any(i in k for i in IGNORED)}
    needed = [f"``{name}``" for name in definition.required if name not in attrs]
    return ", ".join([*needed, *(f"``{name}={value!r}``" for name, value in sorted(attrs.items()))])


def _gradient(definition: OpDef, known: dict[str, OpDef]) -> str:
    if definition.make_grad is None:
        return "has none" if definition.no_grad else ""
    grad = f"{definition.type}_grad"
    if grad not in known:
        return "by other operators"
    engines = ", ".join(f"``{backend}``" for backend in backends_of(grad))
    return f"yes: {engines}" if engines else "yes"


class CommandHelp(Directive):
    """What a command of dpexec says with ``--help``; its name is the argument, if it has one."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make a block of the text."""
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            main([*self.arguments, "--help"])
        return [nodes.literal_block(text=shown.getvalue(), language="text")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", write_pages, priority=600)  # api_pages has cleared the folder
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
