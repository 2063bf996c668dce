"""``dpexec convert`` between all formats, and what it refuses."""

import os

import numpy as np
import pytest

import dpexec as fluid
from dpexec.cli import main

pytest.importorskip("onnx")
pytest.importorskip("safetensors")


def net():
    """The result of a net in the current program."""
    image = fluid.data("image", [-1, 1, 6, 6], "float32")
    hidden = fluid.layers.batch_norm(fluid.layers.conv2d(image, 2, 3, act="relu"))
    return fluid.layers.fc(hidden, 3, act="softmax")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A saved model, what it is fed, what it gives, and its parameters."""
    folder = tmp_path_factory.mktemp("saved")
    main_program, startup = fluid.Program(), fluid.Program()
    with (
        fluid.unique_name.guard(),
        fluid.program_guard(main_program, startup),
        fluid.scope_guard(fluid.Scope()),
    ):
        made = net()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        fluid.io.save_inference_model(str(folder), ["image"], [made], exe, main_program)
        fluid.save(main_program, str(folder / "net" / "training"))
        x = np.linspace(0, 1, 72, dtype=np.float32).reshape(2, 1, 6, 6)
        wanted = exe.run(main_program.clone(for_test=True), {"image": x}, [made])[0]
        names = [v.name for v in fluid.io.get_program_persistable_vars(main_program)]
        scope = fluid.global_scope()
        arrays = {n: np.array(scope.find_var(n).get_tensor()) for n in names}
    return folder, x, wanted, arrays, made.name


def predicted(folder, x, **files):
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        program, feeds, fetches = fluid.io.load_inference_model(str(folder), exe, **files)
        return exe.run(program, feed={feeds[0]: x}, fetch_list=fetches)[0]


def convert(*arguments):
    return main(["convert", *map(str, arguments)])


def test_a_round_through_all_formats_keeps_the_results(model, tmp_path, capsys):
    folder, x, wanted, arrays, _ = model
    assert convert(folder, tmp_path / "a.onnx") == 0
    assert convert(tmp_path / "a.onnx", tmp_path / "b.pdparams") == 0
    assert {p.name for p in tmp_path.glob("b.*")} == {"b.pdparams", "b.pdopt", "b.pdmodel"}
    assert convert(tmp_path / "b", tmp_path / "c", "--combine", "weights") == 0
    assert {p.name for p in (tmp_path / "c").iterdir()} == {"__model__", "weights"}
    made = predicted(tmp_path / "c", x, params_filename="weights")
    np.testing.assert_allclose(made, wanted, rtol=1e-5)
    assert convert(tmp_path / "c", tmp_path / "d.safetensors") == 0
    assert convert(tmp_path / "d.safetensors", tmp_path / "e.npz") == 0
    with np.load(tmp_path / "e.npz") as file:
        for name, array in arrays.items():
            np.testing.assert_array_equal(file[name], array)
    assert "-> " in capsys.readouterr().out


def test_parameters_go_into_the_program_of_another_model(model, tmp_path):
    folder, x, wanted, _, _ = model
    assert convert(folder, tmp_path / "weights.npz") == 0
    assert convert(tmp_path / "weights.npz", tmp_path / "again", "--program", folder) == 0
    np.testing.assert_array_equal(predicted(tmp_path / "again", x), wanted)


@pytest.fixture
def saved(model, tmp_path):
    """Directories and files of parameters alone, as training saves them, and of a program alone."""
    folder, *_ = model
    program, startup = fluid.Program(), fluid.Program()
    exe = fluid.Executor(fluid.CPUPlace())
    with (
        fluid.unique_name.guard(),
        fluid.program_guard(program, startup),
        fluid.scope_guard(fluid.Scope()),
    ):
        fluid.optimizer.Momentum(0.1, 0.9).minimize(fluid.layers.mean(net()))
        exe.run(startup)
        fluid.io.load_params(exe, str(folder), program)
        fluid.save(program, str(tmp_path / "training"))
        fluid.io.save_persistables(exe, str(tmp_path / "each"), program)
        fluid.io.save_persistables(exe, str(tmp_path / "one"), program, "all")
        fluid.io.save_params(exe, str(tmp_path / "params"), program, "all")
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__model__").write_bytes((folder / "__model__").read_bytes())
    return tmp_path


def arrays_of(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_parameters_without_a_program(model, saved):
    _, x, wanted, arrays, _ = model
    for source, *options in (
        ["each"],
        ["one", "--program", saved / "training"],
        ["params/all", "--program", saved / "training.pdmodel"],
    ):
        assert convert(saved / source, saved / "out.npz", *options) == 0
        found = arrays_of(saved / "out.npz")
        assert found.keys() >= arrays.keys()
        assert all((found[name] == arrays[name]).all() for name in arrays)
        assert len(found) == len(arrays) + (0 if "params" in source else 7)  # momentum and rate
    assert convert(saved / "each", saved / "again", "--program", saved / "program") == 0
    np.testing.assert_array_equal(predicted(saved / "again", x), wanted)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["one", "out.npz"], "not their names"),
        (["one/all", "out.npz"], "not their names"),
        (["each", "out"], "no program"),
        (["damaged", "out.npz"], "damaged at variable number 3"),
        (["damaged", "out.npz", "--program", "training"], "damaged at variable number 3"),
        (["short", "out.npz", "--program", "program"], "holds 2 parameters, the program has 8"),
        (["program", "out.npz"], "has no parameters"),
        (["program", "out"], "has no values for batch_norm_0.b_0"),
    ],
)
def test_parameters_that_cannot_be_told(saved, monkeypatch, capsys, arguments, complaint):
    monkeypatch.chdir(saved)
    data = (saved / "one" / "all").read_bytes()
    size = (saved / "each" / "batch_norm_0.b_0").stat().st_size
    (saved / "short").write_bytes(data[: 2 * size])
    (saved / "damaged").write_bytes(data[: 2 * size + 9])
    assert convert(*arguments) == 2
    assert complaint in capsys.readouterr().err
    assert not any(path.name.startswith("out") for path in saved.iterdir())


def test_a_program_for_training_needs_to_know_what_is_fetched(model, tmp_path, capsys):
    folder, x, wanted, _, name = model
    source = folder / "net" / "training"
    assert convert(source, tmp_path / "net") == 2
    assert "--fetch" in capsys.readouterr().err
    assert not (tmp_path / "net").exists()
    assert convert(source, tmp_path / "net", "--fetch", name) == 0
    np.testing.assert_allclose(predicted(tmp_path / "net", x), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["weights.npz", "out.onnx"], "no program"),
        (["nothing.onnx", "out.npz"], "nothing.onnx"),
        (["saved", "out.h5"], "no format ends with .h5"),
        (["text.onnx", "out.npz"], "no ONNX model"),
        (["text.npz", "out.safetensors"], "no archive of NumPy arrays"),
        (["void.npz", "out.safetensors"], "no archive of NumPy arrays"),
        (["none.npz", "out.safetensors"], "has no parameters"),
        (["text.safetensors", "out.npz"], "no file of safetensors"),
        (["empty", "out.npz"], "has no __model__"),
        (["weights.npz", "weights.npz"], "the same"),
        (["other.npz", "out", "--program", "saved"], "unexpected: strange; missing: batch_norm_0"),
        (["small.npz", "out", "--program", "saved"], "has the shape [1]"),
        (["saved", "out.onnx", "--fetch", "nobody"], "no variable 'nobody'"),
    ],
)
def test_what_cannot_be_converted_leaves_nothing(
    model, tmp_path, monkeypatch, capsys, arguments, complaint
):
    folder, _, _, arrays, _ = model
    monkeypatch.chdir(tmp_path)
    os.symlink(folder, "saved")
    (tmp_path / "empty").mkdir()
    for name in ("text.onnx", "text.npz", "text.safetensors"):
        (tmp_path / name).write_text("nothing of that kind")
    (tmp_path / "void.npz").touch()
    np.savez("none.npz")
    np.savez("weights.npz", **arrays)
    np.savez("other.npz", strange=np.ones(3))
    np.savez("small.npz", **{name: np.ones(1, np.float32) for name in arrays})
    before = sorted(p.name for p in tmp_path.iterdir())
    assert convert(*arguments) == 2
    assert complaint in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_pictures_of_models_need_no_traces(model, tmp_path, capsys):
    folder, *_ = model
    assert convert(folder, tmp_path / "a.onnx") == 0
    for source in (folder, tmp_path / "a.onnx", folder / "net" / "training.pdparams"):
        assert main(["viz", str(source)]) == 0
        assert "operators" in capsys.readouterr().out
    assert main(["viz", str(tmp_path / "a.onnx"), "--report", str(tmp_path / "net.svg")]) == 0
    assert "conv" in (tmp_path / "net.svg").read_text()
    np.savez(tmp_path / "w.npz", a=np.ones(1))
    (tmp_path / "each").mkdir()
    os.link(folder / "fc_0.w_0", tmp_path / "each" / "fc_0.w_0")
    for source in ("w.npz", "each"):
        assert main(["viz", str(tmp_path / source)]) == 2
        assert "nothing to draw" in capsys.readouterr().err
