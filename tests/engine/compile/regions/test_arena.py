"""Memory of compiled code: values of the same time do not overlap, others share places."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpexec as fluid
from dpexec.engine import kernels
from dpexec.engine.compile.regions.arena import places_for
from tests.engine.run.nets import batches, classifier, flags, strategies

lives = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: tuple(sorted(pair)))
CPU = fluid.CPUPlace()


@given(st.lists(st.tuples(st.integers(0, 500), lives)))
def test_what_lives_at_one_time_has_different_places(items):
    places, nbytes = places_for(items)
    assert all(at % 64 == 0 for at in places)
    placed = [(at, size, *life) for at, (size, life) in zip(places, items, strict=True)]
    assert max((at + size for at, size, *_ in placed), default=0) == nbytes
    for one, other in itertools.combinations(placed, 2):
        together = one[2] <= other[3] and other[2] <= one[3]
        if together and one[1] and other[1]:
            assert one[0] + one[1] <= other[0] or other[0] + other[1] <= one[0]


def test_values_that_live_in_turn_share_a_place():
    assert places_for([(64, (0, 1)), (640, (2, 3)), (64, (1, 2))]) == ([0, 0, 640], 704)


def trained(megabytes, fetch=(), devices=2):
    """Losses and fetches of steps that are cut into tasks, and the engine."""
    net, scope = classifier(fluid.optimizer.Adam(0.01), sizes=(8, 256, 256, 3)), fluid.Scope()
    fluid.Executor(CPU).run(net.startup, scope=scope)
    build, execution = strategies(fluid.BuildStrategy.ReduceStrategy.AllReduce)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=[CPU] * devices
    )
    exe = fluid.Executor(CPU)
    with flags(fuse_parameter_memory_size=megabytes):
        found = [exe.run(compiled, f, [net.loss, *fetch], scope=scope) for f in batches(4, 64)]
    return found, compiled._engine


def assert_same(one, other):
    for a, b in zip(itertools.chain(*one), itertools.chain(*other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(not kernels.available(), reason="needs numba")
@pytest.mark.parametrize("fetch", [(), ("fc_0.tmp_2", "fc_1.w_0@GRAD")])
def test_tasks_of_a_device_share_memory_and_keep_their_bits(fetch):
    whole, one = trained(1024.0, fetch)
    cut, several = trained(0.001, fetch)
    assert len(several.plan.tasks) > len(one.plan.tasks)
    assert_same(whole, cut)
    kinds = {use for use, *_ in several.bindings.memory.sizes}
    assert kinds == {"arena"}  # the first replica's gradients became the sums
    code = several.runner.binding.code
    for home, chain in code.chains.items():
        tasks = [code.codes[number] for number in chain]
        apart = sum(task.inner_bytes + sum(task.lasting.values()) for task in tasks)
        assert len(tasks) > 2 and code.arenas[home].nbytes < 0.95 * apart


@pytest.mark.skipif(not kernels.available(), reason="needs numba")
def test_first_values_take_no_memory_of_code():
    net, exe = classifier(fluid.optimizer.Adam(0.01), sizes=(8, 256, 3)), fluid.Executor(CPU)
    exe.run(net.startup, scope=fluid.Scope())
    (engine,) = exe._engines.values()
    assert engine.plan.initializes
    assert engine.bindings.memory.nbytes == 0
