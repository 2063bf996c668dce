"""What ``import dpexec`` imports: each module that it can do without costs every process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LATER = (
    *("numba", "llvmlite", "scipy", "pandas", "distributed", "onnx", "sklearn", "torch"),
    *("matplotlib", "bokeh", "graphviz", "tqdm", "fsspec", "cupy", "google", "importlib.metadata"),
    *("dpexec.dashboard", "dpexec.examples", "dpexec.onnx", "dpexec.sklearn", "dpexec.viz"),
    *("dpexec.engine.cluster", "dpexec.engine.kernels.machine", "dpexec.engine.ops.conv2d"),
)
"""Packages and modules that are imported when something needs them."""

MOST_OPERATORS = 45
"""Files of operators that other files import, or that gradients of loops are declared for."""


def loaded_after(code):
    """The names of the modules that a fresh process has after some code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def loaded():
    return loaded_after("import dpexec")


@pytest.mark.parametrize("name", LATER)
def test_import_leaves_out(loaded, name):
    assert [m for m in loaded if m == name or m.startswith(f"{name}.")] == []


def test_import_loads_few_operators(loaded):
    files = [name for name in loaded if name.startswith("dpexec.engine.ops.")]
    assert len(files) <= MOST_OPERATORS, files


def test_building_a_net_loads_its_operators_alone():
    code = """
import dpexec as fluid
x, label = fluid.data("x", [None, 8]), fluid.data("label", [None, 1], "int64")
hidden = fluid.layers.batch_norm(fluid.layers.fc(x, 4, act="relu"))
loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(hidden, label))
fluid.optimizer.Adam(0.1).minimize(loss)
"""
    files = [name for name in loaded_after(code) if name.startswith("dpexec.engine.ops.")]
    assert "dpexec.engine.ops.batch_norm" in files
    assert len(files) <= MOST_OPERATORS + 25, files


def test_search_for_cycles_goes_on_after_the_import():
    script = "import gc\nimport dpexec\nassert gc.isenabled() and not gc.get_freeze_count()"
    loaded_after(script)
    loaded_after("import gc\ngc.disable()\nimport dpexec\nassert not gc.isenabled()")


def test_compiling_imports_what_kernels_call(tmp_path):
    """Numba would import SciPy, and all that it knows of NumPy, before the first kernel."""
    (tmp_path / "angles.py").write_text(
        "import numpy as np\n"
        "from dpexec.extend import Count, Floats, kernel\n"
        "@kernel\n"
        "def doubled(n: Count, x: Floats, out: Floats) -> int:\n"
        "    for i in range(n):\n"
        "        out[i] = 2 * x[i]\n"
        "    return 0\n"
        "@kernel\n"
        "def sincs(n: Count, x: Floats, out: Floats) -> int:\n"
        "    for i in range(n):\n"
        "        out[i] = np.sinc(x[i])\n"
        "    return 0\n"
    )
    code = f"""
import os, sys
os.environ["NUMBA_CACHE_DIR"] = {str(tmp_path)!r}
sys.path.insert(0, {str(tmp_path)!r})
import angles
assert angles.doubled.address
assert not {{"scipy.linalg", "numba.np.arraymath"}} & {{*sys.modules}}
assert angles.sincs.address
"""
    assert "numba.np.arraymath" in loaded_after(code)
