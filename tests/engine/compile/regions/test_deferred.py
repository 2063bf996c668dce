"""Code of loops is deferred until Python reads its numbers, and the order of its calls stays."""

import gc
import tracemalloc

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine import kernels

if not kernels.available():
    pytest.skip("numba is not installed", allow_module_level=True)

from dpexec.engine.compile.regions import deferred
from dpexec.engine.compile.regions.env import Env

layers = fluid.layers
SMALL = np.float32(1e-41)  # a denormal number


def numbers(*values):
    return np.array(values, "float32")


def test_copies_and_sums_wait_and_keep_their_order():
    waiting = deferred.DeferredCalls(Env())
    total, first, second = numbers(0, 0), numbers(SMALL, -0.0), numbers(SMALL, 3)
    waiting.copy(total, first)
    waiting.add(total, second)
    assert not total.any()
    waiting.finish()
    assert total.tolist() == [2 * SMALL, 3]
    waiting.copy(total, first)
    waiting.finish()
    assert np.signbit(total[1])


def test_what_there_is_no_kernel_for_is_done_at_once_and_behind_what_waits():
    waiting = deferred.DeferredCalls(Env())
    total, whole = numbers(1, 2), np.arange(2)
    waiting.add(total, numbers(1, 1))
    waiting.add(whole, whole)
    assert total.tolist() == [2, 3] and whole.tolist() == [0, 2]
    waiting.copy(total, numbers(7, 8, 9)[::2])
    assert total.tolist() == [7, 9]


def loop(condition, body):
    """What ``body`` makes of ones, again and again."""
    h = layers.fill_constant([2, 3], "float32", 1.0)
    (out,) = layers.while_loop(condition, body, [h])
    return out


def run(*fetch, feed=None):
    exe = fluid.Executor(fluid.CPUPlace())
    if fluid.default_startup_program().global_block().ops:
        exe.run(fluid.default_startup_program())
    return [np.array(it) for it in exe.run(feed=feed, fetch_list=list(fetch), return_numpy=False)]


def test_conditions_see_what_code_computed(fresh_programs):
    out = loop(lambda h: layers.reduce_sum(h) < 100.0, lambda h: [layers.scale(h, 2.0, bias=1.0)])
    assert run(out)[0].tolist() == [[31] * 3] * 2


def test_operators_without_code_see_what_code_computed(fresh_programs):
    def body(h):
        grown = layers.scale(layers.scale(h, 2.0), 1.0, bias=1.0)
        return [layers.elementwise_add(grown, layers.cast(layers.cast(grown, "int32"), "float32"))]

    out = loop(lambda h: layers.reduce_max(h) < 50.0, body)
    assert run(out)[0].tolist() == [[106] * 3] * 2  # 2 * (2 * h + 1), from 1: 6, 26, 106


def doubled(rows, hidden=4):
    """The gradient of a DynamicRNN that adds to one array of gradients twice a step."""
    fluid.default_startup_program().random_seed = 3
    x = fluid.data("x", [None, 5], "float32", lod_level=1)
    x.stop_gradient = False
    network = layers.DynamicRNN()
    with network.block():
        word = network.step_input(x)
        again = network.step_input(x)
        before = network.memory(shape=[hidden], value=0.1)
        after = layers.fc([word, again, before], hidden, act="tanh")
        network.update_memory(before, after)
        network.output(after)
    last = layers.sequence_last_step(network())
    loss = layers.mean(last)
    params = fluid.default_main_program().all_parameters()
    grads = fluid.gradients(loss, [x, *params])
    lod = fluid.create_lod_tensor(rows, [[4, 1, 3, 2]], fluid.CPUPlace())
    return [loss, *grads], {"x": lod}


def test_how_much_waits_changes_no_bits(fresh_programs, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(10, 5)).astype("float32")
    fetch, feed = doubled(rows)
    found = run(*fetch, feed=feed)
    monkeypatch.setattr(deferred, "_CALLS", 1)
    for ours, theirs in zip(found, run(*fetch, feed=feed), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_recording_changes_no_bits(fresh_programs):
    rows = np.random.default_rng(0).normal(size=(10, 5)).astype("float32")
    fetch, feed = doubled(rows)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    found = []
    for traced in (False, True):
        execution = fluid.ExecutionStrategy()
        execution.trace = traced
        program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
            loss_name=fetch[0].name, exec_strategy=execution, places=fluid.cpu_places(1)
        )
        found.append(exe.run(program, feed=feed, fetch_list=fetch, return_numpy=False))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(np.array(ours), np.array(theirs))


def test_arrays_of_rounds_are_freed_without_the_garbage_collector(fresh_programs):
    rows = np.random.default_rng(0).normal(size=(10, 5)).astype("float32")
    fetch, feed = doubled(rows, hidden=200)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    for _ in range(3):
        exe.run(feed=feed, fetch_list=fetch[:1])
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(3):
            exe.run(feed=feed, fetch_list=fetch[:1])
        assert tracemalloc.get_traced_memory()[0] < 200 * 200 * 4
    finally:
        tracemalloc.stop()
        gc.enable()
