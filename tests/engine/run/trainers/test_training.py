"""Several trainers have the bits of one process with all their replicas."""

import threading

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.exchange.wire import GangError
from tests.certificates import requiring_encryption
from tests.engine.run.nets import AllReduce, Reduce, batches, classifier, train, word_batches, words
from tests.engine.run.trainers.pair import Trainer, free_endpoint, rows_of, together, two

STEPS, ROWS = 3, 12


def check_same(net, feeds, trainers, mode=AllReduce, devices=4, **options):
    """Losses and state of trainers are those of one process with all the replicas."""
    together(trainers, [[rows_of(feed, rank, 2) for feed in feeds] for rank in range(2)])
    assert [trainer.error for trainer in trainers] == [None, None]
    alone = train(net, feeds, devices, mode, **options)
    losses = [np.concatenate(found) for found in zip(*(t.losses for t in trainers), strict=True)]
    np.testing.assert_array_equal(losses, [np.array(loss) for loss in alone.losses])
    for name, value in alone.state.items():
        np.testing.assert_array_equal(trainers[0].state()[name], value, err_msg=name)


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("native_kernels", [True, False])
def test_bits_are_those_of_one_process(endpoints, mode, native_kernels):
    net = classifier(fluid.optimizer.Adam(0.01), dropout=0.3, batch_norm=True)
    trainers = two(net, endpoints, mode=mode, native_kernels=native_kernels)
    check_same(net, batches(STEPS, ROWS), trainers, mode, native_kernels=native_kernels)


@pytest.mark.parametrize(
    "options",
    [{"scheduler": "sync"}, {"fuse_all_optimizer_ops": True}, {"num_threads": 2}],
    ids=str,
)
def test_however_it_runs(endpoints, options):
    net = classifier(fluid.optimizer.Adam(0.01), batch_norm=True)
    check_same(net, batches(STEPS, ROWS), two(net, endpoints, **options), **options)


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_one_replica_each(endpoints, mode):
    net = classifier(fluid.optimizer.Momentum(0.1, 0.9))
    trainers = two(net, endpoints, mode=mode, devices=1)
    check_same(net, batches(STEPS, ROWS), trainers, mode, devices=2)


def test_sparse_gradients_go_as_rows(endpoints):
    net = words(fluid.optimizer.Adam(0.1, lazy_mode=True))
    check_same(net, word_batches(STEPS, ROWS), two(net, endpoints))


def test_trainers_of_several_hosts_meet_over_tcp(endpoints):
    net = words(fluid.optimizer.Adam(0.1, lazy_mode=True))
    there = [endpoints[0], free_endpoint("127.0.0.2")]
    check_same(net, word_batches(STEPS, ROWS), two(net, there))


def test_statistics_of_all_trainers(endpoints):
    net = classifier(batch_norm=True)
    trainers = two(net, endpoints, sync_batch_norm=True)
    check_same(net, batches(STEPS, ROWS), trainers, sync_batch_norm=True)


def test_without_overwriting_and_operator_by_operator(endpoints):
    net = classifier()
    options = {"enable_inplace": False, "task_granularity": "op"}
    check_same(net, batches(STEPS, ROWS), two(net, endpoints, **options), **options)


@pytest.mark.parametrize("sparse", [False, True])
def test_trainers_weigh_by_their_samples(endpoints, sparse):
    net = words() if sparse else classifier()
    feeds = word_batches(2, 14) if sparse else batches(2, 14)
    parts = [
        [{n: a[:at] for n, a in feed.items()}, {n: a[at:] for n, a in feed.items()}]
        for feed, at in zip(feeds, (10, 3), strict=True)
    ]
    trainers = two(net, endpoints, devices=1)
    together(trainers, zip(*parts, strict=True))
    alone = train(net, parts, 2)
    assert [trainer.error for trainer in trainers] == [None, None]
    for name, value in alone.state.items():
        np.testing.assert_array_equal(trainers[1].state()[name], value)


def test_parameters_of_trainer_0_are_where_all_begin(endpoints):
    trainers = [Trainer(classifier(seed=seed), endpoints, rank) for rank, seed in enumerate((5, 6))]
    for trainer in trainers:
        trainer.start()
    before = [trainer.state() for trainer in trainers]
    feeds = batches(1, ROWS)
    together(trainers, [[rows_of(feed, rank, 2) for feed in feeds] for rank in range(2)])
    first, second = (trainer.state() for trainer in trainers)
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value)
    assert any((before[0][name] != before[1][name]).any() for name in first)


def test_programs_with_replicas_of_other_numbers_are_refused(endpoints):
    net = classifier()
    trainers = [Trainer(net, endpoints, rank, devices=1 + rank) for rank in range(2)]
    for trainer in trainers:
        trainer.start()
    together(trainers, [batches(1, ROWS)] * 2)
    for trainer in trainers:
        assert "same number of replicas, but they have" in str(trainer.error)


def test_every_replica_needs_a_sample(endpoints):
    net = classifier()
    trainers = two(net, endpoints)
    (feed,) = batches(1, 5)
    together(trainers, [[rows_of({n: a[:2] for n, a in feed.items()}, rank, 2)] for rank in (0, 1)])
    for trainer in trainers:
        assert "samples for 2 replicas" in str(trainer.error)


def test_a_failed_step_changes_nothing_anywhere_and_can_be_made_again(endpoints):
    net = words()
    trainers = two(net, endpoints)
    good, bad = word_batches(1, ROWS)[0], word_batches(1, ROWS)[0]
    bad["x"][0, 0] = 99  # no row of the table
    first = [rows_of(good, rank, 2) for rank in range(2)]
    together(trainers, [[part] for part in first])
    before = [trainer.state() for trainer in trainers]
    together(trainers, [[rows_of(bad, rank, 2)] for rank in range(2)])
    assert isinstance(trainers[0].error, EnforceNotMet)
    assert "99" in str(trainers[0].error)
    assert isinstance(trainers[1].error, GangError)
    assert f"trainer 0 at {endpoints[0]} failed at step 2" in str(trainers[1].error)
    for trainer, state in zip(trainers, before, strict=True):
        for name, value in trainer.state().items():
            np.testing.assert_array_equal(value, state[name])
        trainer.error = None
    together(trainers, [[part] for part in first])
    assert [trainer.error for trainer in trainers] == [None, None]
    np.testing.assert_array_equal(trainers[0].state()["fc_0.w_0"], trainers[1].state()["fc_0.w_0"])


def test_functions_of_the_user_fail_by_the_class_of_their_error(endpoints):
    def fails(x):
        raise ValueError("bad")

    net = classifier()
    with fluid.program_guard(net.main), fluid.unique_name.guard():
        out = net.main.global_block().create_var(name="out", dtype="float32", shape=[-1, 3])
        fluid.layers.py_func(fails, net.prediction, out)
    trainers = two(net, endpoints)
    (feed,) = batches(1, ROWS)
    together(trainers, [[rows_of(feed, rank, 2)] for rank in range(2)])
    assert any(isinstance(trainer.error, EnforceNotMet) for trainer in trainers)
    for trainer in trainers:  # the other one may have failed itself, or have been told
        assert isinstance(trainer.error, EnforceNotMet | GangError)
        assert "ValueError: bad" in str(trainer.error)


def test_a_missing_trainer_is_named(endpoints):
    net = classifier()
    trainer = Trainer(net, endpoints, 0, collective_timeout=1)
    trainer.start()
    trainer.run(batches(1, ROWS))
    assert isinstance(trainer.error, GangError)
    assert f"{endpoints[1]}" in str(trainer.error)
    assert "did not come within 1 s" in str(trainer.error)


def test_number_and_endpoints_must_fit(endpoints, monkeypatch):
    monkeypatch.delenv("PADDLE_TRAINER_ENDPOINTS", raising=False)
    net = classifier()
    trainer = Trainer(net, endpoints, 0, num_trainers=3)
    trainer.start()
    trainer.run(batches(1, ROWS))
    assert "num_trainers is 3, but there are 2 endpoints" in str(trainer.error)


def test_the_test_program_runs_alone(endpoints):
    net = classifier()
    trainer = Trainer(net, endpoints, 0)
    trainer.start()
    build = fluid.BuildStrategy()
    build.num_trainers = 2
    test = fluid.CompiledProgram(net.test).with_data_parallel(
        build_strategy=build, places=fluid.cpu_places(2)
    )
    (found,) = trainer.exe.run(test, batches(1, ROWS)[0], [net.prediction], scope=trainer.scope)
    assert found.shape == (ROWS, 3)


def test_several_steps_per_run(endpoints):
    net = classifier(dropout=0.3)
    (feed,) = batches(1, ROWS)
    trainers = two(net, endpoints, num_iteration_per_run=3)
    together(trainers, [[rows_of(feed, rank, 2)] for rank in range(2)])
    alone = train(net, [feed] * 3, 4)
    assert [trainer.error for trainer in trainers] == [None, None]
    for name, value in alone.state.items():
        np.testing.assert_array_equal(trainers[0].state()[name], value)


def test_two_programs_take_turns(endpoints):
    nets = [classifier(seed=5), words()]
    pairs = [two(net, endpoints) for net in nets]
    feeds = [batches(2, ROWS), word_batches(2, ROWS)]

    def run(rank):
        for step in range(2):
            for pair, found in zip(pairs, feeds, strict=True):
                pair[rank].run([rows_of(found[step], rank, 2)])

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for net, pair, found in zip(nets, pairs, feeds, strict=True):
        assert [trainer.error for trainer in pair] == [None, None]
        alone = train(net, found, 4)
        for name, value in alone.state.items():
            np.testing.assert_array_equal(pair[0].state()[name], value)


def test_a_recorded_run_is_the_same_run(endpoints):
    net = classifier()
    trainers = two(net, endpoints, trace=True)
    check_same(net, batches(STEPS, ROWS), trainers)
    events = [e for e in trainers[0].compiled.trace.events if e.kind == "collective"]
    size = sum(param.shape[0] * (*param.shape, 1)[1] for param in net.main.all_parameters())
    assert events
    moved = sum(event.args.get("shared", 0) for event in events)
    assert moved == STEPS * 2 * 4 * size  # each replica's gradients, once


def test_where_dask_requires_encryption_trainers_encrypt(endpoints, tmp_path):
    net = classifier()
    there = [endpoints[0], free_endpoint("127.0.0.2")]
    with requiring_encryption(tmp_path):
        trainers = two(net, there)
        check_same(net, batches(STEPS, ROWS), trainers)
    channels = trainers[0].compiled._engine.runner.exchange.group.channels.values()
    assert [type(channel.sock).__name__ for channel in channels] == ["SSLSocket"]
