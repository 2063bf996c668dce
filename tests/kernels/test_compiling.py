"""Machine code that is kept on disk."""

import subprocess
import sys

import numpy as np
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


CALLED = "import numba\nFACTOR = 2\n@numba.njit\ndef times(x):\n    return x * FACTOR\n"
CALLS = """
from called import times
from dpexec.kernels.compiling import entry

@entry("int64(int64)")
def kernel(x):
    return times(x) + 1

print(kernel(5))
"""


@pytest.mark.skipif(not compiling.KEEP, reason="there is no place to keep it")
def test_what_calls_a_function_of_another_file_is_compiled_again_when_that_changes(tmp_path):
    (tmp_path / "calls.py").write_text(CALLS)

    def run(called):
        (tmp_path / "called.py").write_text(called)
        command = [sys.executable, "-B", "calls.py"]
        return subprocess.check_output(command, text=True, cwd=tmp_path).strip()

    found = [run(CALLED), run(CALLED.replace("x * FACTOR", "x + FACTOR"))]
    assert found == ["11", "8"]


def test_numbers_of_another_file_count_as_part_of_what_is_compiled():
    stamps = set()
    for factor in ("2", "np.float32(2)", "3"):
        names = {"np": np}
        exec(CALLED.replace("= 2", f"= {factor}"), names)
        exec("def kernel(x):\n    return times(x)", names)
        stamps.add(compiling._stamp(names["kernel"]))
    assert len(stamps) == 3
