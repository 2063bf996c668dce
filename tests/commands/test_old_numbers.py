"""``dpexec run`` lets arrays with one element act as numbers, as old NumPy did."""

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from dpexec.cli import main
from dpexec.compat import old_numbers
from dpexec.compat.old_numbers import compiled, explain_numbers

ROOT = Path(__file__).parents[2]
HEAD = "import math, numpy as np\nfrom math import floor as down\na = np.exp(np.zeros(1))\n"

EXPRESSIONS = {
    "'%f' % a": "1.000000",
    "'%d' % a": "1",
    "'%5.2f|%s' % (a, a)": " 1.00|[1.]",
    "'%(x)e %(y)s' % {'x': a, 'y': 'b'}": "1.000000e+00 b",
    "b'%d' % a": b"1",
    "'loss %r' % a": "loss array([1.])",
    "'%f' % np.mean([[2.0]], axis=1, keepdims=True)": "2.000000",
    "('%s ' '%g') % ('x', a * 2)": "x 2",
    "float(a)": 1.0,
    "int(a.reshape(1, 1))": 1,
    "complex(a)": 1 + 0j,
    "float(x=a) if False else float(a)": 1.0,
    "math.sqrt(a)": 1.0,
    "math.pow(a, 2)": 1.0,
    "down(a + 0.5)": 1,
    "list(map(float, [a, a]))": [1.0, 1.0],
    "[int(v) for v in (a, 2)]": [1, 2],
    "max(0.5, float(a))": 1.0,
    "7 % 4": 3,
    "7.5 % 2": 1.5,
    "int('ff', base=16)": 255,
    "(lambda n: n % 3)(8)": 2,
    "(np.arange(4) % 2).tolist()": [0, 1, 0, 1],
    "round(float(a), 2)": 1.0,
    "f'{float(a):.1f}'": "1.0",
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_are_what_they_were(text):
    names = {}
    exec(compiled(f"{HEAD}made = {text}".encode(), "script.py"), names)
    made = names["made"]
    assert made == EXPRESSIONS[text] and type(made) is type(EXPRESSIONS[text])


def run(source, path="script.py"):
    names = {"__name__": "script"}
    exec(compiled(source.encode(), path), names)
    return names


def test_elements_of_arrays():
    made = run(
        HEAD
        + "class Holder:\n    row = np.zeros(2)\n"
        + "row, many, kept = np.zeros(3), np.zeros((2, 1)), {}\n"
        + "row[1] = a\nHolder.row[0] = a\nmany[0] = a\nkept['a'] = a\n"
        + "order = []\n[order][order.append('index') or 0][:] = [order.append('value')]\n"
    )
    assert made["row"].tolist() == [0, 1, 0] and made["many"].tolist() == [[1], [0]]
    assert made["Holder"].row.tolist() == [1, 0]
    assert made["kept"]["a"] is made["a"] and type(made["a"]) is np.ndarray


def test_a_script_is_otherwise_what_it_was():
    made = run(
        '"""Documentation."""\nfrom __future__ import annotations\n'
        "def fails():\n    return '%d' % 'x'\n"
        "class A:\n    def __text(self, v: Unknown) -> Unknown:\n        return '%d' % v\n"
        "    def text(self): return self.__text(3)\n"
        "text = 'rate %s'\ntext %= 5\nshown = A().text()\n"
    )
    assert made["__doc__"] == "Documentation."
    assert made["text"] == "rate 5" and made["shown"] == "3"
    with pytest.raises(TypeError) as raised:
        made["fails"]()
    assert [entry.lineno + 1 for entry in raised.traceback][1] == 4
    with pytest.raises(SyntaxError, match=r"script\.py, line 2"):
        run("x = 1\nprint 'x'\n")


def test_own_float_of_a_script():
    made = run("def float(value):\n    return ('mine', value)\nmade = float(3)\n")
    assert made["made"] == ("mine", 3)


def test_a_larger_array_is_an_error_that_names_line_and_remedy():
    source = "import numpy as np\n\ndef show(v):\n    return '%.2f' % v\nshow(np.zeros(3))\n"
    with pytest.raises(TypeError) as raised:
        run(source)
    explain_numbers(raised.value)
    (note,) = raised.value.__notes__
    assert note.startswith("script.py, line 4: NumPy ") and "dpexec[legacy]" in note
    for other in ("float('x')", "'%d' % 'x'", "float([1])"):
        with pytest.raises((TypeError, ValueError)) as raised:
            run(other)
        explain_numbers(raised.value)
        assert not hasattr(raised.value, "__notes__")


SCRIPT = """
import numpy as np
import paddle.fluid as fluid
from helper import report

x = fluid.data("x", [None, 2], "float32")
loss = fluid.layers.reduce_mean(x)
exe = fluid.Executor(fluid.CPUPlace())
losses = [exe.run(feed={"x": np.ones((2, 2), "float32")}, fetch_list=[loss])[0] for _ in range(2)]
print("mean %.3f, %d, %s" % (np.exp(np.concatenate(losses)[:1]), np.mean(losses, 0), __name__))
print(report(np.mean(losses, 0)))
"""


def test_a_script_and_a_module_beside_it(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("def report(v):\n    return '%.1f' % v + str(float(v))\n")
    command = [sys.executable, "-m", "dpexec", "run", "train.py"]
    for _ in range(2):  # also when Python has kept the helper's code
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.stdout == "mean 2.718, 1, __main__\n1.01.0\n", done.stderr
    assert not (tmp_path / "__pycache__").exists()  # which would hold what was rewritten


def test_what_is_not_seen_is_explained(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text("import numpy as np\nshow = '{:>5}'.format\nf = [float][0]\nf(np.ones(1))\n")
    assert main(["run", str(script)]) == 1
    text = capsys.readouterr().err
    assert "TypeError: only 0-dimensional arrays" in text
    assert f"{script}, line 4: NumPy {np.__version__} does not take an array" in text
    assert "pip install 'dpexec[legacy]'" in text


@pytest.mark.parametrize("decorator", ["kernel", "numba.njit", "numba.jit(nopython=True)"])
def test_functions_that_become_machine_code_stay(decorator):
    source = f"@{decorator}\ndef copy(a, b):\n    b[0] = float(a[0]) % 2\n"
    assert "__dpexec_" not in " ".join(compiled(source.encode(), "script.py").co_names)
    plain = compiled(source.partition("\n")[2].encode(), "script.py")
    assert "__dpexec_stored__" in plain.co_names


def test_an_old_numpy_needs_nothing(monkeypatch):
    monkeypatch.setattr(old_numbers, "NEEDED", False)
    assert "formatted" not in " ".join(compiled(b"a = '%d' % 3", "script.py").co_names)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras["optional-dependencies"]["legacy"] == ["numpy>=2.0,<2.4"]
