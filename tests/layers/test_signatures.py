"""Arguments of layers have Paddle's order, names and defaults."""

import inspect
import json
import tempfile
from pathlib import Path

import pytest

import dpexec as fluid
from dpexec.core import VarType

RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "signatures.json").read_text())
MODULES = {
    "layers": fluid.layers,
    "nets": fluid.nets,
    "initializer": fluid.initializer,
    "param_attr": fluid.param_attr,
    "optimizer": fluid.optimizer,
    "metrics": fluid.metrics,
    "average": fluid.average,
    "profiler": fluid.profiler,
}
PUBLIC = [
    *(f"{name}.{item}" for name, module in MODULES.items() for item in module.__all__),
    *("data", "embedding", "one_hot", "get_flags", "set_flags"),
]
NOT_COMPARED = {
    *("optimizer.Lamb", "optimizer.RMSProp"),  # in fluid.optimizer.__all__ by their long names only
    "optimizer.Optimizer",  # the base class
    *("layers.ParallelDo", "layers.get_places"),  # of Paddle 0.11 to 0.14, removed since
}


def find(name):
    module, _, item = name.rpartition(".")
    return getattr(MODULES[module] if module else fluid, item)


def text(default):
    if isinstance(default, VarType):
        return str(default)
    shown = repr(list(default) if isinstance(default, tuple) else default)
    return shown.replace(tempfile.gettempdir(), "/tmp")  # the original's folder is fixed


@pytest.mark.parametrize("name", [name for name in PUBLIC if name not in NOT_COMPARED])
def test_arguments_are_those_of_fluid(name):
    recorded = RECORDED[name]
    ours = list(inspect.signature(find(name)).parameters.values())
    extra = [p.name for p in ours[len(recorded) :]]
    assert [p.name for p in ours[: len(recorded)]] == [argument for argument, _ in recorded]
    assert extra in ([], ["name"])  # layers made from operators all take a name
    for parameter, (argument, default) in zip(ours, recorded, strict=False):
        if default is None:
            assert parameter.default is parameter.empty, argument
        elif default == "None" and name.removeprefix("layers.") in fluid.layers.ops.made:
            assert parameter.default is not parameter.empty  # None: the operator's own default
        else:
            assert text(parameter.default) == default, argument


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_is_documented(name):
    assert len(inspect.getdoc(find(name)).splitlines()[0]) > 10
