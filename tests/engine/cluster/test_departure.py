"""A worker that is closed hands on the state that only it has, if there is somebody to take it."""

import asyncio
import contextlib
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from distributed import Status, Worker

from dpexec.engine.cluster.worker import departure
from dpexec.engine.cluster.worker.versions import Versions


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
    state = Versions(0, {"moment": np.zeros(1)})
    replicas = SimpleNamespace(
        running=0, graph=None, stores={0: state}, mirrors={}, peers=("tcp://a:1", "tcp://b:1")
    )
    worker = _Worker(connected)
    asyncio.run(departure._Holdings(worker)._hand_on("run", replicas))
    assert bool(worker.asked) == connected
    assert worker.gave == (["tcp://b:1"] if connected else [])


def test_runs_do_not_wait_for_each_other(monkeypatch):
    """Each may wait for seconds, and who ends a worker may kill it then."""
    runs, waiting = [f"run {number}" for number in range(20)], []

    async def wait_for_ever(self, token, replicas):
        waiting.append(token)
        await asyncio.Event().wait()

    most = []

    def release(token, worker):
        most.append(len(waiting))
        runs.remove(token)

    monkeypatch.setattr(departure, "_PATIENCE", 0.1)
    monkeypatch.setattr(departure, "runs_at", lambda address: list(runs))
    monkeypatch.setattr(departure, "replicas_at", lambda token, address: SimpleNamespace())
    monkeypatch.setattr(departure, "leave", lambda token, worker: None)
    monkeypatch.setattr(departure, "release", release)
    monkeypatch.setattr(departure._Holdings, "_hand_on", wait_for_ever)
    asyncio.run(departure._Holdings(_Worker(True)).close())
    assert not runs
    assert most[0] == 20


class _Slow:
    """An extension that takes for ever to close, as tasks that still run do."""

    async def close(self):
        await asyncio.Event().wait()


async def _is_told_to_end_while_it_is_closed():
    """What the process of a worker does: its event loop ends, which cancels everything."""
    worker = Worker("tcp://127.0.0.1:1", dashboard=False)  # its scheduler has ended
    worker.status, worker._address = Status.running, "tcp://127.0.0.1:2"
    departure.hold_until_closed(worker)
    worker.extensions["slow"] = _Slow()

    async def close():
        with contextlib.suppress(asyncio.CancelledError):
            await worker.close()
        await worker.close()  # as dask does after any error

    closing = asyncio.ensure_future(close())
    await asyncio.sleep(0.1)
    assert worker.status == Status.closing
    assert not closing.done()
    return closing


def test_process_ends_that_is_told_to_while_dask_closes_its_worker():
    ends = threading.Thread(
        target=lambda: asyncio.run(_is_told_to_end_while_it_is_closed()), daemon=True
    )
    ends.start()
    ends.join(20)
    assert not ends.is_alive()
