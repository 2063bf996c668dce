"""Readers of ``fluid.layers``: names, shapes and results of Paddle 1.8.5."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.ir.verify import verify
from tests.fixtures import reader_programs

RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "readers.json").read_text())
ALL = [[10.0], [12.0], [14.0], [16.0], [18.0]]


@pytest.fixture(autouse=True)
def programs():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        yield main


def batches():
    return ((np.array([[i], [i + 10]]),) for i in range(5))


def by_data():
    return fluid.layers.create_py_reader_by_data(4, [fluid.data("y", [None, 1], "int64")])


def by_shape():
    return fluid.layers.py_reader(4, [(-1, 1)], ["int64"])


def epoch(program, reader, total):
    exe, results = fluid.Executor(fluid.CPUPlace()), []
    reader.start()
    try:
        while True:
            results.append(exe.run(program, fetch_list=[total])[0].tolist())
    except fluid.core.EOFException:
        reader.reset()
    return results


@pytest.mark.parametrize("make", [by_data, by_shape])
def test_program_reads_from_its_reader(programs, make):
    reader = fluid.layers.double_buffer(make())
    y = fluid.layers.read_file(reader)
    assert (y.name, y.shape, y.dtype) == ("read_file_0.tmp_0", (-1, 1), fluid.core.VarType.INT64)
    total = fluid.layers.reduce_sum(fluid.layers.cast(y, "float32"))
    reader.decorate_tensor_provider(batches)
    assert epoch(programs, reader, total) == ALL
    reader.decorate_paddle_reader(lambda: ([(i,), (i + 10,)] for i in range(5)))
    assert epoch(programs, reader, total) == ALL
    two = fluid.CompiledProgram(programs).with_data_parallel(places=fluid.cpu_places(2))
    assert epoch(two, reader, total) == [[10, 12], [14, 16]]


def test_samples_may_be_set_before_the_program_reads_them(programs):
    reader = fluid.layers.py_reader(2, [(-1, 2, 2), (-1, 1)], ["float32", "int64"])
    reader.decorate_paddle_reader(lambda: ([(np.ones(4), 3)] for _ in range(2)))
    image, label = fluid.layers.read_file(reader)
    total = fluid.layers.reduce_sum(image) + fluid.layers.cast(label, "float32")
    assert epoch(programs, reader, total) == [[[7.0]], [[7.0]]]


def test_several_fields_come_as_a_list(programs):
    reader = fluid.layers.py_reader(2, [(-1, 4), (-1, 1)], ["float32", "int64"])
    image, label = fluid.layers.read_file(reader)
    assert (image.shape, label.shape) == ((-1, 4), (-1, 1))
    test = programs.clone(for_test=True)
    reader.decorate_batch_generator(
        lambda: [(np.ones((3, 4), "float32"), np.ones((3, 1), "int64"))]
    )
    total = fluid.layers.reduce_sum(image)  # the label is not used
    assert epoch(programs, reader, total) == [[12.0]]
    assert label.name in test.global_block().vars


def test_a_reader_gives_sequences(programs):
    reader = fluid.layers.py_reader(2, [(-1, 1)], ["float32"], lod_levels=[1])
    totals = fluid.layers.sequence_pool(fluid.layers.read_file(reader), "sum")
    rows = np.arange(5, dtype="float32").reshape(5, 1)
    words = fluid.create_lod_tensor(rows, [[2, 3]], fluid.CPUPlace())
    reader.decorate_batch_generator(lambda: [[words]])
    assert epoch(programs, reader, totals) == [[[1.0], [9.0]]]


def test_wrong_arguments(programs):
    with pytest.raises(ValueError, match="2 shapes, 1 dtypes and 2 lod_levels"):
        fluid.layers.py_reader(2, [(-1, 4), (-1, 1)], ["float32"])
    with pytest.raises(TypeError, match="feed_list"):
        fluid.layers.create_py_reader_by_data(2, (fluid.data("x", [None]),))
    for layer in (fluid.layers.read_file, fluid.layers.double_buffer):
        with pytest.raises(TypeError, match=r"'reader' in .* must be ProgramReader"):
            layer(3)


@pytest.mark.parametrize("name", reader_programs.CASES)
def test_a_program_that_reads_is_the_recorded_one(name):
    assert reader_programs.record(name, fluid) == RECORDED[name]
    for program in reader_programs.build(name, fluid):
        verify(program)
        text = program.desc.serialize_to_string()
        again = fluid.Program.parse_from_string(text)
        assert again.desc.serialize_to_string() == text
        assert str(again).count("READER") == str(program).count("READER")


def test_a_reader_goes_to_one_place():
    reader = by_shape()
    fluid.layers.read_file(reader)
    with pytest.raises(fluid.core.EnforceNotMet, match=r"the reader of read_file_0.* already"):
        fluid.layers.read_file(reader)


def test_devices_take_batches_of_a_double_buffer_in_order(programs):
    reader = fluid.layers.py_reader(4, [(-1, 1)], ["int64"], use_double_buffer=True)
    total = fluid.layers.reduce_sum(fluid.layers.cast(fluid.layers.read_file(reader), "float32"))
    two = fluid.CompiledProgram(programs).with_data_parallel(places=fluid.cpu_places(2))
    reader.decorate_tensor_provider(lambda: ((np.array([[i]]),) for i in range(14)))
    assert epoch(two, reader, total) == [[i, i + 1] for i in range(0, 14, 2)]
