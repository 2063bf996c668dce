"""The package as it is installed."""

import ast
import importlib.metadata
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import dpexec.viz
import pytest

import dpexec

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_version_is_that_of_the_project():
    assert dpexec.__version__ == importlib.metadata.version("dpexec")


def test_types_are_shipped():
    assert (Path(dpexec.__file__).parent / "py.typed").is_file()


def test_public_names_exist_and_are_unique():
    missing = [name for name in dpexec.__all__ if not hasattr(dpexec, name)]
    assert missing == []
    assert len(set(dpexec.__all__)) == len(dpexec.__all__)


def test_asserts_tell_types_alone():
    """``python -O`` leaves them out. What may happen is an error; they say what cannot be None."""
    paths = [path for room in ("dpexec", "viz") for path in (ROOT / room).rglob("*.py")]
    found = []
    sources = {path: path.read_text(encoding="utf-8") for path in paths}
    for path, source in sources.items():
        for node in ast.walk(ast.parse(source if "assert" in source else "")):
            if isinstance(node, ast.Assert):
                calls = [call for call in ast.walk(node.test) if isinstance(call, ast.Call)]
                kinds = all(ast.unparse(call.func) == "isinstance" for call in calls)
                if node.msg is not None or not kinds:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_every_room_is_listed_for_the_wheel():
    rooms = {"dpexec": ROOT / "dpexec", "dpexec.viz": ROOT / "viz"}
    walks = (pkgutil.walk_packages([str(path)], f"{name}.") for name, path in rooms.items())
    found = {*rooms} | {p.name for walk in walks for p in walk if p.ispkg}
    assert sorted(found) == sorted(PYPROJECT["tool"]["setuptools"]["packages"])


def test_a_process_without_a_cluster_loads_no_distributed():
    code = """
import sys
import numpy as np
import dpexec as fluid
x = fluid.data("x", [None, 1], "float32")
loss = fluid.layers.mean(fluid.layers.fc(x, 1))
fluid.optimizer.SGD(0.1).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
    loss.name, places=fluid.cpu_places(2)
)
for _ in range(2):
    exe.run(program, feed={"x": np.ones((2, 1), "float32")}, fetch_list=[loss])
sys.exit("distributed" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_viz_lies_beside_dpexec():
    assert Path(dpexec.viz.__file__).parent == ROOT / "viz"


def test_misspelled_name_is_told_with_what_may_be_meant():
    with pytest.raises(AttributeError, match="'Executer'; similar: Executor"):
        dpexec.Executer  # noqa: B018
