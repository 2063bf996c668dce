"""Loads machine code into memory: object files that this process or another one compiled.

Code is made for a family of processors, so that what one machine made is right, and has the same
bits, on all machines of the family.
"""

from __future__ import annotations

import functools
import os
import platform
import threading
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from dpexec.engine.core.interrupts import Uninterrupted

__all__ = ["FAMILIES", "Family", "family", "machine", "placed"]

_V3 = {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_lock = threading.Lock()


class Family(NamedTuple):
    """Processors that run the same code.

    Args:
        name: of the family.
        cpu: the processor for which LLVM makes the code.
        features: what that has besides, as LLVM writes it.
    """

    name: str
    cpu: str
    features: str = ""


FAMILIES = {f"x86-64-v{n}": Family(f"x86-64-v{n}", f"x86-64-v{n}") for n in (2, 3, 4)}
"""By name; processors of other architectures are each a family of its own."""


@functools.cache
def family() -> Family:
    """The family of this machine's processor, or the one that ``DPEXEC_PROCESSOR`` names.

    Raises:
        ValueError: there is no family of that name, or this processor cannot run its code.
    """
    own, wanted = _own_family(), os.environ.get("DPEXEC_PROCESSOR")
    known = {name: kind for name, kind in FAMILIES.items() if name <= own.name}
    if not wanted or wanted == own.name:
        return own
    if own.name not in known or wanted not in known:
        able = ", ".join(known if own.name in known else [own.name])
        raise ValueError(f"DPEXEC_PROCESSOR is {wanted!r}; this processor can be {able}")
    return known[wanted]


def _own_family() -> Family:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        cpu = llvm.get_host_cpu_name()
        return Family(f"{platform.machine()}-{cpu}", cpu, llvm.get_host_cpu_features().flatten())
    found = {name for name, there in llvm.get_host_cpu_features().items() if there}
    level = 4 if found >= _V4 else 3 if found >= _V3 else 2
    return FAMILIES[f"x86-64-v{level}"]


def machine(wanted: Family) -> dict[str, Any]:
    """How LLVM makes code for a family, as arguments of ``Target.create_target_machine``."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return {
        "cpu": wanted.cpu,
        "features": wanted.features,
        "reloc": "static" if x86 else "default",
        "codemodel": "jitdefault",
        "jit": True,
    }


@functools.cache
def _engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    made = target.create_target_machine(opt=3, **machine(family()))
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), made)


def placed(code: bytes, symbol: str) -> int:
    """Put an object into memory, where it stays; returns the address of a function.

    Args:
        code: the object.
        symbol: name of the function.
    """
    with _lock, Uninterrupted():
        engine = _engine()
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address: int = engine.get_function_address(symbol)
    if not address:
        raise RuntimeError(f"an object has no function {symbol}")
    return address
