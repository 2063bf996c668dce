"""Files of operators are imported when their types are asked for."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import dpexec as fluid
from dpexec import ops
from dpexec.engine import ops as engine_ops
from dpexec.engine.ir import library, opdef
from dpexec.engine.ir.library import Library
from tests.engine.ops.test_lists import output_of

ROOT = Path(__file__).parents[3]


def test_index_of_files_is_current():
    index = Path(engine_ops.__file__).with_name("files.txt")
    assert index.read_text("utf-8") == ops.files(), f"python -m dpexec.ops files {index}"


def test_a_file_declares_the_same_with_or_without_the_others():
    different, needing_all = json.loads(output_of("each_file.py"))
    assert different == {}
    assert needing_all == []


def test_operators_that_the_index_lacks_are_found():
    script = (
        "from dpexec.engine import ops\n"
        "from dpexec.engine.ir import opdef\n"
        "ops.index().clear()\n"
        "ops._module_by_type().clear()\n"
        "from dpexec import layers\n"
        "print(opdef.get('gelu').type, layers.gelu.__name__, opdef.find('gellu'))\n"
        "print('known' in dir(layers.ops), opdef.library.load_all())\n"
    )
    assert fresh(script) == ["gelu", "gelu", "None", "False", "None"]


def fresh(script):
    """What a script prints in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_types_of_files_that_nobody_asked_for_are_taken():
    script = """
from dpexec.engine.ir import opdef
from dpexec.extend import op, same_as
try:
    @op("gelu", inputs="X", infer=same_as("X"))
    def gelu(xp, x):
        return x
except ValueError as error:
    print(error)
print(opdef.get("gelu").module)
"""
    assert fresh(script)[-6:] == [
        "operator",
        "gelu",
        "is",
        "declared",
        "twice",
        "dpexec.engine.ops.gelu",
    ]


def test_layers_that_nobody_asked_for_can_be_sent_and_listed():
    script = """
import pickle
from dpexec import layers
assert pickle.loads(pickle.dumps(layers.gelu)) is layers.gelu is layers.nn.gelu
assert layers.ops.gelu is layers.gelu and "mish" in dir(layers) and "mish" in dir(layers.ops)
assert not hasattr(layers, "no_such_layer") and not hasattr(layers.ops, "no_such_layer")
names = {}
exec("from dpexec.layers import *", names)
assert {*layers.__all__} <= {*names}
print("well")
"""
    assert fresh(script) == ["well"]


def test_error_for_unknown_types_knows_all():
    with pytest.raises(fluid.errors.MissingKernelError, match="has not been registered") as caught:
        opdef.get("yolo_bocks")
    assert f"{len(opdef.registered())} operator types" in caught.value.__notes__[0]
    assert "yolo_box" in caught.value.__notes__[0]


def test_other_threads_wait_for_the_end_of_a_file(monkeypatch):
    """A thread must not see an operator whose gradient is not declared yet."""
    known: dict[str, str] = {}
    begun, go_on = threading.Event(), threading.Event()

    def module(name):
        known["forward"] = "half"
        begun.set()
        assert go_on.wait(60)
        known["forward"] = "whole"

    monkeypatch.setattr(library, "_import", module)
    files = Library()
    files.supply(lambda type: "file", list)
    seen: list[str] = []

    def ask():
        if "forward" not in known or files.loads:
            files.load("forward", known)
        seen.append(known["forward"])

    first = threading.Thread(target=ask)
    first.start()
    assert begun.wait(60)
    second = threading.Thread(target=ask)
    second.start()
    go_on.set()
    for thread in (first, second):
        thread.join(60)
    assert seen == ["whole", "whole"]
    assert not files.loads


def test_a_file_that_is_gone_is_no_error():
    files = Library()
    files.supply(lambda type: "dpexec.engine.ops.no_such_file", list)
    files.load("relu", {})
    assert not files.loads


def test_errors_in_a_file_come_through(tmp_path, monkeypatch):
    (tmp_path / "broken_file_of_operators.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    files = Library()
    files.supply(lambda type: "broken_file_of_operators", list)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        files.load("relu", {})
    assert not files.loads


def test_operators_that_do_several_at_once_and_those_single_ones_name_each_other():
    definitions = opdef.registered()
    several = {type: d.merges for type, d in definitions.items() if d.merges}
    single = {d.merged_by: type for type, d in definitions.items() if d.merged_by}
    assert several == single != {}
