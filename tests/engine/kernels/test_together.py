"""Kernels that a piece of code lacks are compiled in several processes."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpexec.engine import kernels
from dpexec.engine.kernels import code_store

if not kernels.available():
    pytest.skip("needs numba", allow_module_level=True)

from dpexec.engine.kernels import losses, together
from dpexec.engine.kernels.machine import Count, kernel

NAMES = [str(losses._mean_grad), str(losses._cross_entropy_grad)]


class Helper:
    """Stands for a process."""

    def __init__(self, names):
        self.names, self.stdin = names, io.BytesIO()

    def wait(self):
        """It has ended."""

    def poll(self):
        """What it ended with: 0 once ``ended`` is set."""
        return 0 if getattr(self, "ended", False) else None


@pytest.fixture
def helpers(monkeypatch):
    """The helpers that are started, which do nothing, on a machine with many processors."""
    found = []

    def start(names, does=""):
        found.append(Helper(names))
        return found[-1]

    monkeypatch.setattr(together, "_start", start)
    monkeypatch.setattr(together, "available_cpus", lambda: 16)
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache of code."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    code_store.folder.cache_clear()
    yield tmp_path / "dpexec-kernels"
    code_store.folder.cache_clear()


def many(number):
    """Kernels with different code."""
    made = []
    for i in range(number):
        names = {"__name__": f"many_{i}"}
        exec(f"def same(n):\n    return n * 0 * {i}\n", names)
        names["same"].__annotations__["n"] = Count
        made.append(kernel(names["same"]))
    return made


def test_all_are_compiled_and_helpers_take_the_last_ones_first(helpers, folder):
    lacking = many(21)
    together.compile_together([*lacking, *lacking])
    assert all("address" in vars(made) for made in lacking)
    names = [str(made) for made in reversed(lacking)]
    assert [helper.names for helper in helpers] == [names[0::3], names[1::3], names[2::3]]
    assert all(helper.stdin.closed for helper in helpers)


def test_few_are_compiled_alone(helpers, folder):
    together.compile_together(many(together._FEWEST - 1))
    assert helpers == []


def test_kept_ones_need_no_helpers(helpers, folder):
    together.compile_together(many(10))
    assert len(helpers) == 1
    together.compile_together(many(10))
    assert len(helpers) == 1


def test_one_processor_has_no_helpers(helpers, folder, monkeypatch):
    monkeypatch.setattr(together, "available_cpus", lambda: 1)
    together.compile_together(many(10))
    assert helpers == []


def test_an_application_that_is_its_own_interpreter_is_not_started_again(
    helpers, folder, monkeypatch
):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    together.compile_together(many(10))
    assert helpers == []


def test_without_more_processes_one_compiles_all(helpers, folder, monkeypatch):
    def refuse(names):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(together, "_start", refuse)
    lacking = many(10)
    together.compile_together(lacking)
    assert all("address" in vars(made) for made in lacking)


def test_one_process_has_helpers_at_a_time(helpers, folder):
    with code_store.at_most_one("helpers") as first:
        assert first
        together.compile_together(many(10))
    assert helpers == []


def test_helpers_end_when_compiling_fails(helpers, folder):
    lacking = many(10)
    vars(lacking[0])["machine_function"] = len
    with pytest.raises(AttributeError):
        together.compile_together(lacking)
    assert all(helper.stdin.closed for helper in helpers)


def test_a_helper_compiles_what_it_is_told_and_ends_with_its_input(folder, tmp_path, monkeypatch):
    process = together._start([*NAMES, "no.such.kernel"])
    assert process.wait(120) == 0
    process.stdin.close()
    kept = {path.stem for path in folder.rglob("*.o")}
    assert len(kept) == len(NAMES) + 1  # and what the second step needs
    stopped = tmp_path / "stopped"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(stopped))
    process = together._start(NAMES)
    process.stdin.close()
    assert process.wait(120) == 0
    assert len([*stopped.rglob("*.o")]) == 1


FIRST_STEPS = """
import numpy as np
import dpexec as fluid

def losses():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    x, label = fluid.data("x", [None, 8]), fluid.data("label", [None, 1], "int64")
    hidden = fluid.layers.fc(fluid.layers.fc(x, 6, act="relu"), 4)
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(hidden, label))
    fluid.optimizer.Adam(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": np.arange(32, dtype="float32").reshape(4, 8) / 9, "label": np.eye(4, 1, dtype=int)}
    return [exe.run(feed=feed, fetch_list=[loss])[0].tobytes().hex() for _ in range(3)]
"""


def test_a_first_step_with_an_empty_cache_has_the_same_bits(tmp_path):
    """As one of this process, which has the code or compiles it alone."""
    script = """
from dpexec.engine.kernels import together
starts, begin = [], together._start
together._start = lambda names: starts.append(begin(names)) or starts[-1]
together.available_cpus = lambda: 2
print(*losses(), len(starts))
"""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    env["PYTHONPATH"] = str(Path(__file__).parents[3])
    run = [sys.executable, "-c", FIRST_STEPS + script]
    done = subprocess.run(run, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    exec(FIRST_STEPS, here := {})
    assert done.stdout.split() == [*here["losses"](), "1"]


def test_another_process_compiles_a_kernel_meanwhile(folder, helpers):
    (made,) = many(1)
    aside, other = together.Aside(made), together.Aside(made)
    assert not aside.at_hand and not aside.at_hand
    assert not other.at_hand  # of several processes one compiles
    (helper,) = helpers
    assert helper.names == [str(made)]
    helper.ended = True
    assert aside.at_hand  # although the helper made nothing: this process does
    assert made.address and other.at_hand


def test_a_process_that_cannot_start_others_compiles_itself(folder, helpers, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    assert together.Aside(many(1)[0]).at_hand and not helpers


def test_a_kernel_that_is_named_is_compiled_to_the_end(folder):
    code = "from dpexec.engine.kernels import together; together.compile_named()"
    subprocess.run([sys.executable, "-c", code, NAMES[0]], check=True, timeout=100)
    assert [*folder.rglob("*")]
    assert not together.lacks(losses._mean_grad.machine_function, losses._mean_grad.loads())
