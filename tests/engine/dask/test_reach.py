"""A worker that is closed while it asks other workers counts as lost."""

import asyncio
from types import SimpleNamespace

import pytest
from distributed.comm import CommClosedError
from distributed.core import ConnectionPool

from dpexec.engine.dask import reachability
from dpexec.engine.dask.reach import unreachable


def test_worker_that_is_closed_while_it_asks_others_is_lost():
    """What dask raises then is no error of a connection."""

    async def ask():
        connections = ConnectionPool()
        await connections.close()
        worker = SimpleNamespace(address="tcp://127.0.0.1:1", rpc=connections)
        await unreachable([worker.address, "tcp://127.0.0.1:2"], 5.0, worker)

    with pytest.raises(CommClosedError, match=r"worker tcp:.* is closed"):
        asyncio.run(ask())


def test_nobody_waits_for_a_silent_worker_until_others_have_given_it_up(monkeypatch):
    monkeypatch.setattr(reachability, "_LOOK", 0.01)
    asked = []

    async def reach(function, args, homes, what, limit=None):
        asked.append((function, [*homes]))
        if function is not unreachable:
            return {}, {"b": "did not answer for 5 s"}
        if "b" in homes:
            await asyncio.sleep(100)
        return {home: {"c": "refused"} if home == "a" else {} for home in homes}, {}

    known, homes = reachability.Reachability(reach, 5.0), dict.fromkeys("abc", ())
    assert asyncio.run(known.check(homes, "to move")) == {"b": "did not answer for 5 s"}
    assert asked[-1] == (unreachable, ["a", "c"])
    assert [*known.apart] == [frozenset("ac")]
