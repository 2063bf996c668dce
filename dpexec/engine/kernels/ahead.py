"""All kernels that stand in this package, to be compiled ahead of their first use."""

from __future__ import annotations

import gc
import importlib
import pkgutil
from typing import Any

from dpexec.engine import kernels
from dpexec.engine.kernels.compiling import Entry
from dpexec.engine.kernels.generate import Pointwise, Reduction
from dpexec.engine.kernels.machine import Kernel

__all__ = ["known", "prepare"]


def known() -> list[Kernel | Entry]:
    """Kernels of modules and of expressions, always in the same order.

    What a program puts together itself (fused groups) is not among them.
    """
    found: dict[str, Kernel | Entry] = {}
    things: list[Any] = []
    for module in pkgutil.iter_modules(kernels.__path__):
        if module.name != "gpu":
            names = vars(importlib.import_module(f"{kernels.__name__}.{module.name}"))
            things += names.values()
    things += gc.get_objects()  # of objects: the expressions of formulas and reductions
    for kernel in (kernel for thing in things for kernel in _of(thing)):
        found[f"{kernel.function.__module__}.{kernel.function.__qualname__}"] = kernel
    return [found[name] for name in sorted(found)]


def _of(thing: Any) -> list[Kernel | Entry]:
    if type(thing) in (Kernel, Entry):
        return [thing]
    if type(thing) is Pointwise:
        two = len(thing.operands) == 2 and not thing.factors
        strided = [thing.strided(False), thing.strided(True)] if two else []
        return [thing.flat(-1), thing.flat(0), *strided]
    if type(thing) is Reduction:
        return [thing.rows, thing.columns]
    return []


def prepare(kernel: Kernel | Entry) -> None:
    """Have the machine code of a kernel in memory, and kept."""
    if isinstance(kernel, Kernel):
        _ = kernel.address
    else:
        kernel.prepare()
