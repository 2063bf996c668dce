"""``dpexec kernels``: which kernels are compiled ahead, and where they go."""

import argparse
import sys

import pytest

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec import cli
from dpexec.commands import USAGE_ERROR, kernels
from dpexec.engine.kernels import ahead, code_store, loading


def options(*arguments):
    parser = argparse.ArgumentParser()
    kernels.add_options(parser)
    return parser.parse_args(arguments)


def test_kernels_of_modules_and_expressions_are_known_in_the_same_order_in_every_process():
    names = [f"{k.function.__module__}.{k.function.__qualname__}" for k in ahead.known()]
    assert names == sorted(set(names)) and len(names) > 100
    room = "dpexec.engine.kernels"
    found = {f"{room}.collectives.add", f"{room}.thread_team.join", f"{room}.generate.total_rows"}
    assert found <= set(names)


def test_processes_share_the_kernels_among_them(monkeypatch):
    prepared = []
    monkeypatch.setattr(ahead, "known", lambda: list("abcde"))
    monkeypatch.setattr(ahead, "prepare", prepared.append)
    assert [kernels.build(options("--part", part)) for part in ("0/2", "1/2")] == [0, 0]
    assert prepared == list("acebd")


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """One kernel, one net, and packs in a folder of the test."""
    known = ahead.known()
    lead = [k for k in known if k.function.__name__ == "lead"]
    monkeypatch.setattr(ahead, "known", lambda: lead)
    monkeypatch.setattr(kernels, "_compile_in_processes", lambda number: None)
    monkeypatch.setattr(kernels, "_NETS", kernels._NETS[:1])
    monkeypatch.setattr(code_store, "PACKS", tmp_path / "packs")


@pytest.mark.skipif(code_store.folder() is None, reason="there is no place to keep code")
def test_a_pack_holds_what_a_net_takes(quick, capsys):
    assert cli.main(["kernels", "--pack"]) == 0
    path = code_store.pack_path(loading.family().name)
    pack = code_store.Pack(path)
    assert len(pack) > 10 and f"kernels for {loading.family().name}" in capsys.readouterr().out
    assert all(pack.get(name) for name in pack.names)


def test_without_a_place_nothing_is_compiled(monkeypatch, capsys):
    monkeypatch.setattr(code_store, "folder", lambda: None)
    assert cli.main(["kernels"]) == USAGE_ERROR
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="of x86")
def test_a_processor_that_is_none_of_its_families_is_an_error(monkeypatch):
    monkeypatch.setenv("DPEXEC_PROCESSOR", "x86-64-v9")
    with pytest.raises(ValueError, match=r"DPEXEC_PROCESSOR is 'x86-64-v9'; this processor can be"):
        loading.family.__wrapped__()
