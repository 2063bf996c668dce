"""Lines of data sets with several slots."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.reading.multislot import Slot, feed_of, parse, without_zeros


@pytest.fixture
def slots():
    with fluid.program_guard(fluid.Program()):
        return [
            Slot.of(fluid.layers.data("ids", [1], dtype="int64", lod_level=1)),
            Slot.of(fluid.layers.data("weights", [1], lod_level=1)),
            Slot.of(fluid.layers.data("picture", [2, 2])),
            Slot.of(fluid.data("label", [None], dtype="int64")),
        ]


def test_a_batch_has_sequences_and_dense_slots(slots):
    lines = ["2 0 0 2 0 0.5 4 1 0 0 4 1 7 and more", "3 1 0 2 1 0 4 0 0 0 0 1 0\n"]
    feed = feed_of([parse(line, slots) for line in lines], slots)
    assert {name: (t.numpy().tolist(), t.lod()) for name, t in feed.items()} == {
        "ids": ([[0], [0], [1], [0], [2]], [[0, 2, 5]]),
        "weights": ([[0.0], [0.5], [0.0]], [[0, 2, 3]]),
        "picture": ([[[1, 0], [0, 4]], [[0, 0], [0, 0]]], []),
        "label": ([7, 0], []),
    }
    assert [t.numpy().dtype.name for t in feed.values()] == ["int64", "float32", "float32", "int64"]


def test_ids_are_unsigned_in_files(slots):
    (ids, *_, label) = parse("2 18446744073709551615 7 1 1 4 0 0 0 0 1 -3", slots)
    assert (ids.tolist(), label.tolist()) == ([-1, 7], [-3])


def test_zeros_of_sequences_are_left_out_of_memory(slots):
    sample = parse("4 0 5 0 18446744073709551615 3 0 -0.5 1e-7 4 0 0 0 0 1 0", slots)
    kept = [values.tolist() for values in without_zeros(sample, slots)]
    assert kept == [[5, -1], [-0.5], [0, 0, 0, 0], [0]]
    nothing = without_zeros(parse("2 0 0 1 0 4 0 0 0 0 1 0", slots), slots)
    assert [values.tolist() for values in nothing] == [[0], [0], [0, 0, 0, 0], [0]]
    assert nothing[0].dtype == np.int64


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "'ids': the number of its values is missing"),
        ("x 1", "'ids': the number of its values is 'x'"),
        ("-1 1", "'ids': the number of its values is '-1'"),
        ("0 1 1", "'ids': the number of ids can not be zero"),
        ("3 1 2", "'ids' shall have 3 values, but the line ends after 2"),
        ("1 2.5 1 1", "'ids': .*2.5"),
        ("1 2 1 a", "'weights': .*'a'"),
        ("1 2 1 1 3 1 1 1 1 1", r"'picture' is dense and of shape \(-1, 2, 2\): .* 4 values.* 3"),
        ("1 2 1 1 4 1 1 1 1", "'label': the number of its values is missing"),
    ],
)
def test_errors_name_the_slot(slots, line, message):
    with pytest.raises(EnforceNotMet, match=message):
        parse(line, slots)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": [None, 1], "dtype": "int32"}, "only supports .* 'x' is int32"),
        ({"shape": [None, 1], "lod_level": 2}, "lod_level 2"),
        ({"shape": [None, 3], "lod_level": 1}, "must be 1"),
        ({"shape": [None, None]}, "must be known"),
    ],
)
def test_variables_that_no_slot_can_hold(options, message):
    with fluid.program_guard(fluid.Program()):
        var = fluid.data("x", **options)
    with pytest.raises(ValueError, match=message):
        Slot.of(var)
