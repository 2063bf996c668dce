"""What each file of operators declares where no other was asked for, in a process of its own.

Prints, by type, the lines of which the declaration differs from the one that a process has which
imported all files; and the types that are found by importing all files alone.
"""

import dataclasses
import json
import multiprocessing
import re
import sys

import dpexec  # noqa: F401 - declares gradients of loops, too
from dpexec.engine import ops
from dpexec.engine.ir import opdef


def facts(definition):
    """The declaration as text, which is the same in all processes."""
    return {
        field.name: told(getattr(definition, field.name))
        for field in dataclasses.fields(definition)
    }


def told(value):
    """A value as text."""
    if isinstance(value, opdef.OpDef):
        return value.type
    code = getattr(value, "__code__", None)
    if code is not None:
        return f"{value.__module__}.{value.__qualname__}:{code.co_firstlineno}"
    if isinstance(value, frozenset | set):
        return repr(sorted(value, key=repr))
    if callable(value):
        return f"{type(value)}"
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


def alone(name, types):
    """In a child process: what the types of a file are, and whether other files were needed."""
    found = {type: facts(opdef.get(type)) for type in types}
    return found, opdef.library._complete, name


def main():
    """Ask for each file in a process that has imported none but those of ``import dpexec``."""
    assert not opdef.library._complete, "import dpexec imports all files"
    rows = {name: [type.rstrip(ops.LAYER) for type in types] for name, types in ops.index().items()}
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        found = pool.starmap(alone, rows.items(), chunksize=1)
    everything = {type: facts(definition) for type, definition in opdef.registered().items()}
    different, complete = {}, []
    for types, all_imported, name in found:
        complete += [name] * all_imported
        for type, told_alone in types.items():
            wrong = [f"{k}: {v}" for k, v in told_alone.items() if everything[type][k] != v]
            if wrong:
                different[type] = wrong
    json.dump([different, complete], sys.stdout)


if __name__ == "__main__":
    main()
