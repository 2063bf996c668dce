"""Every mapping on all samples of its operator: checked by ONNX, computed by onnxruntime."""

import numpy as np
import pytest

from dpexec.onnx.exporting.mapping import mappings
from dpexec.onnx.exporting.refusals import ExportError
from tests.engine.ops.calls import samples
from tests.onnx.exporting.running import run, sample_model

DEFAULT = 17
WITHOUT_SAMPLES = {
    *("while", "conditional_block", "conditional_block_infer", "recurrent", "select_input"),
    *("lod_rank_table", "max_sequence_len", "lod_tensor_to_array", "array_to_lod_tensor"),
    *("split_lod_tensor", "merge_lod_tensor", "merge_lod_tensor_infer", "select_output"),
    *("shrink_rnn_memory", "reorder_lod_tensor_by_rank"),
    *("write_to_array", "read_from_array", "lod_array_length", "tensor_array_to_tensor"),
    "beam_search_decode",
}
"""Run blocks or work on arrays and rank tables: whole models and test_beam_search.py have them."""

WITHOUT_NAN = {"lrn": "its sums go on from channel to channel", "spp": "its maxima leave out NaN"}
"""Operators of onnxruntime that treat NaN, and sums that overflow, in their own way."""

OF_RUNTIME = {"roi_align": 21, "roi_pool": 21}
"""The latest opset of operators that onnxruntime does not have in the latest one."""


def assert_same(found, expected, what):
    for name, value in found.items():
        real = np.asarray(expected[name])
        message = f"{what}, {name}"
        assert (value.dtype, value.shape) == (real.dtype, real.shape), message
        np.testing.assert_allclose(value, real, rtol=2e-4, atol=2e-5, err_msg=message)


def compare(type, sample, opset, is_open, what):
    """Whether the sample can be said in ONNX; if so, the results must be the same."""
    made = sample_model(type, sample, is_open)
    if made is None or opset > OF_RUNTIME.get(type, opset):
        return None
    if type in WITHOUT_NAN and not (np.abs(sample.inputs["X"]) < 1e9).all():
        return None
    try:
        model = made.model(opset)
    except ExportError:
        if not mappings()[type].without and opset >= mappings()[type].opset:
            raise
        return False
    assert_same(run(model, made.given()), made.expected(), what)
    return True


@pytest.mark.parametrize("type", sorted(set(mappings()) - WITHOUT_SAMPLES))
def test_samples(type):
    said = []
    for number, sample in enumerate(samples(type)):
        for is_open in (False, True):
            what = f"sample {number} of {type}{' with open dimensions' if is_open else ''}"
            said.append(compare(type, sample, max(DEFAULT, mappings()[type].opset), is_open, what))
    assert any(said), f"no sample of {type} can be said"


@pytest.mark.parametrize("opset", [13, 22])
@pytest.mark.parametrize("type", sorted(set(mappings()) - WITHOUT_SAMPLES))
def test_other_opsets(type, opset):
    if opset >= mappings()[type].opset:
        for number, sample in enumerate(samples(type)[:2]):
            compare(type, sample, opset, True, f"sample {number} of {type} in opset {opset}")
