"""A worker that is closed hands on the state that only it has, if there is somebody to take it."""

import asyncio
import contextlib
import pickle
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from distributed import Status, Worker

from dpexec.engine.cluster.messages import Epoch
from dpexec.engine.cluster.worker import departure, worker
from dpexec.engine.cluster.worker.versions import StaleTaskError, Versions
from dpexec.engine.cluster.worker.worker import HeldState, WorkerReplicas


class _Worker:
    """A worker of a scheduler that tells of other workers.

    Args:
        offers: by other worker, what it says each time that it is asked; an error is raised.
    """

    address = "tcp://a:1"

    def __init__(self, **offers):
        self.scheduler, self.asked, self.gave = self, [], []
        self.offers = {f"tcp://{host}:1": list(said) for host, said in offers.items()}

    async def ncores(self):
        self.asked.append("who is there")
        return dict.fromkeys((self.address, *self.offers), 1)

    def rpc(self, peer):
        async def run(function, args, **_):
            if pickle.loads(function) is departure._take_over:
                self.gave.append((peer, *pickle.loads(args)[1:]))
                return {"status": "OK", "result": True}
            said = self.offers[peer].pop(0)
            if isinstance(said, Exception):
                raise said
            return {"status": "OK", "result": said}

        return SimpleNamespace(run=run)

    def leaves(self, state):
        """Hand on the state of a run; returns who got it: addresses, and variables by replica."""

        async def leave():
            async with asyncio.timeout(5) as limit:
                await departure._Holdings(self)._hand_on("run", state, limit)

        asyncio.run(leave())
        return [(peer, *map(_names, kinds)) for peer, *kinds in self.gave]


def _names(found):
    return {device: [*versions.values] for device, versions in found.items()}


@pytest.fixture
def state(monkeypatch):
    """Of two replicas after step 4; one lives here, and this worker mirrors the other."""
    monkeypatch.setattr(departure, "own_names", lambda graph: [["moment"], ["moment"]])
    found = object.__new__(WorkerReplicas)
    HeldState.__init__(found, Epoch("run", 1), ["tcp://a:1", "tcp://b:1"])
    found.graph = None
    found.stores[0] = Versions(4, {"weight": np.zeros(1), "moment": np.zeros(1)})
    found.mirrors[1] = Versions(4, {"moment": np.zeros(1)})
    return found


OWN = {0: ["moment"], 1: ["moment"]}
ALL = {0: ["weight", "moment"]}
MIRRORED = {1: ["moment"]}


@pytest.fixture(autouse=True)
def gone(monkeypatch):
    """Addresses at which nothing listens any more."""
    found = set()

    async def refusal(address):
        return "refused" * (address in found)

    monkeypatch.setattr(departure, "refusal", refusal)
    return found


@pytest.mark.parametrize("ended", [True, False])
def test_nobody_is_asked_once_the_scheduler_has_ended(state, gone, ended):
    worker = _Worker(b=[(True, {4, 3})])
    gone.update([worker.address] * ended)  # which is the scheduler's, too
    assert worker.leaves(state) == ([] if ended else [("tcp://b:1", {}, OWN)])
    assert bool(worker.asked) != ended


@pytest.mark.parametrize(
    ("offers", "given"),
    [
        ({"b": [(False, {4})], "c": [(True, ())]}, [("tcp://c:1", ALL, MIRRORED)]),
        ({"b": [(True, {3})], "c": [(True, ())]}, [("tcp://b:1", ALL, MIRRORED)]),
        ({"b": [OSError()], "c": [TimeoutError(), (True, ())]}, [("tcp://c:1", ALL, MIRRORED)]),
        ({"b": [TimeoutError(), (True, {4})], "c": [(False, ())]}, [("tcp://b:1", {}, OWN)]),
        ({"b": [OSError()], "c": [(False, ())]}, []),
    ],
    ids=["not a member", "a stale member", "a slow worker", "a slow member", "nobody"],
)
def test_who_gets_state_and_what(state, offers, given):
    assert _Worker(**offers).leaves(state) == given


def test_state_that_was_taken_is_handed_on_again(monkeypatch):
    """The worker may leave before replicas have moved to it."""
    here = "tcp://a:1"
    left, mirrors = {0: Versions(4, {"weight": np.zeros(1)})}, {1: Versions(4, {"moment": 0})}
    monkeypatch.setattr(worker, "_workers", {})
    worker.take_over("run", here, left, mirrors)
    worker.take_over("run", here, {0: Versions(3, {"old": 0})}, {})
    found = worker.state_at("run", here)
    with pytest.raises(StaleTaskError, match="only keeps state"):
        worker.replicas_at("run", here)
    given = _Worker(c=[(True, ())]).leaves(found)
    assert given == [("tcp://c:1", {0: ["weight"]}, MIRRORED)]


def test_mirrors_stay_as_steps_made_them_when_a_closed_worker_hands_on_its_own(state, monkeypatch):
    """Replicas may have moved before: a mirror that no step changes would end the next step."""
    monkeypatch.setattr(worker, "_workers", {("run", "tcp://a:1"): state})
    late = {device: Versions(5, {"moment": np.ones(1)}) for device in range(3)}
    kept = dict(state.mirrors)
    worker.take_over("run", "tcp://a:1", {}, late)
    assert state.mirrors == kept
    assert state.left_own == {1: late[1], 2: late[2]}  # replica 0 lives here


def test_state_that_comes_after_the_end_of_its_run_is_not_kept(monkeypatch):
    """The worker that hands it on may have left the scheduler, and not know that the run ended."""
    here = SimpleNamespace(address="tcp://a:1")
    left = {0: Versions(4, {"weight": np.zeros(1)})}
    monkeypatch.setattr(worker, "_workers", {})
    worker.take_over("ended", here.address, left, {})
    worker.end("ended", here)
    worker.take_over("ended", here.address, left, {})
    worker.take_over("goes on", here.address, left, {})
    assert [*worker._workers] == [("goes on", here.address)]


def test_runs_do_not_wait_for_each_other(monkeypatch):
    """Each may wait for seconds, and who ends a worker may kill it then."""
    runs, waiting = [f"run {number}" for number in range(20)], []

    async def wait_for_ever(self, token, state, limit):
        waiting.append(token)
        await asyncio.Event().wait()

    most = []

    def release(token, worker):
        most.append(len(waiting))
        runs.remove(token)

    monkeypatch.setattr(departure, "_PATIENCE", 0.1)
    monkeypatch.setattr(departure, "runs_at", lambda address: list(runs))
    monkeypatch.setattr(departure, "state_at", lambda token, address: SimpleNamespace())
    monkeypatch.setattr(departure, "leave", lambda token, worker: None)
    monkeypatch.setattr(departure, "release", release)
    monkeypatch.setattr(departure._Holdings, "_hand_on", wait_for_ever)
    asyncio.run(departure._Holdings(_Worker()).close())
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
