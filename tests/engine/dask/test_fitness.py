"""Workers without dpexec, or with another, get no replicas, and are named."""

import asyncio
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from dpexec.engine.core.errors import ClusterError, SchedulerLostError
from dpexec.engine.core.version import __version__
from dpexec.engine.dask import fitness
from dpexec.engine.dask.fitness import fitting, misfits
from dpexec.engine.dask.installed import installed


class _Client:
    """Has the scheduler of an address."""

    def __init__(self, scheduler):
        self.scheduler, self._run_on_scheduler = self, None
        self.address, self._installed = "tcp://s:8786", scheduler

    def sync(self, *_, **__):
        return self._installed


class _Contact:
    """Has workers that say what they have."""

    limit = 1.0

    def __init__(self, scheduler=None, loop=None, **workers):
        here = installed()
        self.client = _Client(here | (scheduler or {}))
        self.client.run, self.client.loop = self._run, SimpleNamespace(asyncio_loop=loop)
        self._answers = {worker: here | told for worker, told in workers.items()}
        self.asked = []

    def reach(self, function, text, homes, what):
        self.asked += homes
        return {worker: self._answers[worker] for worker in homes}, {}

    async def _run(self, function, text, workers, **_):
        self.asked += workers
        return {worker: self._answers[worker] for worker in workers}


@pytest.fixture
def loop():
    """An event loop that runs in a thread of its own."""
    found = asyncio.new_event_loop()
    thread = threading.Thread(target=found.run_forever)
    thread.start()
    yield found
    found.call_soon_threadsafe(found.stop)
    thread.join()
    found.close()


def test_a_process_without_dpexec_can_say_what_it_has():
    found = eval(fitness._question())
    assert found == installed()
    assert (found["dpexec"], found["numpy"]) == (__version__, np.__version__)


def test_workers_with_other_packages_are_named(caplog, loop):
    older, none = {"dpexec": "0.1.0"}, {"dpexec": ""}
    other = {"numpy": "1.0", "numba": "", "python": "3.2.1"}
    contact = _Contact(loop=loop, a={}, b=older, c=none, d=other)
    found = misfits(contact, ["a", "b", "c", "d"])
    assert found == {
        "b": f"has dpexec 0.1.0; install the client's there, dpexec {__version__}, and start it "
        "again",
        "c": f"has no dpexec; install the client's there, dpexec {__version__}, and start it again",
    }
    assert len(caplog.messages) == 3
    here = installed()
    told = f"worker d has python 3.2.1 (the client {here['python']}), numpy 1.0 (the client "
    assert told in caplog.messages[2]
    assert "no numba" in caplog.messages[2] or not here["numba"]
    assert fitting(contact, ["a", "b", "c", "d"]) == ["a", "d"]
    assert contact.asked == ["a", "b", "c", "d", "b", "c"]  # they may have been started again
    assert len(caplog.messages) == 3


def test_new_worker_that_is_silent_is_left_out_until_it_answers(loop, monkeypatch):
    """Others train meanwhile: they do not wait for the limit each time they look who is there."""
    contact, speaks = _Contact(loop=loop, a={}, b={}, c={"dpexec": ""}), asyncio.Event()

    async def run(function, text, workers, **_):
        found = await contact._run(function, text, workers)
        if workers == ["b"]:
            await speaks.wait()
        return found

    contact.client.run = run
    assert misfits(contact, ["a"]) == {}
    began = time.monotonic()
    for _ in range(3):
        found = misfits(contact, ["a", "b", "c"], soon=True)
        assert found["b"] == "has not said yet which dpexec it has"
        assert found["c"].startswith("has no dpexec; install")
    assert contact.asked.count("b") == 1
    assert time.monotonic() < began + 3 * contact.limit
    loop.call_soon_threadsafe(speaks.set)
    monkeypatch.setattr(fitness, "_SOON", 60.0)
    assert fitting(contact, ["a", "b"], soon=True) == ["a", "b"]
    assert contact.asked.count("b") == 1


def test_new_worker_that_is_gone_when_it_is_asked_is_asked_again(loop):
    contact, answers = _Contact(loop=loop, a={}), iter([OSError("gone"), installed()])

    async def run(function, text, workers, **_):
        return {worker: next(answers) for worker in workers}

    contact.client.run = run
    assert misfits(contact, ["a"]) == {}
    assert [*misfits(contact, ["a", "b"], soon=True)] == ["b"]
    assert misfits(contact, ["a", "b"], soon=True) == {}


def test_all_have_the_time_of_the_limit_when_a_run_begins():
    """One that is busy at that moment would leave all replicas, and their state, to another."""
    contact = _Contact(a={}, b={})  # its client cannot ask in the background
    del contact.client.run
    assert misfits(contact, ["a"]) == {}
    assert misfits(contact, ["a", "b"]) == {}
    assert contact.asked == ["a", "b"]


def test_nobody_fits():
    contact = _Contact(a={"dpexec": ""})
    with pytest.raises(ClusterError, match="no worker can take replicas: worker a has no dpexec;"):
        fitting(contact, ["a"])


def test_a_scheduler_without_dpexec_is_named():
    with pytest.raises(ClusterError, match=r"the scheduler tcp://s:8786 has no dpexec; install"):
        misfits(_Contact({"dpexec": ""}, a={}), ["a"])


def test_a_scheduler_that_ends_meanwhile_is_named_with_the_cause(monkeypatch):
    def ended(*_, **__):
        raise ConnectionResetError("reset by tcp://s:8786")

    contact = _Contact(a={})
    monkeypatch.setattr(contact.client, "sync", ended)
    with pytest.raises(SchedulerLostError, match=r"Error: reset by tcp://s:8786"):
        fitting(contact, ["a"])
