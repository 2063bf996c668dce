"""Messages between trainers and parameter servers.

Values arrive unchanged, damaged ones are refused.
"""

import json

import numpy as np
import pytest

from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.exchange.messages import Message, decode, encode, joined
from dpexec.engine.exchange.wire import GangError


def as_bytes(message):
    return memoryview(bytearray(b"".join(encode(message))))


def written(description, *parts):
    head = description if isinstance(description, bytes) else json.dumps(description).encode()
    return b"".join(joined([memoryview(part) for part in (head, *parts)]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (2, 3, 1)])
def test_arrays_come_as_they_were(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found = decode(as_bytes(Message("push", {"a": array.T, "b": array})), "x").values
    assert found["a"].dtype == array.dtype
    np.testing.assert_array_equal(found["a"], array.T)
    np.testing.assert_array_equal(found["b"], array)


def test_of_a_table_only_rows_travel():
    rows = SelectedRows(np.array([7, 2]), 1_000_000, np.ones((2, 16), "float32"))
    data = as_bytes(Message("push", {"table@GRAD": rows}))
    assert len(data) < 600
    found = decode(data, "x").values["table@GRAD"]
    assert (found.rows(), found.height()) == ([7, 2], 1_000_000)
    np.testing.assert_array_equal(found.value, rows.value)


def test_values_of_any_kind_come_as_they_were_with_what_is_said():
    array = np.arange(6, dtype="float32").reshape(3, 2)
    values = {
        ("x", 1): (array, Lod([np.array([0, 1, 3])])),
        "list": TensorArray([(array, Lod([])), None]),
    }
    found = decode(as_bytes(Message({"of": [1, None]}, values)), "x")
    assert found.said == {"of": [1, None]}
    whole, lod = found.values["x", 1]
    np.testing.assert_array_equal(whole, array)
    assert lod.to_lists() == [[0, 1, 3]]
    first, empty = found.values["list"]
    np.testing.assert_array_equal(first[0], array)
    assert empty is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        b"\xff" * 64,
        written(["push", []])[:-64],
        written(["push", []]) + bytes(64),
        written(b"no json"),
        written(b"[" * 100_000),
        written(["push"]),
        written(["push", [["a", "tensor", [["<f4", [4]]]]]], bytes(8)),
        written(["push", [["a", "tensor", [["<f4", [1]]]]]], bytes(8)),
        written(["push", [["a", "tensor", [["<f4", [1]]]]]], bytes(3)),
        written(["push", [["a", "tensor", [["<f4", [1]]]]]]),
        written(["push", []], bytes(4)),
        written(["push", [["a", "tensor", [["O", [1]]]]]], bytes(8)),
        written(["push", [["a", "tensor", [["V8", [1]]]]]], bytes(8)),
        written(["push", [["a", "rows", [["<f4", [1]]]]]], bytes(4)),
        written(["push", [["a", "program", [["<f4", [1]]]]]], bytes(4)),
        written(["push", [[["a", []], "tensor", [["<f4", [1]]]]]], bytes(4)),
    ],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(GangError, match="trainer 3 sent something that is no message"):
        decode(memoryview(data), "trainer 3")
