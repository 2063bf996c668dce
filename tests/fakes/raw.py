"""``cupy.RawKernel`` without a GPU: the source as C++, thread after thread.

That shows what the source computes. It needs a C++ compiler. Threads of a block that wait for each
other are threads of the host.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.arrays import ndarray

__all__ = ["COMPILER", "RawKernel"]

COMPILER = shutil.which("g++")
_one_block = threading.Lock()  # what its threads share is there once
_one_compiler = threading.Lock()  # replicas need the same kernels at the same time
_MEETING = 4
"""Threads of a block that wait for each other: a power of two, as kernels join what they have."""

_SHIM = """\
#include <math.h>
#include <pthread.h>
#define __global__
#define __device__
#define __shared__ static
static pthread_barrier_t gate;
static void __syncthreads() { pthread_barrier_wait(&gate); }
extern "C" void meet(unsigned threads) { pthread_barrier_init(&gate, nullptr, threads); }
struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx, blockDim, gridDim;
extern "C" void place(unsigned b, unsigned t, unsigned threads, unsigned blocks) {
  blockIdx.x = b; threadIdx.x = t; blockDim.x = threads; gridDim.x = blocks;
}
"""
_TYPES = {
    np.int64: ctypes.c_longlong,
    np.uint64: ctypes.c_ulonglong,
    np.uint32: ctypes.c_uint,
    np.int32: ctypes.c_int,
    np.float32: ctypes.c_float,
}


_COMMAND = [COMPILER or "g++", "-O0", "-ffp-contract=off", "-fPIC", "-std=c++14"]
# C++17 adds to math.h what takes longer to read than all of a kernel
_ALONE = ["-shared", "-nostdlib", "-fno-use-linker-plugin"]
"""This process has the C library and that of mathematics: looking for them takes the linker longer
than all else."""


@functools.cache
def _folder():
    """Where kernels are compiled, with what they all include, which the compiler has read once."""
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    folder = Path(tempfile.mkdtemp(prefix="kernels"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "shim.h").write_text(_SHIM)
    _compile(folder, "-x", "c++-header", "shim.h")
    return folder


def _compile(folder, *options):
    command = [*_COMMAND, *options]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)


def _library(source):
    with _one_compiler:
        return _compiled(source)


@functools.cache
def _compiled(source):
    with tempfile.TemporaryDirectory(dir=_folder()) as folder:
        kernel = Path(folder, "kernel.cpp")
        kernel.write_text('#include "../shim.h"\n' + source)
        _compile(folder, *_ALONE, kernel.name, "-o", "kernel.so")
        return ctypes.CDLL(str(kernel.with_suffix(".so")))


class RawKernel:
    """A kernel from its source; every launch runs two blocks of some threads."""

    def __init__(self, code, name, options=()):
        self.code, self.name = code, name
        found = re.search(rf"void {name}\((.*?)\)", code)
        self._written = ["*" in p and "const" not in p for p in found[1].split(", ")]

    def __call__(self, grid, block, args):
        library, given, reads, writes = _library(self.code), [], [], []
        hosts = [argument._host for argument in args if isinstance(argument, ndarray)]
        for argument, written in zip(args, self._written, strict=True):
            if isinstance(argument, ndarray):
                if not argument.flags.c_contiguous:
                    raise AssertionError(f"{self.name} would read beside its array")
                (writes if written else reads).append(argument._memory)
                given.append(ctypes.c_void_p(argument._host.ctypes.data))
            else:
                given.append(_TYPES[type(argument)](argument))

        def run(b, t, threads):
            library.place(b, t, threads, 2)
            getattr(library, self.name)(*given)
            assert hosts  # a graph keeps the memory that it works on

        def launch():
            for b in range(2):
                if "__syncthreads" not in self.code:
                    for t in range(3):
                        run(b, t, 3)
                    continue
                with _one_block, ThreadPoolExecutor(_MEETING) as pool:
                    library.meet(_MEETING)
                    for done in [pool.submit(run, b, t, _MEETING) for t in range(_MEETING)]:
                        done.result()

        ndarray.machine.perform(self.name, reads, writes, launch)
