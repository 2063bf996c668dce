"""The cache of machine code on disk: what its keys depend on, and several processes at once."""

import platform
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels in machine code need numba")

import dpexec
from dpexec.engine.kernels import ahead, code_store, compiling, loading
from dpexec.engine.kernels.compiling import Entry, address_of
from dpexec.engine.kernels.identity import Untold, identity


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty folder for code, and no packs."""
    monkeypatch.setattr(code_store, "folder", lambda: tmp_path)
    monkeypatch.setattr(code_store, "_packs", lambda family: [])
    return tmp_path / loading.family().name


RUN = """
import sys
import numpy as np
from dpexec.engine.kernels import collectives, tables, thread_team

a, out = np.ones((2, 3), np.float32)
words = np.array([3, out.ctypes.data, a.ctypes.data, a.ctypes.data])
table = np.array([[collectives.add.address, words.ctypes.data]])
assert tables.run(table.ctypes.data, 0, 1) == 1
assert out.tolist() == [2, 2, 2]
print("numba" in sys.modules)
"""


@pytest.mark.skipif(code_store.folder() is None, reason="there is no place to keep it")
def test_what_is_on_disk_is_loaded_without_what_compiles():
    found = [subprocess.check_output([sys.executable, "-c", RUN], text=True) for _ in range(2)]
    assert found[1] == "False\n"


def test_an_entry_is_compiled_where_nothing_can_be_kept(monkeypatch):
    monkeypatch.setattr(code_store, "folder", lambda: None)

    def more(number):
        return number + 91

    assert Entry(more)(41) == 132


def test_code_lies_beside_the_sources_where_no_other_folder_can_be_written(monkeypatch):
    beside = Path(code_store.__file__).parent / "__pycache__" / "dpexec-kernels"
    access = code_store.os.access
    monkeypatch.setattr(code_store.os, "access", lambda at, how: at == beside or access(at, how))
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, "/dev/null/nowhere")
    assert code_store.folder.__wrapped__() == beside


def test_what_is_kept_needs_nothing_of_the_process_that_made_it(store):
    def more(number):
        return number + 92

    address_of(more)
    (path,) = store.iterdir()
    assert Entry(more)(1) == 93  # from the file
    code = path.read_bytes()
    assert code_store.found(path.stem, store.name) == code


def test_a_pack_gives_what_was_put_into_it(tmp_path):
    objects = {"b": b"2" * 1000, "a": b"1"}
    code_store.write_pack(tmp_path / "of" / "x.pack", objects)
    pack = code_store.Pack(tmp_path / "of" / "x.pack")
    assert len(pack) == 2
    assert {name: pack.get(name) for name in "abc"} == {**objects, "c": None}


def made(source, **names):
    names |= {"np": np}
    exec(source, names)
    return names["kernel"]


HELPED = "def times(x):\n    return {}\ndef kernel(x):\n    return times(x) + FACTOR\n"


@pytest.mark.parametrize(
    ("source", "factor"),
    [
        (HELPED.format("x * 3"), 2),
        (HELPED.format("x + 2"), 2),
        (HELPED.format("x * 2"), 3),
        (HELPED.format("x * 2"), np.int64(2)),
        (HELPED.format("x * 2"), 2.0),
        (HELPED.format("x * 2"), (2, 3)),
        (HELPED.format("x * 2"), np.array([2])),
    ],
)
def test_helpers_and_constants_are_part_of_what_code_is_known_by(source, factor):
    usual = identity(made(HELPED.format("x * 2"), FACTOR=2))
    assert usual == identity(made(HELPED.format("x * 2"), FACTOR=2, OTHER=7))
    assert usual != identity(made(source, FACTOR=factor))


def test_documentation_is_no_part_of_what_code_is_known_by():
    texts = ('"""One."""\n    ', '"""Two."""\n    ', "'a'\n    ")
    found = {identity(made(f"def kernel(x):\n    {text}return x + 1")) for text in texts}
    assert len(found) == 1


def test_functions_that_a_closure_tells_apart_are_not_the_same():
    def adding(number):
        return lambda x: x + number

    assert identity(adding(1)) == identity(adding(1)) != identity(adding(2))


def test_code_of_the_package_can_be_kept():
    """Else every process would compile it again, which takes a second and more."""
    for kernel in ahead.known():
        assert identity(kernel.function), kernel.function


def test_what_cannot_be_compared_is_compiled_and_not_kept(store):
    class Settings:
        number = 1

    settings = Settings()

    def first(x):
        return settings

    with pytest.raises(Untold):
        identity(first)
    with pytest.raises(Exception, match="first"):
        address_of(first)
    assert not store.exists()


CALLED = "import numba\nFACTOR = 2\n@numba.njit\ndef times(x):\n    return x * FACTOR\n"
CALLS = """
from called import times
from dpexec.engine.kernels.compiling import entry

@entry
def kernel(x):
    return times(x) + 1

print(kernel(5))
"""


def test_what_calls_a_function_of_another_file_is_compiled_again_when_that_changes(tmp_path):
    (tmp_path / "calls.py").write_text(CALLS)

    def run(called):
        (tmp_path / "called.py").write_text(called)
        command = [sys.executable, "-B", "calls.py"]
        return subprocess.check_output(command, text=True, cwd=tmp_path).strip()

    found = [run(CALLED), run(CALLED.replace("x * FACTOR", "x + FACTOR"))]
    assert found == ["11", "8"]


TURNS = """
import os
import time
from pathlib import Path
from dpexec.engine.kernels import by_numba
from dpexec.engine.kernels.compiling import Entry

def more(word):
    return word + 1

compiled = by_numba.compiled

def slowly(*arguments):
    with Path("compiled").open("a") as file:
        file.write("once ")
    time.sleep(1)
    return compiled(*arguments)

by_numba.compiled = slowly
assert Entry(more)(41) == 42
"""


def test_processes_that_need_the_same_code_compile_it_once(tmp_path):
    (tmp_path / "turns.py").write_text(TURNS)
    command = ["env", f"NUMBA_CACHE_DIR={tmp_path}", sys.executable, "turns.py"]
    several = [subprocess.Popen(command, cwd=tmp_path) for _ in range(3)]
    assert [process.wait(100) for process in several] == [0, 0, 0]
    assert (tmp_path / "compiled").read_text() == "once "
    assert not list(tmp_path.rglob("*.turn"))


def test_who_is_stopped_while_it_compiles_is_not_waited_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(code_store, "_PATIENCE", 0.1)
    with code_store._alone(tmp_path / "turn"), code_store._alone(tmp_path / "turn"):
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

kernels.load()
from dpexec.engine.kernels.compiling import Entry

def more(word):
    return word + 1

sys.meta_path.insert(0, Pressing())
assert interrupted(Entry(more), 41)
del sys.meta_path[0]
assert Entry(more)(41) == 42

def call(self, *arguments):
    with self._lock:
        found = self._cfn(*arguments)
        signal.raise_signal(signal.SIGINT)  # as if it had come while LLVM worked
        return found

def less(word):
    return word - 1

usual = ffi._lib_fn_wrapper.__call__
for _ in range(2):  # the second time it comes from disk
    ffi._lib_fn_wrapper.__call__ = call
    assert interrupted(Entry(less), 41)
    ffi._lib_fn_wrapper.__call__ = usual
    gc.collect()
    assert Entry(less)(41) == 40
"""


def test_interrupts_break_off_nothing_that_could_not_be_done_again(tmp_path):
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    command = ["env", f"NUMBA_CACHE_DIR={tmp_path}", sys.executable, "interrupted.py"]
    subprocess.run(command, check=True, cwd=tmp_path)


def test_a_numba_that_is_too_old_is_named(monkeypatch):
    monkeypatch.setattr("numba.__version__", "0.61.2")
    with pytest.raises(
        RuntimeError, match=r"numba 0\.62 or newer, and numba 0\.61\.2 is installed"
    ):
        compiling.inspected(lambda word: word, None)


def test_the_oldest_numba_is_that_of_the_extras():
    about = tomllib.loads((Path(dpexec.__file__).parents[1] / "pyproject.toml").read_text())
    extras = about["project"]["optional-dependencies"]
    oldest = "numba>=" + ".".join(map(str, compiling._OLDEST))
    found = {line for lines in extras.values() for line in lines if line.startswith("numba")}
    assert found == {oldest}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="of other processors there is one")
@pytest.mark.parametrize(
    ("features", "name"),
    [
        (["sse4.2"], "x86-64-v2"),
        (sorted(loading._V3), "x86-64-v3"),
        (sorted(loading._V4 - {"avx512vl"}), "x86-64-v3"),
        (sorted(loading._V4), "x86-64-v4"),
    ],
)
def test_a_processor_gets_code_that_all_of_its_family_can_run(monkeypatch, features, name):
    there = dict.fromkeys(features, True)
    monkeypatch.setattr(loading.llvm, "get_host_cpu_features", lambda: there | {"sse4a": False})
    assert loading.family.__wrapped__().name == name
