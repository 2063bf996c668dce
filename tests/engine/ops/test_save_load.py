"""The operators ``save``, ``load`` and their combined forms in programs."""

import hashlib

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.formats import streams

VALUES = {
    "a": np.arange(6, dtype="float32").reshape(2, 3),
    "b": np.arange(4, dtype="int64"),
    "c": np.array([0.5], "float64"),
}


def declare(*names, persistable=False, suffix=""):
    block = fluid.default_main_program().global_block()
    return [
        block.create_var(
            name=name + suffix,
            shape=VALUES[name].shape,
            dtype=VALUES[name].dtype,
            persistable=persistable,
        )
        for name in names
    ]


def fed(*names):
    return [fluid.data(n, list(VALUES[n].shape), str(VALUES[n].dtype)) for n in names]


def append(type, inputs, outputs, **attrs):
    fluid.default_main_program().global_block().append_op(type, inputs, outputs, attrs)


def run(**options):
    exe = fluid.Executor(fluid.CPUPlace())
    return exe.run(fluid.default_main_program(), **options)


def save_all(path, **attrs):
    with fluid.program_guard(fluid.Program()):
        append("save_combine", {"X": fed("a", "b", "c")}, {}, file_path=str(path), **attrs)
        run(feed=VALUES)


def test_saved_variables_are_loaded(tmp_path):
    path = tmp_path / "new" / "all"
    save_all(path)
    outs = declare("a", "b", "c")
    append("load_combine", {}, {"Out": outs}, file_path=str(path))
    for value, found in zip(VALUES.values(), run(fetch_list=outs), strict=True):
        assert found.dtype == value.dtype and np.array_equal(found, value)
    assert [file.name for file in path.parent.iterdir()] == ["all"]


def test_loaded_variable_stays_in_the_scope(tmp_path):
    with fluid.program_guard(fluid.Program()):
        append("save", {"X": fed("a")}, {}, file_path=str(tmp_path / "a"))
        run(feed={"a": VALUES["a"]})
    append("load", {}, {"Out": declare("a", persistable=True)}, file_path=str(tmp_path / "a"))
    run()
    assert np.array_equal(fluid.global_scope().find_var("a").get_tensor(), VALUES["a"])


def test_files_are_those_of_fluid_io(tmp_path):
    (var,) = declare("a", persistable=True)
    fluid.global_scope().var("a").get_tensor().set(VALUES["a"], fluid.CPUPlace())
    fluid.io.save_vars(fluid.Executor(fluid.CPUPlace()), str(tmp_path), vars=[var])
    append("save", {"X": [var]}, {}, file_path=str(tmp_path / "b"))
    run()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_part_of_a_variable_is_loaded(tmp_path):
    with fluid.program_guard(fluid.Program()):
        append("save", {"X": fed("a")}, {}, file_path=str(tmp_path / "a"))
        run(feed={"a": VALUES["a"]})
    part = fluid.default_main_program().global_block().create_var(name="part", shape=[2])
    append("load", {}, {"Out": [part]}, file_path=str(tmp_path / "a"), seek=2, shape=[2])
    assert run(fetch_list=[part])[0].tolist() == [2, 3]


@pytest.mark.parametrize("on_save", [True, False])
def test_half_precision(tmp_path, on_save):
    save_all(tmp_path / "all", save_as_fp16=on_save)
    outs = declare("a", "b", "c", suffix="_half")
    path = str(tmp_path / "all")
    append("load_combine", {}, {"Out": outs}, file_path=path, load_as_fp16=not on_save)
    found = run(fetch_list=outs)
    assert [value.dtype.name for value in found] == ["float16", "int64", "float16"]
    assert np.array_equal(found[0], VALUES["a"])


def test_sparse_rows_are_saved(tmp_path):
    ids = fluid.data("ids", [None, 1], "int64")
    loss = fluid.layers.mean(fluid.embedding(ids, [4, 2], is_sparse=True))
    ((_, grad),) = fluid.backward.append_backward(loss)
    append("save", {"X": [grad]}, {}, file_path=str(tmp_path / "rows"))
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    run(feed={"ids": np.array([[3], [1]])})
    with open(tmp_path / "rows", "rb") as file:
        rows = streams.read(file, fluid.core.VarDesc.VarType.SELECTED_ROWS, "rows", "rows")
    assert list(rows.rows()) == [3, 1] and rows.height() == 4


SENTENCES = fluid.create_lod_tensor(
    np.arange(12, dtype="float32").reshape(6, 2), [[2, 1], [3, 1, 2]], fluid.CPUPlace()
)


def save_sequences(path):
    """Two paragraphs, after a variable without sequences; twice as large."""
    with fluid.program_guard(fluid.Program()):
        words = fluid.data("words", [None, 2], lod_level=2)
        append("save_combine", {"X": [*fed("a"), words * 2.0]}, {}, file_path=f"{path}/both")
        append("save", {"X": [words]}, {}, file_path=f"{path}/words")
        run(feed={"words": SENTENCES, "a": VALUES["a"]})


def test_sequences_are_saved_and_loaded(tmp_path):
    save_sequences(tmp_path)
    block = fluid.default_main_program().global_block()
    (first,) = declare("a")
    one, other = (block.create_var(name=n, shape=[-1, 2], lod_level=2) for n in ("one", "other"))
    append("load_combine", {}, {"Out": [first, one]}, file_path=f"{tmp_path}/both")
    append("load", {}, {"Out": [other]}, file_path=f"{tmp_path}/words")
    sums = fluid.layers.sequence_pool(one, "sum")
    found = run(fetch_list=[first, one, other, sums], return_numpy=False)
    paragraphs, sentences = SENTENCES.lod()
    assert [value.lod() for value in found] == [
        [],
        [paragraphs, sentences],
        [paragraphs, sentences],
        [paragraphs],
    ]
    assert np.array_equal(found[1], 2 * np.array(SENTENCES))
    assert np.array(found[3]).tolist() == [[12, 18], [12, 14], [36, 40]]


def test_files_of_sequences_are_those_of_fluid_io_and_of_paddle(tmp_path):
    save_sequences(tmp_path)
    (var,) = declare("a", persistable=True)
    fluid.global_scope().var("a").get_tensor().set(SENTENCES, fluid.CPUPlace())
    fluid.global_scope().var("a").get_tensor().set_lod(SENTENCES.lod())
    exe = fluid.Executor(fluid.CPUPlace())
    fluid.io.save_vars(exe, str(tmp_path), vars=[var])
    content = (tmp_path / "words").read_bytes()
    assert (tmp_path / "a").read_bytes() == content
    assert hashlib.md5(content).hexdigest() == "18e59f5bf251d20e26cf202db56eec4a"
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_vars(exe, str(tmp_path), vars=[var])
        assert fluid.global_scope().find_var("a").get_tensor().lod() == SENTENCES.lod()


# ---- what is refused


def test_sequences_are_loaded_into_variables_that_hold_some(tmp_path):
    save_sequences(tmp_path)
    append("load", {}, {"Out": declare("a")}, file_path=f"{tmp_path}/words")
    with pytest.raises(fluid.core.EnforceNotMet, match="lod_level=1"):
        run()


def test_existing_file_is_kept_if_asked(tmp_path):
    save_all(tmp_path / "all")
    before = (tmp_path / "all").read_bytes()
    with pytest.raises(fluid.core.EnforceNotMet, match="overwrite is False"):
        save_all(tmp_path / "all", overwrite=False)
    assert (tmp_path / "all").read_bytes() == before
    save_all(tmp_path / "all")


@pytest.mark.parametrize(
    ("names", "problem"), [(("a", "b"), "more than 2 variables"), (("a", "b", "c", "a"), "damaged")]
)
def test_file_with_other_variables_is_refused(tmp_path, names, problem):
    save_all(tmp_path / "all")
    outs = [fluid.default_main_program().global_block().create_var(name=f"v{i}") for i in range(4)]
    append("load_combine", {}, {"Out": outs[: len(names)]}, file_path=str(tmp_path / "all"))
    with pytest.raises(fluid.core.EnforceNotMet, match=problem):
        run()


def test_missing_file_is_named(tmp_path):
    append("load", {}, {"Out": declare("a")}, file_path=str(tmp_path / "nothing"))
    with pytest.raises(fluid.core.EnforceNotMet, match=r"load(.|\n)*cannot open file .*nothing"):
        run()


def test_memory_instead_of_files_is_refused(tmp_path):
    with pytest.raises(fluid.core.EnforceNotMet, match="save_to_memory"):
        save_all(tmp_path / "all", save_to_memory=True)
    append("load_combine", {}, {"Out": declare("a")}, file_path="x", model_from_memory=True)
    with pytest.raises(fluid.core.EnforceNotMet, match="model_from_memory"):
        run()


def test_failed_save_changes_no_variable(tmp_path):
    counter = fluid.layers.autoincreased_step_counter()
    (tmp_path / "file").write_bytes(b"")
    append("save", {"X": [counter]}, {}, file_path=str(tmp_path / "file" / "inside"))
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    name = counter.name
    before = np.array(fluid.global_scope().find_var(name).get_tensor()).item()
    with pytest.raises(fluid.core.EnforceNotMet, match="save"):
        run()
    assert np.array(fluid.global_scope().find_var(name).get_tensor()).item() == before
