"""Beam search as ONNX: random steps with equal totals, and arrays of steps as sentences."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample
from tests.engine.ops.calls import samples
from tests.onnx.exporting.running import SampleModel, run
from tests.onnx.exporting.test_zoo import compare

END = 0


def step(rng):
    """A step for up to four sentences of up to five beams, with few different totals."""
    beams = rng.integers(1, 6, rng.integers(1, 5))
    width = int(rng.integers(1, 7))
    rows = int(beams.sum())
    inputs = {
        "pre_ids": rng.integers(END, 3, (rows, 1)),
        "pre_scores": rng.integers(0, 3, (rows, 1)) / 4,
        "ids": rng.integers(0, 9, (rows, width)),
        "scores": rng.integers(0, 3, (rows, width)) / 4,
        "scores@LOD": Lod([np.append(0, np.cumsum(beams)), np.arange(rows + 1)]),
    }
    if rng.integers(0, 2):
        del inputs["ids"]
    attrs = {"level": 0, "beam_size": int(rng.integers(1, 6)), "end_id": END}
    return Sample(inputs, attrs)


@pytest.mark.parametrize("seed", range(40))
def test_a_random_step(seed):
    made = SampleModel("beam_search", step(np.random.default_rng(seed)), False)
    expected = made.expected()
    for name, value in run(made.model(13), made.given()).items():
        assert value.dtype == expected[name].dtype
        np.testing.assert_array_equal(value, expected[name], name)


@pytest.mark.parametrize("number", range(3))
def test_sentences_of_steps(number):
    sample = samples("beam_search_decode")[number]
    place, feed, arrays = fluid.CPUPlace(), {}, []
    for slot, dtype in (("Ids", "int64"), ("Scores", "float32")):
        array = fluid.layers.create_array(dtype)
        for k, (value, lod) in enumerate(sample.inputs[slot]):
            data = fluid.data(f"{slot}.{k}", [None, 1], dtype, lod_level=2)
            fluid.layers.array_write(data, fluid.layers.fill_constant([1], "int64", k), array)
            lengths = [np.diff(level).tolist() for level in lod.levels]
            feed[data.name] = fluid.create_lod_tensor(value.astype(dtype), lengths, place)
        arrays.append(array)
    found = fluid.layers.beam_search_decode(*arrays, beam_size=2, end_id=1)
    compare(fluid.default_main_program(), feed, list(found), 14)
