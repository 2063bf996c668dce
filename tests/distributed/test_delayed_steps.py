"""``Executor.delayed`` on a cluster: each step runs once, on the workers."""

import asyncio
import os
import signal
import threading
import time

import dask
import dask.array as da
import numpy as np
import pytest
from dask import delayed
from distributed import Client, as_completed, fire_and_forget

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.executors import steps_elsewhere
from dpexec.engine.executors.steps_elsewhere import Elsewhere, _door
from tests.engine.executors.test_delayed_steps import Training, assert_equal
from tests.engine.run.nets import batches
from tests.waiting import until


@pytest.fixture(autouse=True, scope="module")
def _nobody_asks_again():
    """Steps that were sent are kept, with their engines, in case that their results are lost."""
    yield
    steps_elsewhere._sent.clear()


def assert_as_plain(training, feeds, losses):
    plain = Training()
    np.testing.assert_array_equal(losses, [plain.run(feed) for feed in feeds])
    assert_equal(plain.state, training.state)


@pytest.mark.parametrize("where", ["cluster", "threads"])
def test_feeds_come_from_workers_and_fetches_go_there(pair, where):
    feeds = batches(3)
    training = Training(scheduler=pair if where == "cluster" else "threads")
    parts = [
        {"x": da.from_array(feed["x"] / 2, chunks=(5, -1)) * 2, "y": delayed(np.copy)(feed["y"])}
        for feed in feeds
    ]
    doubled = [delayed(np.multiply)(training.delayed(feed), 2) for feed in parts]
    found = pair.gather(pair.compute(doubled))
    again = dask.compute(*doubled, scheduler=pair)
    np.testing.assert_array_equal(again, found)
    assert_as_plain(training, feeds, np.divide(found, 2))


def test_futures_of_fetches_come_in_order(pair):
    feeds, training = batches(4), Training(scheduler=pair)
    futures = pair.compute([training.delayed(feed) for feed in feeds])
    came = [future.key for future in as_completed(futures, loop=pair.loop)]
    assert set(came) == {future.key for future in futures}
    assert_as_plain(training, feeds, pair.gather(futures))


def test_an_asynchronous_client_computes_steps(pair):
    feeds, training = batches(2), Training(scheduler="threads")

    async def compute():
        async with Client(
            pair.scheduler.address, asynchronous=True, set_as_default=False
        ) as client:
            return await client.gather(client.compute([training.delayed(feed) for feed in feeds]))

    assert_as_plain(training, feeds, asyncio.run(compute()))


def test_futures_of_steps_are_inputs_of_other_tasks(pair):
    feeds, training = batches(4), Training(scheduler=pair)
    losses = [training.delayed(feed) for feed in feeds]
    kept = pair.persist(losses[0])
    futures = pair.compute(losses[1:3])
    means = [pair.submit(np.mean, futures[0]), *pair.map(np.mean, futures[1:])]
    fire_and_forget(pair.compute(losses[3]))
    found = [*pair.gather(pair.compute([kept])), *pair.gather(futures)]
    np.testing.assert_array_equal(pair.gather(means), [np.mean(loss) for loss in found[1:]])
    until(lambda: training.scope.run_count(training.net.main) == 4)
    assert_as_plain(training, feeds, [*found, losses[3].compute()])


def test_several_steps_with_feeds_of_the_cluster(pair):
    feeds, training = batches(3), Training(scheduler=pair)
    parts = delayed([delayed(dict)(feed) for feed in feeds])
    what = {"fetch_list": [training.net.loss], "scope": training.scope}
    (losses,) = training.exe.delayed(training.compiled, feeds=parts, **what)
    first = pair.compute(losses).result()
    np.testing.assert_array_equal(losses.compute(scheduler=pair), first)
    assert_as_plain(training, feeds, first)


def test_a_worker_that_is_lost_while_it_waits_changes_nothing(mortals):
    client, (feed,) = mortals.client, batches(1)
    training, makes, goes_on = Training(), threading.Event(), threading.Event()
    run = training.exe.run

    def slowly(*args, **options):
        makes.set()
        assert goes_on.wait(30)
        return run(*args, **options)

    training.exe.run = slowly
    future = client.compute(training.delayed(feed))
    assert makes.wait(30)
    waiting = [a for a, keys in client.processing().items() if any("step" in str(k) for k in keys)]
    (address,) = waiting
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)
    time.sleep(1)
    goes_on.set()
    loss = future.result(60)
    assert training.scope.run_count(training.net.main) == 1
    training.exe.run = run
    assert_as_plain(training, [feed], [loss])


def test_an_operator_that_fails_is_named(pair):
    (feed,), training = batches(1), Training(scheduler=pair)
    before = training.state
    with pytest.raises(EnforceNotMet, match="cross_entropy"):
        training.delayed({**feed, "y": feed["y"] + 7}).compute(scheduler=pair)
    assert_equal(before, training.state)


def test_a_process_that_is_gone_is_told_of(pair):
    lost = Elsewhere("a step", "dpexec-steps-of-nobody", ["a client"], _door())
    with pytest.raises(RuntimeError, match="delayed step is gone"):
        pair.submit(lost, {}, pure=False).result(60)
