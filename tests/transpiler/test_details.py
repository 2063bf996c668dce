"""``transpiler.details``: waiting for servers, removed operators."""

import socket

import pytest

import dpexec as fluid
from dpexec.transpiler import details
from dpexec.transpiler.details import checkport


def test_servers_are_waited_for(monkeypatch, capsys):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(checkport.time, "sleep", lambda _: server.listen())
        details.wait_server_ready([endpoint])
    assert capsys.readouterr().err == f"not ready yet: {endpoint}\n"


def test_a_single_endpoint_is_no_list():
    with pytest.raises(TypeError, match="list of host:port"):
        details.wait_server_ready("127.0.0.1:1")


def test_what_is_gone_cannot_be_removed():
    fluid.layers.relu(fluid.data("x", [2, 2]))
    block = fluid.default_main_program().global_block()
    ops = list(block.ops)
    details.delete_ops(block, ops)
    assert block.ops == []
    with pytest.raises(ValueError, match="relu is not in its block"):
        details.delete_ops(block, ops)
