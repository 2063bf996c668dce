"""Programs have the operators and variables that the real Paddle gives them.

The recorded lines leave out what only its C++ side reads (call stacks, MKL-DNN and cuDNN
switches) and the numbers in name scopes, which the original counts per process.
"""

import json
from pathlib import Path

import pytest

import dpexec as fluid
from dpexec.engine.ir.verify import verify
from tests.fixtures import describe, layer_programs, programs

FIXTURES = Path(__file__).parents[1] / "fixtures"
PROGRAMS = json.loads((FIXTURES / "programs.json").read_text())
LAYERS = json.loads((FIXTURES / "layers.json").read_text())


def assert_same(built, recorded):
    for part in ("main", "startup"):
        assert built[part]["ops"] == recorded[part]["ops"]
        assert built[part]["vars"] == recorded[part]["vars"]
        assert built[part].get("blocks") == recorded[part].get("blocks")


@pytest.mark.parametrize("name", PROGRAMS)
def test_training_program_is_the_recorded_one(name):
    main, startup, _ = programs.CASES[name].build(fluid)
    assert_same(describe.programs_record(main, startup), PROGRAMS[name])
    verify(main)
    verify(startup)


@pytest.mark.parametrize("name", layer_programs.names())
def test_layer_program_is_the_recorded_one(name):
    main, startup = layer_programs.build(name, fluid)
    assert_same(describe.programs_record(main, startup), LAYERS[name])
    verify(main)
    verify(startup)
