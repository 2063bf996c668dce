"""Trainers run whole steps as machine code and exchange gradients within them."""

import dataclasses
import signal
import threading
import time

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine import kernels
from dpexec.engine.compile.plans import compilation
from dpexec.engine.compile.plans.bucket_size import Link
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.exchange.wire import GangError
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    batches,
    classifier,
    sequence_batches,
    sequences,
    train,
    word_batches,
    words,
)
from tests.engine.run.trainers.pair import free_endpoint, rows_of, together, two

if not kernels.available():
    pytest.skip("needs numba", allow_module_level=True)

STEPS = 5
AS_TASKS = {"use_experimental_executor": False}


def steps_of_code(trainer):
    made = trainer.compiled._engine.runner.code.by_binding.values()
    return [code for code in made if code is not None]


def check_same(net, feeds, trainers, devices, mode=AllReduce, **options):
    """Losses and state are those of one process with all the replicas."""
    together(trainers, [[rows_of(feed, rank, 2) for feed in feeds] for rank in range(2)])
    assert [trainer.error for trainer in trainers] == [None, None]
    alone = train(net, feeds, devices, mode, **options)
    losses = [np.concatenate(found) for found in zip(*(t.losses for t in trainers), strict=True)]
    np.testing.assert_array_equal(losses, [np.array(loss) for loss in alone.losses])
    for trainer in trainers:
        for name, value in alone.state.items():
            np.testing.assert_array_equal(trainer.state()[name], value, err_msg=name)


@pytest.fixture(params=["memory", "sockets"])
def places(request, endpoints):
    """Endpoints of one host, or of two."""
    if request.param == "memory":
        return endpoints
    return [endpoints[0], free_endpoint("127.0.0.2")]


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("make", [classifier, words], ids=["dense", "sparse"])
def test_bits_are_those_of_one_process(places, make, mode, devices):
    net = make()
    feeds = (word_batches if make is words else batches)(STEPS, 12)
    trainers = two(net, places, mode=mode, devices=devices)
    check_same(net, feeds, trainers, 2 * devices, mode)
    assert [len(steps_of_code(trainer)) for trainer in trainers] == [1, 1]


def test_large_sums_are_divided_among_trainers_and_threads(places):
    net = classifier(sizes=(8, 300, 200, 3), dropout=0.3)
    trainers = two(net, places, num_threads=2)
    check_same(net, batches(STEPS), trainers, 4)
    assert all(map(steps_of_code, trainers))


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_sums_travel_while_all_threads_of_replicas_go_on(endpoints, mode, devices, monkeypatch):
    monkeypatch.setattr(compilation, "GANG", Link(1e-3, 5e6))  # some buckets, of 0.1 MB and more
    net = classifier(sizes=(8, 200, 200, 200, 3))
    hosts = [endpoints[0], free_endpoint("127.0.0.2")]
    trainers = two(net, hosts, mode=mode, devices=devices)
    check_same(net, batches(STEPS), trainers, 2 * devices, mode)
    for trainer in trainers:
        (team,) = trainer.compiled._engine.runner.code._teams.values()
        assert team.size <= devices
        assert team.idents[team.size]  # one more thread has computed


@pytest.mark.parametrize("devices", [1, 2])
def test_sequences_with_new_sizes_in_every_batch(places, devices):
    net = sequences()
    feeds = [sequence_batches([s + 5 * rank for s in range(20, 26)]) for rank in range(2)]
    trainers = two(net, places, devices=devices)
    together(trainers, feeds)
    assert [trainer.error for trainer in trainers] == [None, None]
    assert [len(steps_of_code(trainer)) for trainer in trainers] == [1, 1]
    tasks = two(net, [free_endpoint(e.host) for e in places], devices=devices, **AS_TASKS)
    together(tasks, feeds)
    for one, other in zip(trainers, tasks, strict=True):
        np.testing.assert_array_equal(one.losses, other.losses)
        for name, value in other.state().items():
            np.testing.assert_array_equal(one.state()[name], value, err_msg=name)


def test_sparse_batches_that_grow(places):
    net, sizes = words(), (4, 4, 6, 6, 9, 12, 5, 16)
    feeds = [word_batches(1, 2 * size)[0] for size in sizes]
    trainers = two(net, places, devices=1)
    check_same(net, feeds, trainers, 2)
    assert all(map(steps_of_code, trainers))


def test_trainers_with_other_samples_at_every_step(places):
    net = classifier()
    cuts = (10, 3, 7, 7, 3, 10)
    parts = [[{n: a[:c] for n, a in f.items()} for f, c in zip(batches(6, 14), cuts, strict=True)]]
    parts += [[{n: a[c:] for n, a in f.items()} for f, c in zip(batches(6, 14), cuts, strict=True)]]
    trainers = two(net, places, devices=1)
    together(trainers, parts)
    assert [trainer.error for trainer in trainers] == [None, None]
    alone = train(net, [list(pair) for pair in zip(*parts, strict=True)], 2)
    for name, value in alone.state.items():
        np.testing.assert_array_equal(trainers[1].state()[name], value)


def test_sparse_values_of_which_only_a_run_tells_the_rows(places):
    net = words()
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4], "int64")
        few = fluid.layers.fill_constant([1], "int64", 6)
        found = fluid.layers.where(fluid.layers.less_than(x, few))
        table = fluid.embedding(fluid.layers.cast(found, "int64"), [16, 5], is_sparse=True)
        loss = fluid.layers.mean(fluid.layers.reduce_sum(table, dim=[1, 2]))
        fluid.optimizer.SGD(0.1).minimize(loss)
    net = dataclasses.replace(net, main=main, startup=startup, loss=loss)
    feeds = [{"x": feed["x"]} for feed in word_batches(STEPS)]
    trainers = two(net, places)
    check_same(net, feeds, trainers, 4)
    assert trainers[0].compiled._engine.runner.exchange.sums.sums.unknown


def test_gradients_that_come_as_elements_after_the_ramp(places):
    optimizer = fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 2, sparsity=[0.99])
    net = classifier(optimizer, sizes=(128, 160, 3))  # large enough to be compressed
    feeds = batches(STEPS, 12, 128, 3)
    trainers = two(net, places)
    together(trainers, [[rows_of(feed, rank, 2) for feed in feeds] for rank in range(2)])
    assert [trainer.error for trainer in trainers] == [None, None]
    alone = train(net, feeds, 4)
    for name in ("fc_0.w_0", "fc_0.b_0", "fc_1.w_0"):  # each device has sums of its own
        for trainer in trainers:
            np.testing.assert_array_equal(trainer.state()[name], alone.state[name])


def test_one_trainer_may_run_task_by_task(places):
    net = words()
    trainers = two(net, places)
    trainers[1] = type(trainers[1])(net, places, 1, **AS_TASKS)
    trainers[1].start()
    check_same(net, word_batches(STEPS), trainers, 4)
    assert steps_of_code(trainers[0])
    assert trainers[1].compiled._engine.runner.code is None


def test_one_trainer_may_fetch_more(places):
    net = classifier()
    trainers = two(net, places)
    usual, gradient = trainers[0].exe.run, net.main.all_parameters()[0].name + "@GRAD"

    def run(program, feed, fetch, scope):
        return usual(program, feed, [*fetch, gradient, net.prediction], scope=scope)[:1]

    trainers[0].exe.run = run
    check_same(net, batches(STEPS), trainers, 4)
    assert all(map(steps_of_code, trainers))


def test_recorded_steps_tell_of_sums(places):
    net = words()
    trainers = two(net, places, trace=True)
    check_same(net, word_batches(STEPS), trainers, 4)
    assert all(map(steps_of_code, trainers))
    dense = 2 * 4 * (5 * 3 + 3)
    for trainer in trainers:
        sums = [event for event in trainer.compiled.trace.events if event.kind == "collective"]
        moved = [event.args.get("shared", 0) + event.args.get("sent", 0) for event in sums]
        steps = len(moved) // STEPS
        found = [sum(moved[i : i + steps]) > dense for i in range(0, len(moved), steps)]
        assert found == [True] * STEPS
        assert all(e.duration > 0 for e, nbytes in zip(sums, moved, strict=True) if nbytes)


# ---- when something goes wrong


def started(net, places, feeds, **options):
    """Two trainers that have made steps of code."""
    trainers = two(net, places, **options)
    together(trainers, [[rows_of(feed, rank, 2) for feed in feeds] for rank in range(2)])
    assert [trainer.error for trainer in trainers] == [None, None]
    return trainers


def on_team(trainer, act):
    """Let a trainer do something instead of running its next step of code."""
    (team,) = trainer.compiled._engine.runner.code._teams.values()
    usual = team.run

    def run(*args):
        team.run = usual
        return act(lambda: usual(*args))

    team.run = run


def check_all_go_on(trainers, before, feed):
    """No variable has changed, and the trainers meet again."""
    for trainer in trainers:
        for name, value in trainer.state().items():
            np.testing.assert_array_equal(value, before[name], err_msg=name)
        trainer.error = None
    together(trainers, [[rows_of(feed, rank, 2)] * 3 for rank in range(2)])
    assert [trainer.error for trainer in trainers] == [None, None]
    one, other = (trainer.state() for trainer in trainers)
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])
        assert name == "learning_rate_0" or (value != before[name]).any()


def test_values_that_code_refuses_are_told_to_all(places):
    net, feeds = words(), word_batches(4)
    trainers = started(net, places, feeds[:3])
    before, bad = trainers[0].state(), {n: a.copy() for n, a in feeds[3].items()}
    bad["x"][0, 0] = 99  # no row of the table
    together(trainers, [[rows_of(bad, rank, 2)] for rank in range(2)])
    assert isinstance(trainers[0].error, EnforceNotMet)
    assert "99" in str(trainers[0].error)
    assert isinstance(trainers[1].error, GangError)
    assert "failed at step 4" in str(trainers[1].error)
    check_all_go_on(trainers, before, feeds[3])


def test_a_step_that_begins_as_code_may_go_on_task_by_task(places):
    from dpexec.engine.kernels.collectives import place

    net, feeds = words(), word_batches(STEPS)
    trainers = started(net, places, feeds[:3])
    (code,) = steps_of_code(trainers[0])
    arguments = np.array([1, 0, 1, -1, 0, 0, 0, 0, 0, np.zeros(1, np.int64).ctypes.data])
    refuses = np.array([[place.address, arguments.ctypes.data]], np.int64)
    item = code.schedule._items[code.gates.ready]

    def refuse(run):
        before, item[:2] = item[:2].copy(), (refuses.ctypes.data, 1)
        assert run() is False  # though all sums have come to their end
        item[:2] = before
        return False

    on_team(trainers[0], refuse)
    together(trainers, [[rows_of(feed, rank, 2) for feed in feeds[3:]] for rank in range(2)])
    assert [trainer.error for trainer in trainers] == [None, None]
    alone = train(net, feeds, 4)
    for trainer in trainers:
        for name, value in alone.state.items():
            np.testing.assert_array_equal(trainer.state()[name], value, err_msg=name)


def test_a_trainer_that_fails_in_the_middle(places):
    net, feeds = classifier(), batches(4)
    trainers = started(net, places, feeds[:3])
    before = trainers[0].state()

    def fail(run):
        raise RuntimeError("out of order")

    on_team(trainers[1], fail)
    together(trainers, [[rows_of(feeds[3], rank, 2)] for rank in range(2)])
    assert "out of order" in str(trainers[1].error)
    assert isinstance(trainers[0].error, GangError)
    assert "out of order" in str(trainers[0].error)
    check_all_go_on(trainers, before, feeds[3])


def test_a_trainer_that_stops_for_too_long(places):
    net, feeds = classifier(), batches(4)
    trainers = started(net, places, feeds[:3], collective_timeout=1)
    before = trainers[0].state()

    def sleep(run):
        time.sleep(2.5)
        return run()

    on_team(trainers[1], sleep)
    began = time.monotonic()
    together(trainers, [[rows_of(feeds[3], rank, 2)] for rank in range(2)])
    assert time.monotonic() - began < 6
    assert "did not answer for 1 s" in str(trainers[0].error)
    assert str(places[1]) in str(trainers[0].error)
    assert isinstance(trainers[1].error, GangError)
    check_all_go_on(trainers, before, feeds[3])


def test_a_trainer_that_is_interrupted_while_it_waits(places):
    net, feeds = classifier(), batches(4)
    trainers = started(net, places, feeds[:3], collective_timeout=60)
    before = trainers[0].state()
    late = threading.Event()

    def wait(run):
        late.wait(30)
        return run()

    on_team(trainers[1], wait)
    parts = [rows_of(feeds[3], rank, 2) for rank in range(2)]
    other = threading.Thread(target=trainers[1].run, args=([parts[1]],))
    other.start()
    me = threading.get_ident(), signal.SIGINT
    interrupt = threading.Timer(0.5, signal.pthread_kill, me)
    interrupt.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        trainers[0].run([parts[0]])
    assert time.monotonic() - began < 20
    late.set()
    other.join()
    interrupt.join()
    assert isinstance(trainers[1].error, GangError)
    check_all_go_on(trainers, before, feeds[3])
