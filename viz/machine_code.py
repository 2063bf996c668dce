"""`dpexec.viz.machine_code`: the instructions that a processor executes for an operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpexec.viz.pages.load import as_trace

from dpexec.engine.graph.listings import Listing


@dataclass(frozen=True)
class MachineCode:
    """A kernel that did the work of an operator, in three languages.

    Args:
        name: Name of the kernel, with its module.
        takes: Types of its arguments.
        python: Its Python source.
        llvm: The optimised LLVM IR that numba made from it.
        assembly: The instructions for this machine.

    Example:
        >>> from dpexec import viz
        >>> for code in viz.machine_code(replicas, "mul"):  # doctest: +SKIP
        ...     print(code.name, code.takes, len(code.assembly.splitlines()))
    """

    name: str
    takes: str
    python: str
    llvm: str
    assembly: str

    def __str__(self) -> str:
        parts = (self.takes, self.python.rstrip(), self.assembly.rstrip())
        return "\n\n".join([f"--- {self.name}", *(part for part in parts if part)])


class Codes(tuple[MachineCode, ...]):
    """Kernels; prints each with its source and its assembly."""

    def __repr__(self) -> str:
        return "\n\n".join(map(str, self))

    __str__ = __repr__


def machine_code(source: Any, op: str | int) -> Codes:
    """Return the machine code that did the work of an operator, down to the instructions.

    The kernels are compiled once more for this, because code cached on disk lacks the LLVM IR. That
    takes about a second per kernel.

    Args:
        source: A ParallelExecutor or CompiledProgram that recorded a trace in this process
            (`ExecutionStrategy.trace = True`), or its Trace.
        op: The type of an operator, e.g. "mul_grad", also of one that a loop runs, or the number of
            a node.

    Returns:
        Its kernels, each once: `print(...)` shows source and assembly, `[0].llvm` is the LLVM IR.

    Raises:
        ValueError: There is no such operator, or its work was done by Python, GPUs or other
            processes instead of machine code of this process.

    Example:
        >>> from dpexec import viz
        >>> print(viz.machine_code(replicas, "mul_grad"))  # source and assembly  # doctest: +SKIP
        >>> print(viz.machine_code(replicas, "relu")[0].llvm)  # doctest: +SKIP
    """
    from dpexec.engine.kernels.machine import at_address

    data = as_trace(source).graph or {"nodes": [], "listings": []}
    inner = [one for node in data["nodes"] for one in node.get("body", ())]
    nodes = [node for node in data["nodes"] if op in (node["name"], node["id"])]
    nodes += [one for one in inner if one["name"] == op]
    if not nodes:
        names = ", ".join(sorted({node["name"] for node in (*data["nodes"], *inner)}))
        raise ValueError(f"no operator {op!r}; there are {names}")
    numbers = dict.fromkeys(number for node in nodes for number in node.get("kernels", ()))
    listings: list[Listing] = [data["listings"][number] for number in numbers]
    known = {(str(kernel), kernel.source): kernel for kernel in at_address.values()}
    found = [known.get((one["name"], one["source"])) for one in listings]
    kernels = [kernel for kernel in found if kernel is not None]
    if not kernels:
        ran = ", ".join(one["name"] for one in listings) or "nothing that was recorded"
        raise ValueError(f"no machine code of this process did the work of {op!r}, but {ran}")
    return Codes(MachineCode(str(k), k.takes, k.source, *k.inspected) for k in kernels)
