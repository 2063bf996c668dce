"""Predictors, compared with those of the real Paddle on the cases of prediction_cases.py."""

import http.client
import json
import os
import pickle
import threading

import numpy as np
import pytest

import dpexec as fluid
from dpexec import core
from tests.fixtures import packing, prediction_cases
from tests.fixtures.prediction_cases import CASES, LOD, PREDICTION, WEIGHTS, WORDS, X, predictor
from tests.guides import programs

OUTCOMES = packing.load(os.path.join(PREDICTION, "outcomes.npz"))


def assert_same(made, recorded):
    if isinstance(recorded, np.ndarray):
        assert made.dtype == recorded.dtype
        np.testing.assert_allclose(made, recorded, rtol=0, atol=1e-6)
    elif isinstance(recorded, dict):
        assert made.keys() == recorded.keys()
        for key, value in recorded.items():
            assert_same(made[key], value)
    elif isinstance(recorded, list):
        assert len(made) == len(recorded)
        for one, other in zip(made, recorded, strict=True):
            assert_same(one, other)
    else:
        assert made == recorded


@pytest.mark.parametrize("name", CASES)
def test_as_recorded(name):
    assert_same(prediction_cases.outcome(core, name), OUTCOMES[name])


def outputs(made, batch):
    made.get_input_tensor("x").copy_from_cpu(batch)
    made.zero_copy_run()
    return [made.get_output_tensor(name).copy_to_cpu() for name in made.get_output_names()]


def test_clones_run_in_threads_at_once():
    first = predictor(core, PREDICTION, "dense", zero_copy=True)
    batches = [np.full((number + 1, 4), number / 4, "float32") for number in range(4)]
    expected = [outputs(first, batch) for batch in batches]
    found: dict = {}

    def work(number, made):
        found[number] = [outputs(made, batches[number]) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(n, first.clone())) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, runs in found.items():
        for run in runs:
            for one, other in zip(run, expected[number], strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    assert len(found) == 4


def test_clones_share_parameters_and_nobody_else_does():
    first, other = (predictor(core, PREDICTION, "dense") for _ in range(2))
    weights = [one.scope().find_var("fc_0.w_0") for one in (first, first.clone(), other)]
    assert weights[0] is weights[1] is not weights[2]
    assert fluid.global_scope().local_var_names() == []


def test_what_was_returned_does_not_change_with_the_next_run():
    made = predictor(core, PREDICTION, "dense")
    first = made.run([core.PaddleTensor(X)])[0]
    before = first.as_ndarray()
    made.run([core.PaddleTensor(-X)])
    np.testing.assert_array_equal(first.as_ndarray(), before)


def test_a_config_can_be_changed_afterwards():
    config = prediction_cases.config(core, PREDICTION, "dense")
    made = core.create_paddle_predictor(config)
    config.switch_use_feed_fetch_ops(False)
    assert len(made.run([core.PaddleTensor(X)])) == 2


# The original writes a line about these, and goes on with something random or with nothing.


def test_wrong_numbers_and_names_of_inputs_are_errors():
    words, weights = core.PaddleTensor(WORDS, "words", LOD), core.PaddleTensor(WEIGHTS, "weight")
    made = predictor(core, PREDICTION, "sequences", by_name=True)
    with pytest.raises(core.EnforceNotMet, match=r"are words, weights, but got words, weight$"):
        made.run([words, weights])
    with pytest.raises(core.EnforceNotMet, match="has 2 inputs, words, weights, but got 1"):
        made.run([words])


def test_a_config_without_a_model_is_an_error():
    for config in (core.AnalysisConfig(), core.NativeConfig()):
        with pytest.raises(core.EnforceNotMet, match="names no model"):
            core.create_paddle_predictor(config)


def test_a_damaged_program_is_an_error(tmp_path):
    (tmp_path / "__model__").write_bytes(b"abcdef")
    with pytest.raises(core.EnforceNotMet, match="__model__"):
        core.create_paddle_predictor(core.AnalysisConfig(str(tmp_path)))


def test_fractions_are_not_cut_off():
    for data in (X.astype("float64"), [1.5, 2.5]):
        with pytest.raises(TypeError, match="not float64"):
            core.PaddleTensor(data)


def test_transposed_arrays_keep_their_elements():
    np.testing.assert_array_equal(core.PaddleTensor(X.T).as_ndarray(), X.T)


def test_the_two_ways_to_run_are_not_mixed():
    with pytest.raises(core.EnforceNotMet, match=r"switch_use_feed_fetch_ops\(False\)"):
        predictor(core, PREDICTION, "dense").zero_copy_run()
    with pytest.raises(core.EnforceNotMet, match=r"switch_use_feed_fetch_ops\(True\)"):
        predictor(core, PREDICTION, "dense", zero_copy=True).run([core.PaddleTensor(X)])


def test_less_data_than_the_shape_says_is_an_error():
    tensor = core.PaddleTensor(X)
    tensor.shape = [3, 4]
    with pytest.raises(core.EnforceNotMet, match="8 elements"):
        tensor.as_ndarray()
    with pytest.raises(ValueError, match="'half'"):
        tensor.data.tolist("half")
    tensor.data, tensor.dtype = core.PaddleBuf(list(range(12))), core.PaddleDType.INT64
    with pytest.raises(core.EnforceNotMet, match=r"6 elements .* list holds float32"):
        tensor.as_ndarray()


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("enable_tensorrt_engine", "TensorRT"),
        ("enable_lite_engine", "Paddle Lite"),
        ("enable_quantizer", "quantizer of MKL-DNN"),
        ("pass_builder", "passes"),
    ],
)
def test_what_is_not_there_is_named(call, missing):
    with pytest.raises(NotImplementedError, match=missing):
        getattr(core.AnalysisConfig("model"), call)()


def test_a_gpu_that_is_not_there_is_an_error():
    with pytest.raises(RuntimeError, match="99"):
        core.AnalysisConfig("model").enable_use_gpu(100, 99)


def test_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for program in programs("docs/prediction.md"):
        exec(program, names)
    np.testing.assert_array_equal(names["probabilities"], names["again"])
    assert names["probabilities"].shape == (8, 10)
    assert names["digits"]["digit"].compute().isin(range(10)).sum() == 100
    images = names["images"].tolist()
    with names["server"] as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert posted(server, images) == (200, names["probabilities"].tolist())
        status, message = posted(server, [row[1:] for row in images])
        assert status == 400 and "(-1, 64)" in message
        assert posted(server, images)[0] == 200
        server.shutdown()


def posted(server, rows):
    """The status and answer of a request to the guide's service."""
    connection = http.client.HTTPConnection(*server.server_address)
    connection.request("POST", "/", json.dumps(rows))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_a_batch_without_rows_has_a_result_without_rows():
    made = predictor(core, PREDICTION, "dense")
    assert made.run([core.PaddleTensor(X[:0])])[0].shape == [0, 2]
    with pytest.raises(core.EnforceNotMet, match="input x has no data"):
        made.run([core.PaddleTensor()])


@pytest.mark.parametrize("zero_copy", [False, True])
def test_pickled_predictors_of_a_process_share_their_parameters(zero_copy):
    made = predictor(core, PREDICTION, "dense", zero_copy=zero_copy)
    one, other = pickle.loads(pickle.dumps(made)), pickle.loads(pickle.dumps(made))
    assert one.scope() is not other.scope()
    first = one._model.parameters
    assert first is other._model.parameters and first is not made._model.parameters
    if zero_copy:
        np.testing.assert_array_equal(outputs(one, X)[0], outputs(made, X)[0])
    else:
        ours, theirs = (p.run([core.PaddleTensor(X)])[0].as_ndarray() for p in (made, one))
        np.testing.assert_array_equal(ours, theirs)


def test_a_pickled_predictor_is_of_the_model_that_was_saved_last(tmp_path):
    folder, found = str(tmp_path), []
    exe = fluid.Executor(fluid.CPUPlace())
    for factor in (2.0, 3.0):
        with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
            y = fluid.layers.scale(fluid.data("x", [None, 1]), factor)
            fluid.io.save_inference_model(folder, ["x"], [y], exe)
        made = pickle.loads(pickle.dumps(core.create_paddle_predictor(core.AnalysisConfig(folder))))
        found.append(made.run([core.PaddleTensor(np.ones((1, 1), "float32"))])[0].as_ndarray())
    assert np.ravel(found).tolist() == [2, 3]


def test_a_pickled_predictor_without_its_model_is_an_error_of_its_use():
    config = core.AnalysisConfig(os.path.join(PREDICTION, "dense"))
    sent = core.create_paddle_predictor(config)
    sent._config.set_model("nowhere")  # as on a worker that does not see the client's files
    arrived = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(sent))))
    for _ in range(2):
        with pytest.raises(core.EnforceNotMet, match="nowhere"):
            arrived.run([core.PaddleTensor(X)])
