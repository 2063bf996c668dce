"""Messages are what was sent, or refused."""

import json
import struct

import numpy as np
import pytest

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.exchange.wire import GangError
from dpexec.engine.parameter_server.messages import Message, decode, encode
from tests.engine.parameter_server.runs import Server, Trainer, connected, free_endpoints


def as_bytes(message):
    return bytearray(b"".join(encode(message)))


def written(description, data=b""):
    head = description if isinstance(description, bytes) else json.dumps(description).encode()
    return bytearray(struct.pack("<Q", len(head)) + head + data)


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
    assert len(data) < 400
    found = decode(data, "x").values["table@GRAD"]
    assert (found.rows(), found.height()) == ([7, 2], 1_000_000)
    np.testing.assert_array_equal(found.value, rows.value)


@pytest.mark.parametrize(
    "data",
    [
        bytearray(),
        bytearray(b"\xff" * 8),
        written(b"no json"),
        written(["push"]),
        written(["push", [["a", None, [["<f4", [4]]]]]], b"\0" * 8),
        written(["push", [["a", None, [["<f4", [1]]]]]], b"\0" * 8),
        written(["push", [["a", None, [["O", [1]]]]]], b"\0" * 8),
        written(["push", [["a", None, [["<f4", [-1]]]]]], b"\0" * 8),
        written(["push", [["a", 5, [["<f4", [1]]]]]], b"\0" * 4),
    ],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(GangError, match="trainer 3 sent something that is no message"):
        decode(data, "trainer 3")


def test_who_does_not_know_the_secret_stays_outside(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_deadline", "500")
    monkeypatch.setenv("DPEXEC_SECRET", "of the server")
    endpoints = free_endpoints(1)
    trainer = Trainer("one_trainer", 0, endpoints, 1)
    server = Server(trainer.transpiler, endpoints[0])
    connected(endpoints[0]).close()  # it listens, and has read its secret
    monkeypatch.setenv("DPEXEC_SECRET", "another")
    trainer.start()
    with pytest.raises(GangError, match=f"{endpoints[0]} did not let us in"):
        trainer.join()
    with pytest.raises(GangError, match="trainer 0 did not come"):
        server.join()
    assert trainer.losses == []
