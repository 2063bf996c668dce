"""Machine code that is kept on disk."""

import subprocess
import sys

import pytest

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.kernels import compiling

RUN = """
import sys
import numpy as np
from dpexec.kernels import collectives, crew, machine

a, out = np.ones((2, 3), np.float32)
words = np.array([3, out.ctypes.data, a.ctypes.data, a.ctypes.data])
table = np.array([[collectives.add.address, words.ctypes.data]])
assert machine.run(table, 0, 1) == 1
assert out.tolist() == [2, 2, 2]
print("numba.np.linalg" in sys.modules)
"""


@pytest.mark.skipif(not compiling.KEEP, reason="there is no place to keep it")
def test_what_is_on_disk_is_loaded_without_what_compiles():
    found = [subprocess.check_output([sys.executable, "-c", RUN], text=True) for _ in range(2)]
    assert found[1] == "False\n"


def test_a_callback_is_compiled_where_nothing_can_be_kept(monkeypatch):
    monkeypatch.setattr(compiling, "KEEP", False)
    assert compiling.callback(lambda word: word + 1, "int64(int64)").ctypes(41) == 42
