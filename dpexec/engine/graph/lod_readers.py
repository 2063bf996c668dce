"""Which variables of a program operators read the sequences of."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from weakref import WeakKeyDictionary

from dpexec.engine.core.lod import LOD_SUFFIX
from dpexec.engine.ir.opdef import Slot
from dpexec.engine.ir.program import Program

__all__ = ["lod_slots", "may_lack_sequences", "read_by_operators"]


def lod_slots(slots: tuple[Slot, ...]) -> list[tuple[Slot, str]]:
    """The slots for offsets, each with the slot of the variables whose sequences they describe."""
    return [(s, s.name.removesuffix(LOD_SUFFIX)) for s in slots if s.name.endswith(LOD_SUFFIX)]


def read_by_operators(program: Program, names: Iterable[str]) -> set[str]:
    """The variables of whose sequences an operator would read the offsets, if they had some.

    Args:
        program: the program.
        names: names of variables that are fed.
    """
    sources = {name: {name} for name in names}
    found: set[str] = set()
    ops = program.global_block().ops
    for op in chain.from_iterable(outer.with_inner() for outer in ops):
        read = [sources[name] for name in op.reads if name in sources]
        if read and lod_slots(op.definition.inputs):
            found.update(*read)
        for name in op.writes if read else ():
            sources[name] = sources.get(name, set()).union(*read)
    return found


_LACKING: WeakKeyDictionary[Program, tuple[int, set[str]]] = WeakKeyDictionary()
"""By program, its version, and what :func:`may_lack_sequences` gives for it."""


def may_lack_sequences(program: Program) -> set[str]:
    """The fed variables whose offsets are read by operators that also work without sequences.

    If arrays are fed to them, the program needs another form, without these offsets. Variables
    that some operator needs sequences of are left out: that they lack them is an error.
    """
    version, found = _LACKING.get(program, (-1, set[str]()))
    if version != program._version:
        found = _may_lack(program)
        _LACKING[program] = program._version, found
    return found


def _may_lack(program: Program) -> set[str]:
    known = program.global_block().vars.values()
    sources = {var.name: {var.name} for var in known if var.lod_level and not var.persistable}
    found: set[str] = set()
    needed: set[str] = set()
    ops = program.global_block().ops if sources else ()
    for op in chain.from_iterable(outer.with_inner() for outer in ops):
        slots = lod_slots(op.definition.inputs)
        for slot, owner in slots:
            reading = found if slot.optional else needed
            reading.update(*(sources.get(name, ()) for name in op.inputs.get(owner, [])))
        read = [sources[name] for name in op.reads if name in sources]
        if op.definition.rows_stay is not None or op.definition.joins is not None:
            found.update(*read)
        own = lod_slots(op.definition.outputs) and all(slot.optional for slot, _ in slots)
        for name in op.writes if read and not own else ():
            sources[name] = sources.get(name, set()).union(*read)
    return found - needed
