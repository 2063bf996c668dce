"""How many gradients are aggregated together: by fluid's flags, or by latency."""

import pickle

import pytest

import dpexec as fluid
from dpexec.engine.compile.plans.bucket_size import GANG, TASKS, THREADS
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.compile.plans.plan import PlanKey
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    assert_same_bits,
    batches,
    classifier,
    flags,
    strategies,
    train,
)

SIZES = (8, 64, 64, 64, 3)


def sums(plan):
    """Number of tasks that add gradients up."""
    return sum(task.nodes[0].kind in ("all_reduce", "reduce") for task in plan.tasks)


def compilation(collectives=None, mode=AllReduce, **options):
    main = classifier(sizes=SIZES).main
    build, _ = strategies(mode, **options)
    return Compilation.of(main, [fluid.CPUPlace()] * 2, build, False, collectives)


def planned(made):
    graph, _ = made.graph()
    return made.plan(graph, PlanKey((), frozenset({"x", "y"})))


@pytest.mark.parametrize("devices", [2, 3])
def test_flags_change_the_number_of_sums_but_no_bits(devices):
    def run(**values):
        with flags(**values):
            return train(net, feeds, devices)

    net, feeds = classifier(fluid.optimizer.Adam(0.01), sizes=SIZES), batches(3, rows=11)
    usual = run()
    found = {}
    for megabytes in (1e-6, 0.02, 8.0):
        other = run(fuse_parameter_memory_size=megabytes)
        assert_same_bits(usual, other)
        found[megabytes] = sums(other.compiled._engine.plan)
    assert found == {1e-6: 4, 0.02: 2, 8.0: 1}
    assert sums(usual.compiled._engine.plan) == 1  # far less than pays


def test_number_of_parameters_counts_too():
    with flags(fuse_parameter_memory_size=8.0, fuse_parameter_groups_size=3):
        assert sums(planned(compilation())) == 2


def test_compilation_carries_what_the_flags_were():
    with flags(fuse_parameter_memory_size=1e-6):
        made = pickle.loads(pickle.dumps(compilation("gang")))
    assert sums(planned(made)) == 4


@pytest.mark.parametrize("options", [{"mode": Reduce}, {"fuse_all_reduce_ops": False}], ids=str)
def test_flags_leave_alone_what_is_not_fused(options):
    usual = compilation(**options)
    with flags(fuse_parameter_memory_size=1e-6):
        assert compilation(**options).planning == usual.planning


def test_buckets_grow_with_the_latency():
    assert compilation().planning.bucket_bytes == THREADS.bucket_bytes
    assert compilation("tasks").planning.bucket_bytes == TASKS.bucket_bytes
    assert compilation("gang").planning.bucket_bytes == GANG.bucket_bytes
    for exchange in (THREADS, TASKS, GANG):
        transfer = exchange.bucket_bytes / exchange.bandwidth
        assert exchange.latency == pytest.approx(0.05 * transfer)
