"""Machine code that is kept on disk."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.engine.kernels import compiling

RUN = """
import sys
import numpy as np
from dpexec.engine.kernels import collectives, tables, thread_team

a, out = np.ones((2, 3), np.float32)
words = np.array([3, out.ctypes.data, a.ctypes.data, a.ctypes.data])
table = np.array([[collectives.add.address, words.ctypes.data]])
assert tables.run(table, 0, 1) == 1
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
from dpexec.engine.kernels.compiling import entry

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


TURNS = """
import time
from pathlib import Path
from dpexec.engine.kernels import compiling
from numba.core.ccallback import CFunc

def more(word):
    return word + 1

compile = CFunc._compile_uncached

def slowly(self):
    with Path("compiled").open("a") as file:
        file.write("once ")
    time.sleep(1)
    return compile(self)

CFunc._compile_uncached = slowly
assert compiling.callback(more, "int64(int64)").ctypes(41) == 42
"""


@pytest.mark.skipif(not compiling.KEEP, reason="there is no place to keep it")
def test_processes_that_need_the_same_code_compile_it_once(tmp_path):
    (tmp_path / "turns.py").write_text(TURNS)
    command = [sys.executable, "turns.py"]
    several = [subprocess.Popen(command, cwd=tmp_path) for _ in range(3)]
    assert [process.wait(100) for process in several] == [0, 0, 0]
    assert (tmp_path / "compiled").read_text() == "once "
    assert not list(tmp_path.rglob("*.turn"))


def test_who_is_stopped_while_it_compiles_is_not_waited_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "_PATIENCE", 0.1)
    with compiling._alone(tmp_path / "turn"), compiling._alone(tmp_path / "turn"):
        pass


INTERRUPTED = """
import gc
import signal
import sys
from llvmlite.binding import ffi
from dpexec.engine import kernels

class Pressing:
    def find_spec(self, name, *more):
        if name == "numba.core.types.misc":
            signal.raise_signal(signal.SIGINT)

def interrupted(function, *arguments):
    try:
        function(*arguments)
    except KeyboardInterrupt:
        return True
    return False

sys.meta_path.insert(0, Pressing())
assert interrupted(kernels.load)
del sys.meta_path[0]
kernels.load()
from dpexec.engine.kernels.compiling import callback

def more(word):
    return word + 1

def call(self, *arguments):
    with self._lock:
        found = self._cfn(*arguments)
        signal.raise_signal(signal.SIGINT)  # as if it had come while LLVM worked
        return found

usual = ffi._lib_fn_wrapper.__call__
for _ in range(2):  # the second time it comes from disk
    ffi._lib_fn_wrapper.__call__ = call
    assert interrupted(callback, more, "int64(int64)")
    ffi._lib_fn_wrapper.__call__ = usual
    gc.collect()
    assert callback(more, "int64(int64)").ctypes(41) == 42
"""


def test_interrupts_break_off_nothing_that_could_not_be_done_again(tmp_path):
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    subprocess.run([sys.executable, "interrupted.py"], check=True, cwd=tmp_path)
