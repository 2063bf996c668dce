"""A translation net trains and decodes with the numbers of the real Paddle 1.8.5."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.contrib import decoder
from tests.fixtures import decoder_programs

RECORDED = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "decoders.json").read_text(encoding="utf-8")
)


def test_translation_is_that_of_paddle():
    found = decoder_programs.run(fluid, decoder)
    np.testing.assert_allclose(found["losses"], RECORDED["losses"], rtol=1e-5)
    assert found["ids"] == RECORDED["ids"]
    assert found["lod"] == RECORDED["lod"]
    np.testing.assert_allclose(found["scores"], RECORDED["scores"], rtol=2e-4)
    assert decoder_programs.END in found["ids"]


@pytest.fixture
def cell():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        context = fluid.data("context", [None, 4])
        first = decoder.InitState(context, need_reorder=True)
        yield decoder.StateCell({"x": None}, {"h": first}, out_state="h")


def test_a_cell_belongs_to_one_decoder(cell):
    with pytest.raises(ValueError, match="no decoder"):
        cell.get_state("h")
    decoder.TrainingDecoder(cell)
    with pytest.raises(ValueError, match="already"):
        decoder.TrainingDecoder(cell)


def test_unknown_names_are_refused(cell):
    train = decoder.TrainingDecoder(cell)
    with train.block():
        train.step_input(fluid.data("x", [None, 4], lod_level=1))
        with pytest.raises(ValueError, match="Unknown state c: there are h"):
            cell.get_state("c")
        with pytest.raises(ValueError, match="Unknown input y: there are x"):
            cell.compute_state({"y": cell.get_state("h")})
        with pytest.raises(ValueError, match="Invalid input x"):
            cell.get_input("x")
        with pytest.raises(ValueError, match="state_updater"):
            cell.compute_state({"x": cell.get_state("h")})
        cell.update_states()
        train.output(cell.out_state())
    assert train().shape == (-1, 4)


def test_states_need_something_to_begin_with():
    with pytest.raises(ValueError, match="init_boot"):
        decoder.InitState()
    with pytest.raises(ValueError, match="must be an InitState"):
        decoder.StateCell({}, {"h": 3}, out_state="h")
    with fluid.program_guard(fluid.Program()):
        boot = fluid.data("boot", [None, 4])
        first = decoder.InitState(init_boot=boot, shape=[-1, 3], value=0.5)
    assert first.value.shape == (-1, 3)
    with pytest.raises(ValueError, match="'c' must be one of h"):
        decoder.StateCell({}, {"h": first}, out_state="c")


def test_methods_of_steps_are_refused_outside(cell):
    train = decoder.TrainingDecoder(cell)
    with pytest.raises(ValueError, match="outside the block"):
        train()
    with pytest.raises(ValueError, match="inside block"):
        train.step_input(fluid.data("x", [None, 4], lod_level=1))
