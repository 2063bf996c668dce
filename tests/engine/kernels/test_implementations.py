"""The table of implementations: entries, conflicts, and use without numba."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpexec import extend
from dpexec.engine import kernels
from dpexec.engine.ir import opdef
from dpexec.engine.kernels import gpu, implementations
from dpexec.engine.kernels.implementations import find, kernel_of

KINDS = {"scale_loss_grad"}
"""What a graph has besides operators."""


@pytest.fixture
def table(monkeypatch):
    """A copy of the table, that a test may add to."""
    implementations.load_all()
    monkeypatch.setattr(implementations, "_table", dict(implementations._table))
    return implementations._table


def test_all_implementations_are_of_operators_that_exist(table):
    assert {type for type, *_ in table} - set(opdef.registered()) <= KINDS
    assert {backend for _, backend, _ in table} >= {"gpu"}


def test_index_of_files_is_current():
    index = Path(implementations.__file__).with_name("files.txt")
    assert index.read_text("utf-8") == implementations.files(), (
        f"python -m dpexec.ops kernels {index}"
    )


def test_a_type_is_implemented_as_if_all_modules_were_there():
    """In a process of its own, what a program looks up imports few modules, and finds the same."""
    script = (
        "import sys\n"
        "from dpexec.engine.kernels import implementations\n"
        "from dpexec.engine.kernels.implementations import find\n"
        "asked = [(t, b, s) for t in implementations._modules_by_type()\n"
        "    for b in ('code', 'host') for s in (False, True)]\n"
        "import dpexec as fluid\n"
        "first = find('relu', 'code')\n"
        "assert 'dpexec.engine.kernels.yolo' not in sys.modules\n"
        "found = [find(*each) for each in asked]\n"
        "implementations.load_all()\n"
        "assert [find(*each) for each in asked] == found and first is find('relu', 'code')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_module_of_a_backend_is_found_without_a_list(table, tmp_path, monkeypatch):
    (tmp_path / "just_added.py").write_text(
        "from dpexec.extend import implementation\n"
        "@implementation('sequence_mask', backend='gpu')\n"
        "def mask(xp, *values, **attrs):\n    return 'found'\n"
    )
    assert find("sequence_mask", "gpu") is None
    monkeypatch.setattr(gpu, "__path__", [*gpu.__path__, str(tmp_path)])
    implementations._load.cache_clear()
    assert kernel_of("sequence_mask", np.sum, "gpu")(np) == "found"
    del sys.modules[f"{gpu.__name__}.just_added"]


def taken_here(xp, x):
    return x + 1 if len(x) else None


def test_what_an_implementation_declines_is_computed_as_declared(table):
    extend.implementation("relu", backend="host")(taken_here)
    kernel = kernel_of("relu", lambda xp, x: "declared", "host")
    assert kernel(np, np.zeros(1)) == 1 and kernel(np, np.zeros(0)) == "declared"
    assert "host" in implementations.backends_of("relu")


def test_one_that_cannot_be_used_here_is_left_out(table):
    there = []
    extend.implementation("relu", backend="host", where=lambda: bool(there))(taken_here)
    assert kernel_of("relu", np.sum, "host") is np.sum
    there.append(1)
    assert kernel_of("relu", np.sum, "host") is not np.sum


def test_one_per_operator_gets_its_type(table):
    extend.implementation("relu", "tanh", backend="host", per_operator=True)(
        lambda type: lambda xp, *values: type
    )
    assert kernel_of("tanh", np.sum, "host")(np) == "tanh"


def test_two_that_claim_one_operator_are_an_error_that_names_both(table):
    extend.implementation("relu", backend="host")(taken_here)
    extend.implementation("relu", backend="host")(taken_here)  # a cell that runs again
    before = dict(table)
    with pytest.raises(
        ValueError, match=r"relu is implemented twice for host: by .*taken_here and .*"
    ):
        extend.implementation("tanh", "relu", backend="host")(lambda xp, x: x)
    assert table == before


def test_two_lowerings_of_one_operator_are_an_error(table):
    pytest.importorskip("numba")
    with pytest.raises(ValueError, match=r"relu is implemented twice for code: by dpexec\.engine"):
        extend.lowering("relu")(lambda code, x, out: None)


WITHOUT_NUMBA = """
import sys

class Missing:
    def find_spec(self, name, *more):
        if name.split(".")[0] in ("numba", "llvmlite"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
import importlib.util
importlib.util.find_spec = lambda name: None
from dpexec import extend, ops

@extend.lowering("sequence_mask")
def lower(code, *values):
    return False

assert "conv2d " in ops.coverage()
print(*[type for type in ("conv2d", "relu", "sgd") for _ in ops.backends_of(type)])
"""


def test_the_door_and_the_table_do_without_numba():
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA], capture_output=True, text=True, cwd=Path.cwd()
    )
    assert (run.stdout.split(), run.stderr) == (["conv2d"], "")


def test_lowerings_are_found_before_numba_is_imported():
    program = "import sys; from dpexec.ops import backends_of; print(backends_of('relu'))"
    program += "; print('numba' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split()[-1] == "False", run.stdout + run.stderr
    assert "code" in run.stdout or not kernels.available()
