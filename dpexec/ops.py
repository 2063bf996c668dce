"""``python -m dpexec.ops``: the table of operators, and their differences from Paddle 1.8.5.

``coverage`` prints the operators, and which of Paddle's are missing and why; ``differences
docs/differences.md`` regenerates the table of operators in that guide; ``files
dpexec/engine/ops/files.txt`` regenerates the index of their files, ``kernels
dpexec/engine/kernels/files.txt`` that of the kernels that implement them.

``tier1.txt`` lists the operator types that dense, convolutional and sparse-embedding programs for
fluid use, the most frequent first.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from dpexec.engine.core.interrupts import quiet_ends
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import OpDef, SampleRng
from dpexec.engine.kernels import implementations
from dpexec.engine.kernels.implementations import backends_of
from dpexec.engine.ops import LAYER, _differences
from dpexec.engine.ops._absent import ABSENT, here, paddle_types
from dpexec.layers.ops import has_layer

__all__ = ["coverage", "files", "main", "missing", "tier1"]


def tier1() -> list[str]:
    """The operator types that programs use, the most frequent first.

    Returns:
        The types.

    Example:
        >>> from dpexec import ops
        >>> types = ops.tier1()
        >>> ops.missing(types[:50])
        []
    """
    return resources.files("dpexec.engine.ops").joinpath("tier1.txt").read_text("utf-8").split()


def missing(types: Iterable[str]) -> list[str]:
    """The operator types that dpexec does not have.

    Args:
        types: operator types.

    Returns:
        The types among them, in their order.

    Example:
        >>> from dpexec import ops
        >>> ops.missing(["relu", "no_such_operator"])
        ['no_such_operator']
    """
    return [t for t in types if t not in opdef.registered()]


def coverage() -> str:
    """The table of all operators as text.

    It says which kernels each operator has, and names those that Paddle 1.8.5 has and dpexec lacks.

    Returns:
        The table, for a terminal.

    Example:
        >>> from dpexec import ops
        >>> print(ops.coverage())  # doctest: +SKIP
    """
    known = opdef.registered()
    width = max(map(len, known)) + 2
    wanted, theirs = tier1(), set(paddle_types())
    columns = f"{'kernels':<15}{'gradient':<10}{'samples':<9}{'ulps':<15}{'Paddle':<8}tier 1"
    lines = [f"{'operator':<{width}}{columns}"]
    for name in sorted(known):
        sampled, shared = _samples(known[name]), "yes" if name in theirs else "no"
        given = f"{_kernels(name):<15}{_gradient(known[name]):<10}{sampled:<9}"
        cells = f"{given}{_ulps(known[name]):<15}{shared:<8}"
        lines.append(f"{name:<{width}}{cells}{'yes' if name in wanted else ''}".rstrip())
    absent = missing(wanted)
    lines += [
        "",
        f"{len(known)} operators; 'by x' samples: the numeric gradients of operator x check it.",
        "kernels beside the declared one, which runs on NumPy and CuPy: 'code' is a lowering to "
        "machine code, 'host' is called from Python on processors, 'gpu' on GPUs.",
        "ulps: by how many units in the last place results may differ from the exact ones; 'of "
        "operands': as much as operands that differ by one unit change them, so many times.",
        *_compared(),
        f"tier 1: {len(wanted) - len(absent)} of {len(wanted)} types",
        "missing: " + (", ".join(absent) if absent else "nothing"),
    ]
    return "\n".join(lines)


def files() -> str:
    """The index of the files of ``dpexec.engine.ops``: a line for each file with its types.

    Returns:
        The content of ``files.txt``.

    Example:
        >>> from dpexec import ops
        >>> print(ops.files().splitlines()[0])
        accuracy: accuracy
    """
    found: dict[str, list[str]] = {}
    for type, definition in opdef.registered().items():
        package, _, name = definition.module.rpartition(".")
        if package == "dpexec.engine.ops":
            found.setdefault(name, []).append(type + LAYER * has_layer(definition))
    return "".join(f"{name}: {' '.join(found[name])}\n" for name in sorted(found))


def _compared() -> list[str]:
    """Paddle 1.8.5's operators on CPUs: how many are here, and why the others are missing."""
    theirs, shared = paddle_types(), here()
    absent = missing(theirs)
    width = max(map(len, absent), default=0) + 2
    more = len(opdef.registered()) - len(shared)
    return [
        f"Paddle 1.8.5 registers {len(theirs)} operators on CPUs: {len(shared)} are here, "
        f"{len(absent)} are not; {more} here are of GPUs, later versions, or dpexec's own",
        *(f"  {name:<{width}}{ABSENT.get(name, 'no reason is known')}" for name in absent),
    ]


def _kernels(type: str) -> str:
    return "+".join(backends_of(type)) or "-"


def _gradient(definition: OpDef) -> str:
    if definition.make_grad is not None:
        return "yes"
    return "none" if definition.no_grad else "-"


def _ulps(definition: OpDef) -> str:
    if definition.operand_ulps is not None:
        return f"{definition.operand_ulps} of operands"
    return "" if definition.ulps is None else str(definition.ulps)


def _samples(definition: OpDef) -> str:
    if definition.samples is not None:
        return str(len(definition.samples(SampleRng())))
    forward = definition.type.removesuffix("_grad")
    return "by x" if forward != definition.type else "0"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line ``python -m dpexec.ops``.

    Args:
        arguments: the arguments; None takes those of the process.

    Returns:
        The exit status.

    Example:
        >>> from dpexec import ops
        >>> ops.main(["coverage"])  # doctest: +SKIP
    """
    parser = argparse.ArgumentParser("python -m dpexec.ops", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("coverage", help="print the table of operators")
    differences = commands.add_parser("differences", help="write the table of differences")
    differences.add_argument("guide", type=Path, help="docs/differences.md")
    listed = commands.add_parser("files", help="write the index of the files of operators")
    listed.add_argument("index", type=Path, help="dpexec/engine/ops/files.txt")
    kernels = commands.add_parser("kernels", help="write the index of the files of kernels")
    kernels.add_argument("index", type=Path, help="dpexec/engine/kernels/files.txt")
    options = parser.parse_args(arguments)
    with quiet_ends():
        if options.command == "files":
            options.index.write_text(files(), encoding="utf-8")
        elif options.command == "kernels":
            options.index.write_text(implementations.files(), encoding="utf-8")
        elif options.command == "differences":
            _differences.update(options.guide)
        else:
            print(coverage())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
