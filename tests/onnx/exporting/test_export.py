"""``export``: saved models of Paddle 1.x, signatures, names, errors, files."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.engine.core.errors import EnforceNotMet, section_of
from dpexec.onnx import ExportError, export, load
from dpexec.onnx import exporter as exporting
from tests.onnx.exporting.running import run

FIXTURES = Path(__file__).parents[2] / "fixtures"
SAVED = {
    "dense": (FIXTURES / "prediction" / "dense", {}),
    "sequences": (
        FIXTURES / "prediction" / "sequences",
        {"model_filename": "net", "params_filename": "params"},
    ),
    "inference": (FIXTURES / "saved" / "inference", {}),
    "pruned": (
        FIXTURES / "saved" / "pruned",
        {"model_filename": "net", "params_filename": "params"},
    ),
}
"""Models that the real Paddle 1.8.5 saved."""


@pytest.mark.parametrize("name", SAVED)
def test_models_that_paddle_saved(name, tmp_path):
    folder, files = SAVED[name]
    exe = fluid.Executor(fluid.CPUPlace())
    program, feeds, targets = fluid.io.load_inference_model(str(folder), exe, **files)
    rng, feed, given = np.random.RandomState(0), {}, {}
    for feed_name in feeds:
        var = program.global_block().var(feed_name)
        shape = [(5 if var.lod_level else 2) if dim < 0 else dim for dim in var.shape]
        whole = var.dtype == fluid.core.VarDesc.VarType.INT64
        value = rng.randint(0, 3, shape) if whole else rng.uniform(0, 1, shape).astype("float32")
        given[feed_name] = feed[feed_name] = value
        if var.lod_level:
            feed[feed_name] = fluid.create_lod_tensor(value, [[2, 3]], fluid.CPUPlace())
            given[f"{feed_name}.lengths"] = np.array([2, 3], "int64")
    expected = exe.run(program, feed, targets, return_numpy=False)
    found = run(export(folder, tmp_path / "model.onnx", **files), given)
    for target, value in zip(targets, expected, strict=True):
        np.testing.assert_allclose(found[target.name], np.array(value), rtol=1e-4, atol=1e-5)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    names = [each.name for each in session.get_inputs()]
    assert [name for name in names if not name.endswith(".lengths")] == feeds


def test_net_that_was_trained_with_recomputation(tmp_path):
    """Recomputation gives each dropout a seed by an operator; it is not needed to predict."""
    x = fluid.data("x", [None, 4])
    hidden = layers.dropout(layers.fc(x, 3, act="relu"), 0.5)
    y = layers.fc(hidden, 2)
    optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
    optimizer._set_checkpoints([hidden])
    optimizer.minimize(layers.mean(y))
    program = fluid.default_main_program()
    assert "seed" in [op.type for op in program.global_block().ops]
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": np.arange(8, dtype="float32").reshape(2, 4)}
    (expected,) = exe.run(program.clone(for_test=True), feed, [y])
    found = run(export(program, tmp_path / "model.onnx", ["x"], [y]), feed)
    np.testing.assert_allclose(found[y.name], expected, rtol=1e-5)


def test_signature_names_and_lines():
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    image = fluid.data("image", [None, 3, 4, 4])
    pooled = layers.sequence_pool(layers.embedding(words, [10, 4]), "sum")
    out = layers.fc([pooled, layers.fc(image, 4)], 2, name="head")
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    program = fluid.default_main_program()
    model = exporting.model_of(program, ["words", "image"], [out])
    dims = {
        each.name: [d.dim_param or d.dim_value for d in each.type.tensor_type.shape.dim]
        for each in model.graph.input
    }
    assert dims == {
        "words": ["words.rows", 1],
        "words.lengths": ["words.lengths.count"],
        "image": ["batch", 3, 4, 4],
    }
    names = {each.name for each in model.graph.initializer}
    assert {p.name for p in program.all_parameters()} <= names
    made = {name: node for node in model.graph.node for name in node.output}
    assert 'layers.sequence_pool(layers.embedding(words, [10, 4]), "sum")' in (
        made[pooled.name].doc_string
    )
    assert [each.name for each in model.graph.output] == [out.name]
    assert exporting.model_of(program, None, [out]).graph.input == model.graph.input


def test_all_that_cannot_be_said_is_one_error(tmp_path):
    x = fluid.data("x", [None, 4])
    one = layers.sampling_id(layers.softmax(x))
    layers.relu(x)
    two = layers.gaussian_random([2, 3])
    path = tmp_path / "model.onnx"
    path.write_text("the old one")
    with pytest.raises(ExportError) as caught:
        export(fluid.default_main_program(), path, ["x"], [one, two])
    text = str(caught.value)
    assert text.startswith("2 operators cannot be written as ONNX (opset 17)")
    assert "sampling_id: " in text and "gaussian_random: " in text
    assert "one = layers.sampling_id(layers.softmax(x))" in text
    assert section_of(caught.value) == "operators-that-onnx-cannot-say"
    assert path.read_text() == "the old one"
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]


def test_what_needs_a_later_opset_says_so(tmp_path):
    out = layers.grid_sampler(fluid.data("x", [2, 3, 4, 4]), fluid.data("grid", [2, 4, 4, 2]))
    with pytest.raises(ExportError, match="grid_sampler: it needs opset 16 or later"):
        export(fluid.default_main_program(), tmp_path / "x", None, [out], opset=13)


@pytest.mark.parametrize("opset", [12, 23, "17"])
def test_opsets_that_are_not_there_are_refused(opset, tmp_path):
    with pytest.raises(ValueError, match="opset must be 13 to 22"):
        export(fluid.default_main_program(), tmp_path / "x", [], ["y"], opset=opset)


def test_a_program_must_say_what_to_fetch(tmp_path):
    with pytest.raises(ValueError, match="give targets"):
        export(fluid.default_main_program(), tmp_path / "x")


def test_a_parameter_without_a_value_is_named(tmp_path):
    out = layers.fc(fluid.data("x", [None, 4]), 3, param_attr="weight")
    with pytest.raises(EnforceNotMet, match="weight has no value"):
        export(fluid.default_main_program(), tmp_path / "x", None, [out])
    assert list(tmp_path.iterdir()) == []


def test_many_parameters_go_to_a_file_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "_LARGEST", 100)
    out = layers.fc(fluid.data("x", [None, 40]), 30)
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((2, 40), "float32")}
    exe.run(fluid.default_startup_program())
    export(fluid.default_main_program(), tmp_path / "model.onnx", ["x"], [out])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (expected,) = exe.run(feed=feed, fetch_list=[out])
    np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-5)
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)


def test_inputs_can_be_fetched():
    x = fluid.data("x", [None, 2])
    out = layers.scale(x, 2.0)
    model = exporting.model_of(fluid.default_main_program(), ["x"], [out, x])
    feed = {"x": np.ones((1, 2), "float32")}
    np.testing.assert_array_equal(run(model, feed)["x"], feed["x"])


def test_a_variable_that_is_fetched_twice_is_one_output():
    rows = layers.relu(fluid.data("rows", [None, 2], lod_level=1))
    model = exporting.model_of(fluid.default_main_program(), ["rows"], [rows, rows])
    assert [output.name for output in model.graph.output] == [rows.name, f"{rows.name}.lengths"]
    feed = {"rows": np.ones((3, 2), "float32"), "rows.lengths": np.array([1, 2])}
    assert run(model, feed)[rows.name].shape == (3, 2)


def test_operators_before_a_reshape_in_place_see_the_old_shape():
    image = fluid.data("image", [None, 2, 4, 4])
    hidden = layers.conv2d(image, 3, 3)
    out = layers.conv2d(hidden, 2, 3, padding=1)
    layers.reshape(hidden, [-1, 12], inplace=True)  # the program says [-1, 12] from here on
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"image": np.ones((1, 2, 4, 4), "float32")}
    exe.run(fluid.default_startup_program())
    (expected,) = exe.run(feed=feed, fetch_list=[out])
    for targets in ([out], [out, hidden]):
        model = exporting.model_of(fluid.default_main_program(), ["image"], targets)
        np.testing.assert_allclose(run(model, feed)[out.name], expected, rtol=1e-5)


def test_a_recurrence_after_a_loop_runs():
    x = fluid.data("x", [None, 3, 2])
    i, end = (layers.fill_constant([1], "int64", value) for value in (0, 2))
    _, state = layers.while_loop(
        lambda i, s: layers.less_than(i, end), lambda i, s: [i + 1, s * 2.0], [i, x]
    )
    steps = layers.transpose(state, [1, 0, 2])
    rnn = layers.StaticRNN()
    with rnn.step():
        step = rnn.step_input(steps)
        memory = rnn.memory(shape=[-1, 2], batch_ref=steps, ref_batch_dim_idx=1)
        total = memory + step
        rnn.update_memory(memory, total)
        rnn.step_output(total)
    model = exporting.model_of(fluid.default_main_program(), ["x"], [rnn()])
    feed = {"x": np.arange(12, dtype="float32").reshape(2, 3, 2)}
    expected = 4 * np.cumsum(feed["x"].transpose(1, 0, 2), 0)
    np.testing.assert_array_equal(next(iter(run(model, feed).values())), expected)


@pytest.mark.parametrize("number", [1.0, 3.0])
def test_names_of_exported_branches_do_not_meet_those_of_loading(number, tmp_path):
    x = fluid.data("x", [None, 2])
    small = layers.less_than(layers.reduce_mean(x), layers.fill_constant([1], "float32", 2.0))
    layers.cond(small, lambda: x * 2.0, lambda: x + 1.0)  # not exported, so it leaves names free
    out = layers.cond(small, lambda: x * 3.0, lambda: x + 9.0)
    model = export(fluid.default_main_program(), tmp_path / "net.onnx", ["x"], [out])
    program, _, fetches = load(model)
    feed = {"x": np.full((1, 2), number, "float32")}
    made = fluid.Executor(fluid.CPUPlace()).run(program, feed, fetches)
    np.testing.assert_array_equal(made[0], [[3.0, 3.0]] if number == 1 else [[12.0, 12.0]])


def test_variables_that_are_written_again_have_their_last_value():
    x = layers.scale(fluid.data("x", [None, 2]), 2.0)
    layers.increment(x, 1.0)
    layers.assign(layers.scale(x, 3.0), x)
    model = exporting.model_of(fluid.default_main_program(), ["x"], [x])
    found = run(model, {"x": np.ones((1, 2), "float32")})
    np.testing.assert_array_equal(found[x.name], [[9.0, 9.0]])


def test_inputs_that_no_target_needs_stay(tmp_path):
    x, more = (fluid.data(name, [None, 2], "float32") for name in ("x", "more"))
    y = fluid.layers.scale(x, 2.0)
    model = export(fluid.default_main_program(), tmp_path / "m.onnx", [x, more], [y])
    assert [info.name for info in model.graph.input] == ["x", "more"]


@pytest.mark.parametrize("pooled", ["roi_align", "roi_pool"])
def test_regions_are_divided_by_offsets(pooled, tmp_path):
    image = fluid.data("image", [None, 2, 6, 6], "float32")
    regions = fluid.data("regions", [None, 4], "float32")
    offsets = fluid.data("offsets", [None], "int64")
    made = getattr(fluid.layers, pooled)(image, regions, 2, 2, rois_lod=offsets)
    path, program = tmp_path / "regions.onnx", fluid.default_main_program()
    names = ["image", "regions", "offsets"]
    export(program, path, names, [made])
    arrays = (
        np.random.default_rng(0).random((3, 2, 6, 6), np.float32),
        np.array([[0, 0, 3, 4], [1, 2, 5, 5], [0, 1, 4, 2]], np.float32),
    )
    feed = dict(zip(names, (*arrays, np.array([0, 1, 1, 3])), strict=True))
    wanted = fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=[made])
    found = onnxruntime.InferenceSession(path).run(None, feed)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)


def test_products_of_several_open_sizes(tmp_path):
    x = fluid.data("x", [None, 3, None], "float32")
    y = fluid.data("y", [None, None], "float32")
    made = [fluid.layers.mul(x, y, x_num_col_dims=2)]
    path, program = tmp_path / "product.onnx", fluid.default_main_program()
    export(program, path, ["x", "y"], made)
    feed = {"x": np.ones([2, 3, 4], np.float32), "y": np.ones([4, 5], np.float32)}
    [found] = onnxruntime.InferenceSession(path).run(None, feed)
    assert np.array_equal(found, np.full([2, 3, 5], 4.0))


def test_the_shape_of_what_is_negated_and_selected_by(tmp_path):
    """onnxruntime's optimizer loses a ``Not`` if a cast of it tells the shape of the choices."""
    mask = fluid.data("mask", [None, 2], "bool")
    other = layers.logical_not(mask)
    ones = layers.fill_constant(layers.shape(layers.cast(other, "float32")), "float32", 1.0)
    block = fluid.default_main_program().global_block()
    made = block.create_var(name="made", dtype="float32")
    inputs = {"Condition": other, "X": ones, "Y": layers.scale(ones, 2.0)}
    block.append_op(type="where", inputs=inputs, outputs={"Out": made})
    model = export(fluid.default_main_program(), tmp_path / "m.onnx", ["mask"], [made])
    found = run(model, {"mask": np.array([[True, False]])}, optimized=True)
    assert found["made"].tolist() == [[2, 1]]
