"""Arguments of all functions, classes and methods of fluid can be given by Paddle's names."""

import importlib
import inspect
import json
from pathlib import Path

import pytest

from dpexec.commands.paddle_alias import target_of

RECORDED = json.loads((Path(__file__).parent / "fixtures" / "argument_names.json").read_text())
OTHERS = {
    "paddle.distributed.utils.Cluster": "HDFS is not supported",
    "paddle.fluid.framework.IrNode": "made by graphs alone, from what dpexec's graphs consist of",
    "paddle.fluid.framework.IrOpNode": "made by graphs alone",
    "paddle.fluid.framework.IrVarNode": "made by graphs alone",
    "paddle.fluid.framework.Operator": "made by blocks alone: there are no descriptions in C++",
}


def ours(full):
    """What dpexec has by a name of Paddle, or None."""
    parts = full.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(target_of(".".join(parts[:count])))
        except ImportError:
            continue
        for part in parts[count:]:
            try:
                found = getattr(found, part)
            except AttributeError:
                return None  # tests/test_public_names.py knows what has to be there
        return found
    return None


def parameters(function):
    own = function.__init__ if inspect.isclass(function) else function
    return [p for p in inspect.signature(own).parameters.values() if p.name != "self"]


def comparable():
    for name in RECORDED:
        found = ours(name)
        if name in OTHERS or not (inspect.isclass(found) or inspect.isfunction(found)):
            continue
        if "dpexec" in found.__module__:
            yield name, parameters(found)


def test_arguments_have_the_names_and_the_order_of_fluid():
    differ, compared = {}, 0
    for name, found in comparable():
        wanted = RECORDED[name].split()
        named = [p.name for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        catches = any(p.kind == p.VAR_KEYWORD for p in found)  # passes on what it does not name
        compared += 1
        if named[: len(wanted)] != wanted and not (catches and len(named) < len(wanted)):
            differ[name] = (wanted, named)
    assert not differ
    assert compared > 800


@pytest.mark.parametrize("name", OTHERS)
def test_exceptions_are_still_needed(name):
    assert [p.name for p in parameters(ours(name))][:2] != RECORDED[name].split()[:2]
