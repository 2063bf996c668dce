"""A worker that is closed hands on the state that only it has, if there is somebody to take it."""

import asyncio
from types import SimpleNamespace

import pytest

from dpexec.engine.cluster.worker import departure


class _Worker:
    """A worker of a scheduler that tells of one other worker, or has ended."""

    address = "tcp://a:1"

    def __init__(self, connected):
        self.batched_stream = SimpleNamespace(comm=SimpleNamespace(closed=lambda: not connected))
        self.scheduler, self.asked, self.gave = self, [], []

    async def ncores(self):
        self.asked.append("who is there")
        return {self.address: 1, "tcp://b:1": 1}

    def rpc(self, peer):
        async def run(**_):
            self.gave.append(peer)
            return {"status": "OK", "result": True}

        return SimpleNamespace(run=run)


@pytest.mark.parametrize("connected", [True, False])
def test_nobody_is_asked_once_the_scheduler_has_ended(monkeypatch, connected):
    monkeypatch.setattr(departure, "own_names", lambda graph: [["moment"]])
    state = SimpleNamespace(part=lambda names: names)
    replicas = SimpleNamespace(
        running=0, graph=None, stores={0: state}, mirrors={}, peers=("tcp://a:1", "tcp://b:1")
    )
    worker = _Worker(connected)
    asyncio.run(departure._Holdings(worker)._hand_on("run", replicas))
    assert bool(worker.asked) == connected
    assert worker.gave == (["tcp://b:1"] if connected else [])
