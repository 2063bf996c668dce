"""Batches of many sizes on workers: code is compiled once, with the same bits."""

from collections import Counter

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.cluster.worker.bindings import WorkerBinding
from dpexec.engine.cluster.worker.worker import replicas_at
from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.core.cache import LIMITS, Limit
from dpexec.engine.dispatch.binder import Binder
from dpexec.engine.ir.sizes import NeedsNumber
from tests.distributed.faults import disturbed
from tests.engine.compile.test_sizes import NETS, feeds
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    assert_same_bits,
    classifier,
    strategies,
    train,
)
from tests.engine.run.test_cached_steps import calls_of

SIZES = [int(size) for size in np.random.RandomState(0).permutation(np.arange(10, 60))[:10]]


def made(token, dask_worker):
    """How many bindings a worker knows, and for how many of them it leaves sizes open."""
    known = replicas_at(token, dask_worker.address)._bindings.values()
    return len(known), sum(found.binding.open_rows is not None for found in known)


def counts_of(run):
    cluster = run.compiled._engine._cluster
    return cluster.client.run(made, cluster.token).values()


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("dropout", AllReduce),
        ("batch_norm", Reduce),
        ("sequences", AllReduce),
        ("sequences", Reduce),
        ("translation", AllReduce),
        ("sparse", AllReduce),
        ("sparse Adagrad", Reduce),
    ],
)
def test_workers_make_code_once_for_many_sizes(pair, name, mode, collectives):
    make, batches = NETS[name]
    run = train(make(), batches(SIZES), 2, mode, scheduler=pair, collectives=collectives)
    assert_same_bits(run, train(make(), batches(SIZES), 2, mode))
    for known, left_open in counts_of(run):
        assert 1 <= left_open <= known <= 4


def test_batches_of_new_sizes_cost_little_around_the_step(pair):
    """Workers make no tasks of sizes that run as code, and the client knows what will come home."""

    def singly(token, dask_worker):
        """For how many sizes a worker has made what runs task by task: one at most."""
        known = replicas_at(token, dask_worker.address)._bindings.values()
        return sum("steps" in vars(closed) for found in known for closed in found._sizes.values())

    make, batches = NETS["sequences"]
    net, scope, exe = make(), fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup, scope=scope)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, *strategies(scheduler=pair, collectives="gang"), places=fluid.cpu_places(2)
    )

    def step(feed):
        exe.run(compiled, feed, [net.loss.name], scope=scope)

    given = batches([*SIZES, *range(12, 60, 3)])
    for feed in given[: len(SIZES)]:
        step(feed)
    found = min((calls_of(lambda f=f: step(f)) for f in given[len(SIZES) :]), key=len)
    assert len(found) <= 350, Counter(found)  # 290 if members answer before the client sleeps
    cluster = compiled._engine._cluster
    assert max(cluster.client.run(singly, cluster.token).values()) <= 1


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_workers_that_take_over_make_code_for_the_size_that_comes(mortals, collectives):
    net, batches = NETS["sequences"]
    lost = {5: lambda: mortals.lose(mortals.addresses()[1])}
    options = {"scheduler": mortals.client, "collectives": collectives}
    run = train(net(), disturbed(batches(SIZES), lost), 2, **options)
    assert_same_bits(run, train(net(), batches(SIZES), 2))


@pytest.fixture
def left_open(monkeypatch):
    """A binding for 8 to 11 rows that leaves their number open."""
    kept = []
    bind = Binder._opened
    monkeypatch.setattr(Binder, "_opened", lambda *args: kept.append(bind(*args)) or kept[-1])
    train(classifier(), feeds([8, 10, 11]), 1)
    (member,) = kept
    return member.binding


def test_a_size_that_needs_more_memory_has_code_of_its_own(left_open, monkeypatch):
    """As a primitive of a worker's processor may, though that of the client's does not."""
    here = WorkerBinding(left_open)
    usual = here.of(((10,),))

    def refuse(self, rows):
        raise NeedsNumber("more memory")

    monkeypatch.setattr(Binding, "closed", refuse)
    alone = here.of(((11,),))
    assert usual.opened is left_open
    assert alone.opened is None
    assert (11, 8) in {spec.shape for spec in alone.given[0].values()}
    assert len(alone.steps) == len(usual.steps)
    assert here.of(((11,),)) is alone


def test_few_sizes_are_kept(left_open, monkeypatch):
    monkeypatch.setitem(LIMITS, "sizes on a worker", Limit(2, ""))
    here = WorkerBinding(left_open)
    first = here.of(((9,),))
    assert here.of(((9,),)) is first
    for rows in (10, 11):
        here.of(((rows,),))
    assert here.of(((9,),)) is not first
