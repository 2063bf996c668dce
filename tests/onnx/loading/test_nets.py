"""Nets that PyTorch exports (``tests/fixtures/record_onnx_nets.py``), in both ways that it has."""

from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid

pytest.importorskip("onnx")
import onnxruntime

from dpexec.onnx import load

NETS = sorted((Path(__file__).parents[2] / "fixtures" / "onnx").glob("*.onnx"))
OPEN_AXES = {"gru": 1}
"""The axis of samples, where it is not the first."""


def recorded(path):
    arrays = np.load(path.with_suffix(".npz"))
    parts = ([n for n in arrays.files if n.startswith(kind)] for kind in ("in_", "out_"))
    return [[arrays[name] for name in names] for names in parts]


def single_thread():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return options


def run(program, feeds, fetches, inputs):
    feed = dict(zip(feeds, inputs, strict=True))
    return fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=fetches)


@pytest.mark.parametrize("path", NETS, ids=lambda path: path.stem)
def test_results_are_those_of_pytorch_and_of_onnxruntime(path):
    inputs, expected = recorded(path)
    with fluid.scope_guard(fluid.Scope()):
        model = load(path)
        for made, wanted in zip(run(*model, inputs), expected, strict=True):
            np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=2e-5)
        axis = OPEN_AXES.get(path.stem.partition("-")[0], 0)
        more = [np.concatenate([x, x, x[:, :1] if axis else x[:1]], axis) for x in inputs]
        session = onnxruntime.InferenceSession(path, single_thread())
        known = session.run(None, dict(zip(model[1], more, strict=True)))
        for made, wanted in zip(run(*model, more), known, strict=True):
            np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=2e-5)


def test_there_are_all_nets():
    assert len(NETS) == 26


def test_names_are_kept_and_weights_are_parameters():
    path = next(path for path in NETS if path.stem == "resnet-dynamo")
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = load(path)
        trained = {p.name for p in program.all_parameters() if p.trainable}
        assert {"head.weight", "head.bias", "two.weight"} <= trained
        assert feeds == ["x0"]
        assert fluid.global_scope().find_var("head.weight").get_tensor().shape() == [5, 8]
        assert [var.name for var in fetches] == [program.global_block().ops[-1].output("Out")[0]]
