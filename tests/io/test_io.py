"""Saving and loading, in the formats of the real Paddle 1.8.5 (tests/fixtures/record_saved.py)."""

import io
import pickle
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.formats import streams
from dpexec.io.pickles import read_arrays, write_arrays
from tests.engine.run import nets
from tests.fixtures import programs, saved_cases

SAVED = Path(__file__).parents[1] / "fixtures" / "saved"


@pytest.fixture(autouse=True)
def _own_scope():
    with fluid.scope_guard(fluid.Scope()):
        yield


@pytest.fixture
def line():
    """The network of the recorded checkpoints: executor, main program, prediction."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        prediction, loss = saved_cases.line(fluid)
        fluid.optimizer.Adam(0.01).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    return exe, main, prediction


def recorded():
    with np.load(SAVED / "values.npz") as values:
        return {name: values[name] for name in values.files if name != "prediction"}


def assert_state(main, wanted):
    found = programs.state(fluid, main)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def set_to(main, number):
    for var in fluid.io.get_program_persistable_vars(main):
        tensor = fluid.global_scope().find_var(var.name).get_tensor()
        tensor.set(np.full(tensor.shape(), number, "float32"))


def files(directory):
    paths = filter(Path.is_file, directory.rglob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


# ---- what the real Paddle wrote


def test_real_separate_files_are_read_and_written_alike(line, tmp_path):
    exe, main, _ = line
    fluid.io.load_persistables(exe, str(SAVED / "separate"), main)
    assert_state(main, recorded())
    fluid.io.save_persistables(exe, str(tmp_path), main)
    assert files(tmp_path) == files(SAVED / "separate")


def test_real_combined_file_is_read_and_written_alike(line, tmp_path):
    exe, main, _ = line
    fluid.io.load_persistables(exe, str(SAVED), main, "combined")
    assert_state(main, recorded())
    fluid.io.save_persistables(exe, str(tmp_path), main, "combined")
    assert (tmp_path / "combined").read_bytes() == (SAVED / "combined").read_bytes()


def test_real_checkpoint_is_read(line):
    _, main, _ = line
    fluid.load(main, str(SAVED / "checkpoint"))
    assert_state(main, recorded())
    state = fluid.io.load_program_state(str(SAVED / "checkpoint"))
    assert state.keys() == recorded().keys()
    model = fluid.Program.parse_from_string((SAVED / "checkpoint.pdmodel").read_bytes())
    assert [op.type for op in model.global_block().ops] == [
        op.type for op in main.global_block().ops
    ]


def test_state_of_some_variables_of_a_real_combined_file_is_refused(line):
    """The file has no names, so that numbers of others would be taken for theirs."""
    _, main, _ = line
    with pytest.raises(
        fluid.core.EnforceNotMet, match=r"combined goes on after variable fc_0\.w_0"
    ):
        fluid.io.load_program_state(str(SAVED / "combined"), main.all_parameters())


@pytest.mark.parametrize("filename", [None, "tensors.combined"])
def test_real_files_of_every_kind_are_read_and_written_alike(filename, tmp_path):
    program = saved_cases.tensors(fluid)
    scope = fluid.global_scope()
    chosen = list(program.list_vars())
    if filename:
        chosen = list(filter(saved_cases.is_dense, chosen))
    directory = str(SAVED if filename else SAVED / "tensors")
    wanted = contents(scope, chosen)
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_vars(None, directory, program, chosen, filename=filename)
        assert contents(fluid.global_scope(), chosen) == wanted
        fluid.io.save_vars(None, str(tmp_path), program, chosen, filename=filename)
    if filename:
        assert (tmp_path / filename).read_bytes() == (SAVED / filename).read_bytes()
    else:
        assert files(tmp_path) == files(SAVED / "tensors")


def contents(scope, variables):
    """What variables hold, in a form that can be compared."""
    found = {}
    for var in variables:
        holder = scope.find_var(var.name)
        if var.name == "rows":
            rows = holder.get_selected_rows()
            array = np.array(rows.get_tensor())
            extra = (list(rows.rows()), rows.height())
        else:
            array = np.array(holder.get_tensor())
            extra = holder.get_tensor().lod()
        found[var.name] = (array.tolist(), str(array.dtype), extra)
    return found


def test_a_real_file_of_half_precision_is_read():
    saved_cases.tensors(fluid)
    value = np.array(fluid.global_scope().find_var("float32").get_tensor())
    with open(SAVED / "tensors.float16", "rb") as file:
        found = streams.read(file, fluid.core.VarDesc.VarType.LOD_TENSOR, "float32", "f")
    assert found._dtype() == fluid.core.VarDesc.VarType.FP16
    np.testing.assert_allclose(np.array(found), value, rtol=1e-3)  # the original truncates


# ---- own files


def test_save_and_load_every_kind(line, tmp_path):
    exe, main, _ = line
    fluid.load(main, str(SAVED / "checkpoint"))
    fluid.save(main, str(tmp_path / "own"))
    fluid.io.save_persistables(exe, str(tmp_path / "separate"), main)
    fluid.io.save_persistables(exe, str(tmp_path), main, "combined")
    everything = list(filter(fluid.io.is_persistable, main.list_vars()))
    for path in ("own", "own.pdparams", "separate", "combined"):
        set_to(main, 7)
        fluid.load(main, str(tmp_path / path), exe, everything)
        assert_state(main, recorded())
        state = fluid.io.load_program_state(
            str(tmp_path / path), everything if path == "combined" else None
        )
        set_to(main, 7)
        fluid.io.set_program_state(main, state)
        assert_state(main, recorded())


def test_params_are_the_parameters_alone(line, tmp_path):
    exe, main, _ = line
    fluid.io.save_params(exe, str(tmp_path), main)
    assert sorted(files(tmp_path)) == ["fc_0.b_0", "fc_0.w_0"]
    before = fluid.io.get_parameter_value_by_name("fc_0.w_0", exe, main)
    set_to(main, 7)
    fluid.io.load_params(exe, str(tmp_path), main)
    np.testing.assert_array_equal(
        fluid.io.get_parameter_value_by_name("fc_0.w_0", exe, main), before
    )


def test_memory_instead_of_files(line):
    exe, main, _ = line
    fluid.load(main, str(SAVED / "checkpoint"))
    content = fluid.io.save_persistables(exe, None, main)
    set_to(main, 7)
    fluid.io.load_persistables(exe, None, main, content)
    assert_state(main, recorded())


@pytest.mark.parametrize("mode", [nets.AllReduce, nets.Reduce])
def test_loading_after_a_parallel_run_reaches_all_replicas(tmp_path, mode):
    net = nets.classifier(fluid.optimizer.Adam(0.01))
    feeds = nets.batches(6)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup)
    build, execution = nets.strategies(mode)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=[fluid.CPUPlace()] * 3
    )

    def train(chosen):
        return [exe.run(compiled, feed=feed, fetch_list=[net.loss])[0] for feed in chosen]

    train(feeds[:2])
    fluid.save(net.main, str(tmp_path / "model"))
    wanted = train(feeds[2:])
    fluid.load(net.main, str(tmp_path / "model"), exe)
    np.testing.assert_array_equal(train(feeds[2:]), wanted)


@pytest.mark.parametrize("dtype", ["bool", "int16", "int32", "int64", "float16", "float64", "int8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_streams_keep_values_and_offsets(dtype, shape):
    tensor = fluid.LoDTensor()
    tensor.set(np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype))
    rows = shape[0] if shape else 1
    tensor.set_lod([[0, 1, 2], [0, 0, rows]])
    file = io.BytesIO()
    streams.write(file, tensor)
    file.seek(0)
    found = streams.read(file, fluid.core.VarType.LOD_TENSOR, "x", "f")
    np.testing.assert_array_equal(found.numpy(), tensor.numpy())
    assert found.numpy().dtype == tensor.numpy().dtype
    assert found.lod() == tensor.lod()


def test_selected_rows_survive():
    value = np.arange(6, dtype="float32").reshape(2, 3)
    file = io.BytesIO()
    streams.write(file, fluid.core.SelectedRows([4, 1], 9, value))
    file.seek(0)
    found = streams.read(file, fluid.core.VarType.SELECTED_ROWS, "x", "f")
    assert (found.rows(), found.height()) == ([4, 1], 9)
    np.testing.assert_array_equal(found.value, value)


# ---- damage


def test_every_truncation_names_file_and_variable_and_changes_nothing(line, tmp_path):
    exe, main, _ = line
    content = (SAVED / "combined").read_bytes()
    set_to(main, 7)
    before = programs.state(fluid, main)
    for size in range(0, len(content), 5):
        (tmp_path / "cut").write_bytes(content[:size])
        with pytest.raises(fluid.core.EnforceNotMet, match=r"cut is damaged at variable (fc|lear)"):
            fluid.io.load_persistables(exe, str(tmp_path), main, "cut")
    assert_state(main, before)


def test_damaged_and_missing_files_are_named(line, tmp_path):
    exe, main, _ = line
    shutil.copytree(SAVED / "separate", tmp_path / "d")
    (tmp_path / "d" / "fc_0.w_0").write_bytes(b"nonsense")
    with pytest.raises(fluid.core.EnforceNotMet, match=r"fc_0.w_0 is damaged at variable fc_0.w_0"):
        fluid.io.load_persistables(exe, str(tmp_path / "d"), main)
    (tmp_path / "d" / "fc_0.w_0").unlink()
    with pytest.raises(fluid.core.EnforceNotMet, match=r"cannot read file .*fc_0.w_0 for variable"):
        fluid.io.load_persistables(exe, str(tmp_path / "d"), main)
    (tmp_path / "more").write_bytes((SAVED / "combined").read_bytes() + b"x")
    with pytest.raises(fluid.core.EnforceNotMet, match="more goes on after variable"):
        fluid.io.load_persistables(exe, str(tmp_path), main, "more")


def test_a_damaged_size_asks_for_no_memory():
    content = bytearray((SAVED / "tensors" / "rows").read_bytes())
    content[4:12] = struct.pack("<Q", (1 << 31) - 1)
    kind = fluid.core.VarDesc.VarType.SELECTED_ROWS
    with pytest.raises(fluid.core.EnforceNotMet, match=r"f is damaged at variable rows: it ends"):
        streams.read(io.BytesIO(content), kind, "rows", "f")


@pytest.mark.parametrize(
    "damage", [lambda c: c[:500], lambda c: c.replace(b"scale_0", b"scald_0", 1)]
)
def test_a_damaged_model_is_named(damage, tmp_path):
    shutil.copytree(SAVED / "inference", tmp_path / "d")
    content = (tmp_path / "d" / "__model__").read_bytes()
    (tmp_path / "d" / "__model__").write_bytes(damage(content))
    with pytest.raises(fluid.core.EnforceNotMet, match=r"__model__: .*no valid ProgramDesc"):
        fluid.io.load_inference_model(str(tmp_path / "d"), fluid.Executor(fluid.CPUPlace()))


def test_a_pickle_cannot_run_code(line, tmp_path):
    _, main, _ = line
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return Path.touch, (ran,)

    with open(tmp_path / "m.pdparams", "wb") as file:
        pickle.dump({"fc_0.w_0": Evil()}, file, protocol=2)
    with pytest.raises(fluid.core.EnforceNotMet, match="only arrays and plain containers"):
        fluid.load(main, str(tmp_path / "m"))
    assert not ran.exists()


def test_a_cut_pickle_is_named(line, tmp_path):
    _, main, _ = line
    (tmp_path / "m.pdparams").write_bytes((SAVED / "checkpoint.pdparams").read_bytes()[:-20])
    with pytest.raises(fluid.core.EnforceNotMet, match=r"m.pdparams is damaged"):
        fluid.load(main, str(tmp_path / "m"))


def test_a_parameter_of_another_shape_is_refused(line, tmp_path):
    exe, main, _ = line
    shutil.copytree(SAVED / "separate", tmp_path / "d")
    shutil.copy(SAVED / "separate" / "fc_0.b_0", tmp_path / "d" / "fc_0.w_0")
    with pytest.raises(RuntimeError, match=r"fc_0.w_0"):
        fluid.io.load_persistables(exe, str(tmp_path / "d"), main)


def test_load_refuses_a_parameter_of_another_shape_and_stores_nothing(line, tmp_path):
    exe, main, _ = line
    fluid.save(main, str(tmp_path / "m"))
    others = fluid.Program(), fluid.Program()
    with fluid.program_guard(*others), fluid.unique_name.guard():
        wide = fluid.layers.fc(fluid.data("x", [None, 13]), 2)
        fluid.optimizer.Adam(0.01).minimize(fluid.layers.mean(wide))
    exe.run(others[1])
    before = programs.state(fluid, others[0])
    with pytest.raises(RuntimeError, match=r"shape does not match.*fc_0"):
        fluid.load(others[0], str(tmp_path / "m"), exe)
    assert_state(others[0], before)


def test_saving_before_startup_names_the_variable(tmp_path):
    net = nets.classifier()
    with pytest.raises(fluid.core.EnforceNotMet, match=r"fc_0\.\w_0 has no value"):
        fluid.io.save_params(fluid.Executor(fluid.CPUPlace()), str(tmp_path), net.main)
    assert files(tmp_path) == {}


def test_a_checkpoint_that_is_not_there_is_named(line, tmp_path):
    exe, main, _ = line
    missing = str(tmp_path / "none" / "model")
    for load in (
        lambda: fluid.load(main, missing, exe),
        lambda: fluid.io.load_program_state(missing),
    ):
        with pytest.raises(FileNotFoundError, match=r"there is neither .*model\.pdparams nor"):
            load()


def test_arrays_without_elements_are_read_again(tmp_path):
    path = tmp_path / "empty.pdparams"
    with open(path, "wb") as file:
        write_arrays(file, {"none": np.zeros((0, 3), np.float32), "one": np.ones(1)})
    found = read_arrays(path)
    assert found["none"].shape == (0, 3) and found["none"].dtype == np.float32
    assert found["one"] == [1]
