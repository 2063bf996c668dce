"""Resident members: a step adds no dask task, and costs the client few calls."""

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import dpexec as fluid
from dpexec.engine.cluster.client import gang_lines, replica_group
from dpexec.engine.cluster.client.lifetime import ClientWatch
from dpexec.engine.cluster.gang_messages import Order
from dpexec.engine.cluster.worker import resident
from dpexec.engine.exchange import rendezvous
from tests.distributed.clusters import workers
from tests.distributed.faults import disturbed
from tests.distributed.nets import NETS
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    assert_same_bits,
    batches,
    classifier,
    sequence_batches,
    sequences,
    strategies,
    train,
)
from tests.engine.run.test_cached_steps import calls_of
from tests.waiting import until

ROOT = Path(__file__).parents[2]
STEPS = 6


def stay(client, seconds):
    """Let tasks of gangs end when they were idle for so long."""

    def be_patient():

        resident._IDLE = seconds

    client.run(be_patient)


@pytest.fixture(autouse=True)
def _patient(request):
    """Nobody rests in the middle of a test because the machine is busy."""
    if "pair" in request.fixturenames:
        client = request.getfixturevalue("pair")
        gc.collect()  # gangs of the tests before end with their engines
        stay(client, 60.0)
        yield
        stay(client, 1.0)
    else:
        yield


def residents(client):
    """The keys of tasks that stay, as the scheduler knows them."""

    def found(dask_scheduler):
        return sorted(str(k) for k, ts in dask_scheduler.tasks.items() if "gang-" in str(k))

    return client.run_on_scheduler(found)


def waiting():
    """How many tasks of gangs a worker has: threads that wait for orders."""
    found = 0
    for frame in sys._current_frames().values():
        while frame is not None:
            found += frame.f_code.co_name == "reside"
            frame = frame.f_back
    return found


def gang(feeds, devices=2, mode=AllReduce, **options):
    return train(classifier(), feeds, devices, mode, collectives="gang", **options)


def test_steps_add_no_tasks_and_come_in_the_ones_that_are_there(pair):
    known = {}

    def look(step):
        counts = pair.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter)
        known[step] = residents(pair), counts

    feeds = disturbed(batches(STEPS), {2: lambda: look(2), STEPS - 1: lambda: look(STEPS - 1)})
    run = gang(feeds, scheduler=pair)
    assert_same_bits(run, train(classifier(), batches(STEPS), 2))
    assert len(known[2][0]) == 2
    assert known[2] == known[STEPS - 1]


def test_new_sizes_come_with_the_steps(pair, monkeypatch):
    asked = []
    call = replica_group.ReplicaGroup.call
    monkeypatch.setattr(
        replica_group.ReplicaGroup,
        "call",
        lambda group, function, *args: (
            asked.append(function.__name__) or call(group, function, *args)
        ),
    )
    feeds = [batches(1, rows)[0] for rows in (8, 10, 11, 14, 9)]
    run = gang(feeds, scheduler=pair)
    assert "bind" not in asked
    assert_same_bits(run, train(classifier(), feeds, 2))


@pytest.mark.parametrize("kind", ["rows", "sequences"])
def test_steps_of_new_sizes_are_told_as_numbers_and_arrays(pair, monkeypatch, kind):
    """All but the first one of each form: sizes that are fixed, and open ones."""
    whole, encode = [], gang_lines.encode
    monkeypatch.setattr(gang_lines, "encode", lambda each: whole.append(each) or encode(each))
    if kind == "rows":
        make, feeds = classifier, [batches(1, rows)[0] for rows in (8, 10, 11, 14, 9, 12, 10)]
    else:
        make, feeds = sequences, sequence_batches([9, 30, 12, 25, 18, 7, 21])
    run = train(make(), feeds, 2, scheduler=pair, collectives="gang")
    orders = [each for each in whole if isinstance(each, Order) and each.steps]
    assert len(orders) == 2 * 2 and all(order.form for order in orders)
    assert_same_bits(run, train(make(), feeds, 2))


def test_repeated_step_is_few_calls_of_the_client(pair):
    net, scope, exe = classifier(), fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup, scope=scope)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, *strategies(scheduler=pair, collectives="gang"), places=fluid.cpu_places(2)
    )
    (feed,) = batches(1)

    def step():
        exe.run(compiled, feed, [net.loss.name], scope=scope)

    for _ in range(3):
        step()
    found = min((calls_of(step) for _ in range(30)), key=len)
    slept = any(name == "Inbox.sleep" for _, name in found)  # before members answered
    assert len(found) <= (170 if slept else 110), found


def test_who_compiles_for_long_is_waited_for(pair):
    """A first batch is compiled everywhere before any member makes the step."""

    def be_slow():
        from dpexec.engine.cluster.worker.worker import WorkerReplicas

        original = WorkerReplicas.bind

        def slow(*args):
            WorkerReplicas.bind = original
            time.sleep(4.0)
            original(*args)

        WorkerReplicas.bind = slow

    pair.run(be_slow, workers=[sorted(pair.nthreads())[1]])
    known = pair.run(os.getpid)
    run = gang(batches(2), scheduler=pair, collective_timeout=2)
    assert_same_bits(run, train(classifier(), batches(2), 2))
    assert run.compiled._engine._cluster.group.epoch.number == 0
    assert pair.run(os.getpid) == known


def test_idle_tasks_end_and_steps_go_on(pair):
    stay(pair, 0.1)
    found = []

    def rest():
        until(lambda: not residents(pair))
        found.append(sum(pair.run(waiting).values()))

    run = gang(disturbed(batches(STEPS), {2: rest, 4: rest}), scheduler=pair)
    assert found == [0, 0]
    assert_same_bits(run, train(classifier(), batches(STEPS), 2))


def test_collected_engine_ends_its_tasks(pair):
    run = gang(batches(2), scheduler=pair)
    assert sum(pair.run(waiting).values()) == 2
    del run
    gc.collect()
    until(lambda: sum(pair.run(waiting).values()) == 0 and not residents(pair), 10)


def test_programs_of_several_threads_train_on_the_same_workers(pair):
    """With one thread per worker: tasks leave the pools, or would wait for each other."""
    expected = train(classifier(), batches(STEPS), 2)
    found = {}
    barrier = threading.Barrier(3)

    def one(number):
        net, scope, exe = nets[number], fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup, scope=scope)
        strategy = fluid.ExecutionStrategy()
        strategy.scheduler, strategy.collectives = pair, "gang"
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, exec_strategy=strategy, places=fluid.cpu_places(2)
        )
        barrier.wait(60)
        found[number] = []
        for feed in batches(STEPS):
            (loss,) = exe.run(program, feed=feed, fetch_list=[net.loss], scope=scope)
            found[number].append(loss.tolist())

    nets = [classifier() for _ in range(3)]
    threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == {n: [loss.tolist() for loss in expected.losses] for n in range(3)}


def test_client_that_does_not_reach_workers_sends_steps_through_the_scheduler(
    pair, monkeypatch, caplog
):
    connect = rendezvous.connect

    def unreachable(where, security, role, timeout):
        if role == "client":
            raise OSError("no route to host")
        return connect(where, security, role, timeout)

    monkeypatch.setattr(rendezvous, "connect", unreachable)
    caplog.set_level(logging.WARNING, "dpexec")
    before = residents(pair)
    run = gang(batches(3), scheduler=pair)
    assert_same_bits(run, train(classifier(), batches(3), 2))
    assert "orders go through dask's scheduler: no way to worker" in caplog.text
    until(lambda: set(residents(pair)) <= set(before))  # before a task that stays would rest


def test_scheduler_may_close_workers_that_train_but_not_for_being_idle(mortals, monkeypatch):
    """An adaptive cluster asks so."""
    monkeypatch.setattr(replica_group, "_LOOK", 0.0)  # every run looks who has left
    found = {}

    def retire():
        def closable(dask_scheduler, n=None):
            return dask_scheduler.workers_to_close(n=n)

        found["idle"] = mortals.client.run_on_scheduler(closable)
        (found["wanted"],) = mortals.client.run_on_scheduler(closable, n=1)
        mortals.client.retire_workers([found["wanted"]])
        until(lambda: found["wanted"] not in mortals.client.nthreads())

    stay(mortals.client, 60.0)
    run = gang(disturbed(batches(STEPS), {3: retire}), 2, Reduce, scheduler=mortals.client)
    assert found["idle"] == []
    assert_same_bits(run, train(classifier(), batches(STEPS), 2))
    assert run.compiled._engine._cluster.address.count(found["wanted"]) == 0


def test_dashboard_names_a_lost_worker_and_shows_who_goes_on(mortals):
    def members(dask_scheduler):
        found = dask_scheduler.plugins["dpexec"].refresh().members.values()
        return [(member.left is None, member.running, set(member.groups)) for member in found]

    def shown(*there):
        states = mortals.client.run_on_scheduler(members)
        return states if sorted(found[0] for found in states) == list(there) else None

    lost = mortals.addresses()[1]

    def lose():
        until(lambda: shown(True, True))
        mortals.lose(lost)

    run = gang(disturbed(batches(STEPS), {3: lose}), scheduler=mortals.client)
    assert_same_bits(run, train(classifier(), batches(STEPS), 2))

    def all_there():
        states = shown(False, True)
        return states and {"optimizer_dev0", "optimizer_dev1"} <= states[1][2] | states[0][2]

    until(all_there)
    states = mortals.client.run_on_scheduler(members)
    assert [running for _, running, _ in states] == [None, None]


def test_workers_that_others_keep_are_not_offered():
    ours, theirs = ("gang_dev0", "gang-0123abcd-0-7"), ("train-0", "0123abcd")
    tasks = {"a": [], "b": [ours], "c": [ours, theirs], "d": [ours]}
    states = {
        name: SimpleNamespace(address=name, long_running=[SimpleNamespace(key=k) for k in keys])
        for name, keys in tasks.items()
    }
    scheduler = SimpleNamespace(workers=states)
    offered = ClientWatch("client", "token", 1).valid_workers_downscaling(scheduler, [states["d"]])
    assert [state.address for state in offered] == ["d", "b"]


def test_adaptive_cluster_shrinks_while_a_gang_trains():
    net, feeds = classifier(), batches(STEPS)
    with workers(2, restart=True) as found:
        run = train(net, feeds, 2, Reduce, scheduler=found.client, collectives="gang")
        found.cluster.adapt(minimum=1, maximum=1, interval="0.2s", wait_count=1)
        deadline, count = time.monotonic() + 60, STEPS
        with fluid.scope_guard(run.scope):
            exe = fluid.Executor(fluid.CPUPlace())
            while len(found.client.nthreads()) > 1 and time.monotonic() < deadline:
                exe.run(run.compiled, feed=feeds[0], fetch_list=[net.loss])
                count += 1
            loss = exe.run(run.compiled, feed=feeds[1], fetch_list=[net.loss])[0]
        assert len(found.client.nthreads()) == 1
        found.cluster.adapt(minimum=0, maximum=0)
    every = [*feeds, *[feeds[0]] * (count - STEPS), feeds[1]]
    assert loss.tolist() == train(classifier(), every, 2).losses[-1].tolist()


def test_connection_that_breaks_is_made_again(pair):
    """Client and worker are both there, and lose each other."""
    found = []

    def cut():
        engine = found[0].compiled._engine
        engine._cluster._runner._open[1].interrupt()

    net, feeds = NETS["images"](STEPS)
    run = train(net, feeds[:2], 2, Reduce, scheduler=pair, collectives="gang")
    found.append(run)
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        losses = []
        for feed in disturbed(feeds[2:], {1: cut}):
            losses += exe.run(run.compiled, feed=feed, fetch_list=[net.loss])
    expected = train(NETS["images"](STEPS)[0], feeds, 2).losses[2:]
    assert [loss.tolist() for loss in losses] == [loss.tolist() for loss in expected]


def test_tasks_end_soon_after_their_client_was_killed(pair):
    """Long before dask is sure that it does not come back."""
    command = [sys.executable, "-m", "tests.distributed.train_alone", pair.scheduler.address]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as trainer:
        for _ in range(2):
            assert trainer.stdout.readline() == b"step\n"
        assert sum(pair.run(waiting).values()) == 2
        os.kill(trainer.pid, signal.SIGKILL)
        killed = time.monotonic()
        until(lambda: sum(pair.run(waiting).values()) == 0, 20)
        trainer.wait()
    assert time.monotonic() - killed < 20
