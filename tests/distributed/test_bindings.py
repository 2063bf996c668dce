"""The client's record of the bindings that workers have stays right when workers join."""

import pytest

import dpexec as fluid
from dpexec.engine.cluster.client import replica_group
from dpexec.engine.cluster.worker.worker import replicas_at
from dpexec.engine.core.cache import LIMITS, Limit
from tests.distributed.faults import disturbed
from tests.engine.run.nets import assert_same_bits, batches, classifier, strategies, train

BOTH = pytest.mark.parametrize("collectives", ["tasks", "gang"])


def of_rows(rows):
    (feed,) = batches(1, rows)
    return feed


def known(token, dask_worker):
    """How many bindings and plans a worker keeps."""
    replicas = replicas_at(token, dask_worker.address)
    return len(replicas._bindings), len(replicas._plans)


@BOTH
def test_workers_that_join_know_what_the_client_believes(mortals, monkeypatch, collectives):
    """The latest binding comes first to the new worker, and is used when another one is new."""
    monkeypatch.setitem(LIMITS, "bindings on workers", Limit(2, ""))
    monkeypatch.setattr(replica_group, "_LOOK", 0.0)
    monkeypatch.setattr(replica_group.ReplicaGroup, "_rehearse", lambda *_: None)  # it is ready
    feeds = [of_rows(rows) for rows in (8, 10, 10, 8, 12, 10, 12, 8)]

    def another():
        mortals.lose(mortals.addresses()[1])
        mortals.wait_for(2)

    net = classifier()
    options = {"scheduler": mortals.client, "collectives": collectives}
    run = train(net, disturbed(feeds, {2: another}), 2, **options)
    assert_same_bits(run, train(net, feeds, 2))
    cluster = run.compiled._engine._cluster
    found = mortals.client.run(known, cluster.token)
    assert set(found.values()) == {(2, 1)}


def losses_of_runs(feeds, **options):
    """Losses of two runs of four steps each, in which every device takes a batch of the reader."""
    net = classifier()
    with fluid.program_guard(net.main):
        variables = [net.main.global_block().var(name) for name in ("x", "y")]
        loader = fluid.io.DataLoader.from_generator(variables, capacity=4, iterable=False)
    loader.set_batch_generator(lambda: ([feed["x"], feed["y"]] for feed in feeds))
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup)
        build, execution = strategies(num_iteration_per_run=4, **options)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=fluid.cpu_places(2)
        )
        loader.start()
        return [exe.run(program, fetch_list=[net.loss])[0].tolist() for _ in range(2)]


@BOTH
def test_one_run_may_need_more_bindings_than_are_kept(pair, monkeypatch, collectives):
    monkeypatch.setitem(LIMITS, "bindings on workers", Limit(2, ""))
    feeds = [of_rows(rows) for rows in (4, 6, 8, 10) for _ in range(4)]
    found = losses_of_runs(feeds, scheduler=pair, collectives=collectives)
    assert found == losses_of_runs(feeds)
