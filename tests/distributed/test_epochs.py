"""Epochs over Dask collections on a cluster have the bits of threads, wherever partitions lie."""

import _thread
import asyncio
import os
import threading
import time

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas
import pytest
from dask import delayed

import dpexec as fluid
from dpexec.engine.cluster.client import gang_lines
from dpexec.engine.cluster.gang_messages import Order
from dpexec.engine.core.errors import ClusterError
from dpexec.engine.dask import deliveries
from dpexec.engine.dask.computing import Computing
from dpexec.engine.dask.held import held_arrays
from dpexec.engine.dask.waiting import Contact
from dpexec.engine.executors.steps import ProgramSteps
from tests.distributed.faults import die
from tests.distributed.traffic import client_bytes
from tests.engine.run.nets import classifier, persistables, strategies
from tests.guides import programs
from tests.waiting import until

ROWS, BATCH = 200, 16
COLUMNS = [f"x{i}" for i in range(8)]
_random = np.random.RandomState(2)
FRAME = pandas.DataFrame(_random.randn(ROWS, 8), columns=COLUMNS).assign(
    y=_random.randint(0, 3, ROWS).astype("int32")
)

both_ways = pytest.mark.parametrize("collectives", ["tasks", "gang"])


def frame(partitions=5):
    return dd.from_pandas(FRAME, npartitions=partitions)


def compiled_for(net, scheduler="threads", collectives="tasks", devices=2, limit=60):
    how = {"scheduler": scheduler, "collectives": collectives, "collective_timeout": limit}
    build, execution = strategies(**how)
    return fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=fluid.cpu_places(devices)
    )


def looped(steps):
    """The parameters after steps on the first three batches, over and over."""
    net, scope = classifier(fluid.optimizer.Adam(0.01), dropout=0.2), fluid.Scope()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup, scope=scope)
    compiled = compiled_for(net)
    x, y = FRAME[COLUMNS].to_numpy("float32"), FRAME[["y"]].to_numpy("int64")
    for step in range(steps):
        rows = slice(step % 3 * BATCH, (step % 3 + 1) * BATCH)
        exe.run(compiled, {"x": x[rows], "y": y[rows]}, scope=scope)
    return persistables(net.main, scope)


def train(collection, scheduler="threads", collectives="tasks", devices=2, limit=60, **options):
    """The parameters after some epochs."""
    net, scope = classifier(fluid.optimizer.Adam(0.01), dropout=0.2), fluid.Scope()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup, scope=scope)
    compiled = compiled_for(net, scheduler, collectives, devices, limit)
    exe.train_from_dask(compiled, collection, batch_size=BATCH, scope=scope, **options)
    state = persistables(net.main, scope)
    exe.close()
    return state


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.fixture(scope="module")
def expected():
    """What threads do, by arguments of training."""
    known = {}

    def find(**options):
        key = tuple(options.items())
        if key not in known:
            known[key] = train(frame(), **options)
        return known[key]

    return find


@both_ways
def test_same_bits_as_on_threads(pair, expected, collectives):
    assert_equal(train(frame(3), pair, collectives, epochs=2), expected(epochs=2))


@both_ways
def test_mixed_rows_have_the_same_bits(three, expected, collectives):
    options = {"epochs": 2, "shuffle": 3, "seed": 4, "devices": 3}
    assert_equal(train(frame(), three, collectives, **options), expected(**options))


@both_ways
def test_it_does_not_matter_where_partitions_lie(pair, expected, collectives):
    (worker, *_) = pair.nthreads()
    kept = pair.persist(frame(), workers=[worker], allow_other_workers=False)
    assert_equal(train(kept, pair, collectives), expected())


@both_ways
def test_a_worker_is_killed_in_the_middle(mortals, expected, collectives):
    address = mortals.addresses()[0]
    where = {
        "tasks": "dpexec.engine.cluster.worker.jobs:run_jobs",
        "gang": "dpexec.engine.cluster.worker.gang_step:GangSteps.make",
    }[collectives]
    die(mortals, address, where, calls=12)
    assert_equal(train(frame(), mortals.client, collectives, epochs=2), expected(epochs=2))
    assert address not in mortals.client.nthreads()


@both_ways
def test_a_silent_worker_is_waited_for_once(mortals, expected, monkeypatch, collectives):
    """It holds partitions, and dask would give it others; dask itself gives it up after minutes."""
    run, took, silent = ProgramSteps.run, [], mortals.addresses()[0]

    def stop_and_run(steps, batches, names):
        if len(took) == 1:
            mortals.stop(silent)
        began = time.monotonic()
        results = run(steps, batches, names)
        took.append(time.monotonic() - began)
        return results

    monkeypatch.setattr(ProgramSteps, "run", stop_and_run)
    state = train(frame(), mortals.client, collectives, limit=2, epochs=3)
    assert_equal(state, expected(epochs=3))
    assert sum(seconds > 2 for seconds in took) == 1


def test_a_silent_worker_may_hold_what_is_computed_again(mortals):
    """As in the next epoch, while a block of the last one is not freed yet: names are the same."""
    contact = Contact(mortals.client, limit=4)
    first, second = homes = mortals.addresses()
    parts = [delayed(dict, pure=True)(x=np.full((3, 1), part)) for part in range(4)]
    with dask.annotate(workers=[second], allow_other_workers=False):
        earlier = held_arrays(contact, parts)
    mortals.stop(second)
    contact.reach(os.getpid, homes=dict.fromkeys(homes, ()), what="to see who is silent")
    again = held_arrays(contact, parts)
    futures = [rows["x"].pieces[0].block.future for rows in again]
    assert {*mortals.client.who_has(futures).values()} == {(first,)}
    values = mortals.client.gather(futures)
    assert [value["x"][0, 0] for value in values] == [0, 1, 2, 3]
    assert len(earlier) == len(again)


def test_workers_do_not_wait_for_what_a_silent_one_made(mortals, monkeypatch):
    """Dask may drop all copies but that of the silent worker, after others were told to use one."""
    monkeypatch.setattr(Computing, "_is_made_in_silence", lambda *_: False)
    test_a_silent_worker_may_hold_what_is_computed_again(mortals)


@pytest.fixture
def cut(monkeypatch):
    """Breaks a client's connection to its scheduler when so many runs of an epoch have begun."""

    async def broken(client):
        """Done when dask has given up the client's futures.

        That is one step of the loop with dropping the connection. A thread that looks now and then
        may miss it: in 10 ms the client is connected again, and has new futures.
        """
        held = client.scheduler_comm
        held.comm.abort()
        while client.scheduler_comm is held:
            await asyncio.sleep(0.001)

    def at(client, *runs):
        left, run = iter(range(1000)), ProgramSteps.run

        def cut_and_run(steps, batches, names):
            if next(left) in runs:
                until(lambda: client.status == "running")  # steps may go on without the scheduler
                client.sync(broken, client, callback_timeout=30)
            return run(steps, batches, names)

        monkeypatch.setattr(ProgramSteps, "run", cut_and_run)

    return at


@both_ways
def test_partitions_are_computed_again_when_the_client_finds_its_scheduler_again(
    mortals, expected, collectives, cut
):
    """Dask gives up all that a client has when its connection breaks."""
    cut(mortals.client, 1, 4)
    assert_equal(train(frame(), mortals.client, collectives, epochs=2), expected(epochs=2))


def test_persisted_partitions_are_lost_with_the_connection(mortals, cut):
    cut(mortals.client, 1)
    with pytest.raises(ClusterError, match=r"client lost its connection .* what persist, compute"):
        train(mortals.client.persist(frame()), mortals.client, "gang", epochs=20)


@both_ways
def test_rows_do_not_come_to_the_client(pair, collectives):
    width = 1 << 12
    x = fluid.data("x", [None, width], "float32")
    w = fluid.layers.create_parameter([width, 1], "float32")
    loss = fluid.layers.mean(fluid.layers.mul(x, w))
    fluid.optimizer.SGD(0.0).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    build, execution = strategies(scheduler=pair, collectives=collectives)
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, build, execution, places=fluid.cpu_places(2)
    )
    rows = da.ones((4096, width), chunks=(512, width), dtype="float32")  # 64 MB
    exe.train_from_dask(compiled, rows[:512], [x], batch_size=256)
    with client_bytes(pair.scheduler.address) as counted:
        exe.train_from_dask(compiled, rows, [x], batch_size=256)
    exe.close()
    assert 0 < counted["bytes"] < rows.nbytes / 100


def test_rows_go_ahead_to_a_gang(pair, monkeypatch):
    """The thread that computes partitions sends rows, but for those before there is a gang."""
    sent, deliver = [], deliveries.Delivery.deliver

    def noted(delivery, *args):
        by_main = threading.current_thread() is threading.main_thread()
        sent.append((by_main, len(delivery.begins) - 1))
        return deliver(delivery, *args)

    monkeypatch.setattr(deliveries.Delivery, "deliver", noted)
    train(frame(), pair, "gang", epochs=2)
    late = sum(count for by_main, count in sent if by_main)
    ahead = sum(count for by_main, count in sent if not by_main)
    assert ahead + late == 2 * 2 * -(-ROWS // BATCH)  # a range for each replica in each step
    assert late <= ahead


def test_steps_of_a_partition_are_one_order(pair, monkeypatch):
    """What they have in common is told once."""
    orders, post = [], gang_lines.GangLines.post

    def noted(lines, found):
        orders.extend(each for each in found[:1] if isinstance(each, Order))
        return post(lines, found)

    monkeypatch.setattr(gang_lines.GangLines, "post", noted)
    train(frame(2), pair, "gang", epochs=4)
    alike = [[len(each.entropy) for each in order.steps] for order in orders]
    assert sum(map(sum, alike)) == 4 * -(-ROWS // BATCH)
    assert all(len(found) <= 2 for found in alike)  # the last batch of an epoch is smaller
    assert max(map(max, filter(None, alike))) > 4


def test_only_rows_are_kept_of_a_partition(pair):
    """No dataframe: dask asks every column of one for its size."""

    def kept(dask_worker):
        return [type(value).__name__ for value in dask_worker.data.values()]

    net, scope = classifier(fluid.optimizer.Adam(0.01)), fluid.Scope()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup, scope=scope)
    found = []
    exe.train_from_dask(
        compiled_for(net, pair, "gang"),
        frame(4),
        batch_size=BATCH,
        scope=scope,
        epochs=2,
        after_epoch=lambda epoch: found.extend(pair.run(kept).values()),
    )
    exe.close()
    kinds = set().union(*found)
    assert "DataFrame" not in kinds and "dict" in kinds


@both_ways
def test_an_interrupt_comes_between_steps(pair, collectives):
    net, scope = classifier(fluid.optimizer.Adam(0.01), dropout=0.2), fluid.Scope()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup, scope=scope)
    compiled = compiled_for(net, pair, collectives)
    known = dd.from_pandas(FRAME[: 3 * BATCH], npartitions=2)
    options = {"batch_size": BATCH, "scope": scope}
    exe.train_from_dask(compiled, known, **options)
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        exe.train_from_dask(compiled, known, epochs=10_000, **options)
    steps, state = scope.run_count(net.main), persistables(net.main, scope)
    exe.train_from_dask(compiled, known, **options)
    assert scope.run_count(net.main) == steps + 3
    exe.close()
    assert_equal(state, looped(steps))


def test_what_does_not_fit_is_named(pair):
    bad = FRAME.assign(y=np.where(np.arange(ROWS) == 150, 0.5, 1.0))
    with pytest.raises(ValueError, match=r"partition 3, column 'y' holds 0.5 in row 30"):
        train(dd.from_pandas(bad, npartitions=5), pair)


def test_an_error_of_the_collection_is_raised(pair):
    def fail(part):
        raise KeyError("no such file")

    with pytest.raises(KeyError, match="no such file") as failed:
        train(frame().map_partitions(fail, meta=FRAME[:0]), pair)
    assert "Partitions [0, 1] of the collection" in failed.value.__notes__[0]


def test_a_current_client_computes_partitions_for_this_process(pair, expected):
    with pair.as_current():
        assert_equal(train(frame(), "threads"), expected())


def test_settings_of_dask_stay(pair, expected):
    """Partitions are computed in a thread while steps are made in another."""
    with dask.config.set(scheduler="sync"):
        train(frame(), pair, "gang", epochs=2)
        assert dask.config.get("scheduler") == "sync"


@pytest.fixture
def names(pair):
    """What the guide's program names, until the test is over.

    The scheduler of this process has the program's function, which knows all of them, for as long
    as one of them is partitions that it keeps: nothing would ever free either.
    """
    found = {"client": pair}
    yield found
    found.clear()


def test_the_guide(pair, names, capsys):
    on_threads = programs("docs/datasets.md")[2]
    *_, on_cluster = programs("docs/cluster.md")
    with dask.config.set(scheduler="threads"):
        exec(on_threads, names)
    shown = capsys.readouterr()
    assert "epoch 2: 180batch" in shown.err and "mean_0.tmp_0" in shown.out
    with pair.as_current():
        names["compiled"] = fluid.CompiledProgram(names["compiled"]._original).with_data_parallel(
            names["loss"].name, places=fluid.cpu_places(2)
        )
        exec(on_cluster, names)
    assert names["compiled"]._engine.contact is not None
    names["exe"].close()
