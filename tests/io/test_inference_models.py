"""Inference models are saved, loaded and run; those of the real Paddle 1.8.5, too."""

from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.run import nets
from tests.fixtures import programs, saved_cases

SAVED = Path(__file__).parents[1] / "fixtures" / "saved"


def test_real_inference_model_predicts_the_recorded_values():
    exe = fluid.Executor(fluid.CPUPlace())
    program, feeds, targets = fluid.io.load_inference_model(str(SAVED / "inference"), exe)
    assert feeds == ["x"]
    x = programs.CASES["fit_a_line"].feeds()[0]["x"]
    with np.load(SAVED / "values.npz") as values:
        wanted = values["prediction"]
    found = exe.run(program, feed={"x": x}, fetch_list=targets)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_loaded_inference_model_can_be_saved_again(tmp_path):
    exe = fluid.Executor(fluid.CPUPlace())
    program, feeds, targets = fluid.io.load_inference_model(str(SAVED / "inference"), exe)
    x = programs.CASES["fit_a_line"].feeds()[0]["x"]
    wanted = exe.run(program, feed={"x": x}, fetch_list=targets)[0]
    names = fluid.io.save_inference_model(str(tmp_path), feeds, targets, exe, program)
    assert names == ["save_infer_model/scale_0.tmp_1"]
    again, feeds, targets = fluid.io.load_inference_model(str(tmp_path), exe)
    assert feeds == ["x"]
    found = exe.run(again, feed={"x": x}, fetch_list=targets)[0]
    np.testing.assert_array_equal(found, wanted)


def test_every_saved_model_has_targets_of_its_own_name(tmp_path):
    exe = fluid.Executor(fluid.CPUPlace())
    main, startup, _, targets = saved_cases.classifier(fluid)
    exe.run(startup)
    names = [
        fluid.io.save_inference_model(str(tmp_path), ["image"], targets[:1], exe, main)
        for _ in range(3)
    ]
    assert names == [[f"save_infer_model/scale_0.tmp_{n}"] for n in range(3)]  # as in Paddle


def test_real_pruned_model_with_two_targets_predicts_the_recorded_values():
    exe = fluid.Executor(fluid.CPUPlace())
    image = saved_cases.CASES["vgg"].feeds()[0]["image"]
    with np.load(SAVED / "pruned.npz") as recorded:
        wanted = [recorded[name] for name in recorded.files]
    content = [(SAVED / "pruned" / name).read_bytes() for name in ("net", "params")]
    for arguments in [(str(SAVED / "pruned"), exe, "net", "params"), (None, exe, *content)]:
        program, feeds, targets = fluid.io.load_inference_model(*arguments)
        assert feeds == ["image"]
        for found, value in zip(exe.run(program, {"image": image}, targets), wanted, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)


def test_own_pruned_model_has_the_operators_and_parameters_of_the_real_one(tmp_path):
    exe = fluid.Executor(fluid.CPUPlace())
    main, startup, _, targets = saved_cases.classifier(fluid)
    exe.run(startup)
    fluid.io.save_inference_model(str(tmp_path), ["image"], targets, exe, main, "net", "params")
    own, real = (
        fluid.Program.parse_from_string((folder / "net").read_bytes()).global_block()
        for folder in (tmp_path, SAVED / "pruned")
    )
    assert [described(op) for op in own.ops] == [described(op) for op in real.ops]
    assert own.vars.keys() == real.vars.keys()
    sizes = [(folder / "params").stat().st_size for folder in (tmp_path, SAVED / "pruned")]
    assert sizes[0] == sizes[1]


def described(op):
    return op.type, op.input_arg_names, op.output_arg_names, op.attrs.get("is_test")


@pytest.mark.parametrize("filename", [None, "all"])
def test_inference_model_predicts_as_the_program(tmp_path, filename):
    net = nets.classifier(batch_norm=True, dropout=0.5)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup)
    feeds = nets.batches(4)
    for feed in feeds:
        exe.run(net.main, feed=feed, fetch_list=[net.loss])
    operators = len(net.main.global_block().ops)
    wanted = exe.run(net.test, feed=feeds[0], fetch_list=[net.prediction])[0]
    names = fluid.io.save_inference_model(
        str(tmp_path), ["x"], [net.prediction], exe, net.main, params_filename=filename
    )
    assert len(net.main.global_block().ops) == operators
    with fluid.scope_guard(fluid.Scope()):
        program, feed_names, targets = fluid.io.load_inference_model(
            str(tmp_path), exe, params_filename=filename
        )
        assert feed_names == ["x"]
        assert [target.name for target in targets] == names
        assert not any("grad" in op.type for op in program.global_block().ops)
        found = exe.run(program, feed={"x": feeds[0]["x"]}, fetch_list=targets)[0]
    np.testing.assert_array_equal(found, wanted)


def test_an_inference_model_is_told_where_its_servers_are_now(tmp_path):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        ids = fluid.data("ids", [None], "int64")
        rows = [fluid.embedding(ids, [4, 2]) for _ in range(2)]
    main.global_block().ops[0]._set_attr("epmap", ["127.0.0.1:1"])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    fluid.io.save_inference_model(str(tmp_path), ["ids"], rows, exe, main)
    now = ["127.0.0.1:2"]
    program, _, _ = fluid.io.load_inference_model(str(tmp_path), exe, pserver_endpoints=now)
    lookups = [op for op in program.global_block().ops if op.has_attr("epmap")]
    assert [op.attr("epmap") for op in lookups] == [now, []]


def test_states_of_auc_are_warned_of_as_in_the_original(tmp_path):
    probabilities = fluid.layers.fc(fluid.data("x", [None, 2]), 2, act="softmax")
    fluid.layers.auc(probabilities, fluid.data("y", [None, 1], "int64"))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.warns(UserWarning, match="set the auc states to zeros before saving"):
        fluid.io.save_inference_model(str(tmp_path), ["x"], [probabilities], exe)


def test_a_program_that_is_saved_whole_needs_no_targets(tmp_path):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        fluid.layers.fc(fluid.data("x", [None, 4]), 2)
        exe = fluid.Executor()
        exe.run(fluid.default_startup_program())
        save, whole = fluid.io.save_inference_model, {"export_for_deployment": False}
        assert save(str(tmp_path), [], [], exe, **whole) == []
        found = sorted(path.name for path in tmp_path.iterdir())
        assert found == ["__model__.main_program", "fc_0.b_0", "fc_0.w_0"]
        with pytest.raises(ValueError, match="should be a list of Variable"):
            save(str(tmp_path), [], [], exe)
        with pytest.raises(ValueError, match="should be a list of Variable"):
            save(str(tmp_path), [], ["x"], exe, **whole)


def test_model_under_another_name_is_a_missing_file():
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(FileNotFoundError, match=r"no file other in .*another model_filename"):
        fluid.io.load_inference_model(str(SAVED / "inference"), exe, model_filename="other")


def test_loops_over_a_fed_variable_are_saved(tmp_path):
    x = fluid.data("x", [None, 2])
    i, end = (fluid.layers.fill_constant([1], "int64", value) for value in (0, 2))
    fluid.layers.while_loop(
        lambda i, _: fluid.layers.less_than(i, end), lambda i, s: [i + 1, s * 2.0], [i, x]
    )
    out = fluid.layers.scale(x, 3.0)
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.float32([[1, 2]])}
    fluid.io.save_inference_model(str(tmp_path), ["x"], [out], exe)
    program, _, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
    for each, fetched in ((fluid.default_main_program(), [out]), (program, fetches)):
        np.testing.assert_array_equal(exe.run(each, feed, fetched)[0], [[12, 24]])


def test_what_makes_a_fed_variable_is_cut():
    x = fluid.data("x", [None, 2])
    hidden = fluid.layers.scale(x, 2.0)
    out = fluid.layers.scale(hidden, 3.0)
    part = fluid.default_main_program()._prune_with_input([hidden.name], [out])
    assert [op.type for op in part.global_block().ops] == ["scale"]
