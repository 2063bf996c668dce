"""``cupy.RawKernel`` without a GPU: the source as C++, thread after thread.

That shows what the source computes. It needs a C++ compiler, and kernels whose threads do not
wait for each other.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.arrays import ndarray

__all__ = ["COMPILER", "RawKernel"]

COMPILER = shutil.which("g++")

_SHIM = """\
#include <math.h>
#define __global__
#define __device__
struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx, blockDim, gridDim;
extern "C" void place(unsigned b, unsigned t, unsigned threads, unsigned blocks) {
  blockIdx.x = b; threadIdx.x = t; blockDim.x = threads; gridDim.x = blocks;
}
"""
_TYPES = {
    np.int64: ctypes.c_longlong,
    np.uint64: ctypes.c_ulonglong,
    np.float32: ctypes.c_float,
}


@functools.cache
def _library(source):
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    folder = Path(tempfile.mkdtemp(prefix="kernel"))
    try:
        (folder / "kernel.cpp").write_text(_SHIM + source)
        command = [COMPILER, "-O0", "-ffp-contract=off", "-shared", "-fPIC", "-std=c++17",
                   "kernel.cpp", "-o", "kernel.so"]  # fmt: skip
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
        return ctypes.CDLL(str(folder / "kernel.so"))
    finally:
        shutil.rmtree(folder)


class RawKernel:
    """A kernel from its source; every launch runs two blocks of three threads."""

    def __init__(self, code, name, options=()):
        self.code, self.name = code, name
        found = re.search(rf"void {name}\((.*?)\)", code)
        self._written = ["*" in p and "const" not in p for p in found[1].split(", ")]

    def __call__(self, grid, block, args):
        library, given, reads, writes = _library(self.code), [], [], []
        for argument, written in zip(args, self._written, strict=True):
            if isinstance(argument, ndarray):
                if not argument.flags.c_contiguous:
                    raise AssertionError(f"{self.name} would read beside its array")
                (writes if written else reads).append(argument._memory)
                given.append(ctypes.c_void_p(argument._host.ctypes.data))
            else:
                given.append(_TYPES[type(argument)](argument))

        def launch():
            for place in ((b, t) for b in range(2) for t in range(3)):
                library.place(*place, 3, 2)
                getattr(library, self.name)(*given)

        ndarray.machine.perform(self.name, reads, writes, launch)
