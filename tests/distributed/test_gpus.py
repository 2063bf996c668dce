"""Replicas on simulated GPUs of workers have the bits of simulated GPUs of one process."""

import functools
from contextlib import contextmanager

import numpy as np
import pytest

import dpexec as fluid
from tests.distributed.nets import NETS
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    Run,
    assert_same_bits,
    persistables,
    strategies,
    train,
)
from tests.fakes.cupy import install

both_collectives = pytest.mark.parametrize("collectives", ["tasks", "gang"])


def give_gpus(count, capability="90", slots="0000:00"):
    """Let a worker find so many GPUs in such slots; None lets it look for real ones again."""
    from dpexec.engine.core import places
    from dpexec.engine.kernels.gpu import cublas
    from tests.fakes.cupy import make_cupy

    if not hasattr(places, "kept"):
        places.kept = places._cupy, places.get_cuda_device_count
    places._cupy, places.get_cuda_device_count = places.kept
    if count is not None:
        module = make_cupy(count)
        module.machine.capability, module.machine.slots = capability, slots
        places._cupy, places.get_cuda_device_count = lambda: module, lambda: count
        cublas.library = lambda cupy: cupy.cuda.cublas.functions


@contextmanager
def with_gpus(client):
    """Let every worker find a GPU of its own, as dask-cuda starts them."""
    client.run(give_gpus, 1)
    try:
        yield client
    finally:
        client.run(give_gpus, None)


@pytest.fixture
def gpus(pair, monkeypatch):
    """Two workers with a GPU each; the client sees two."""
    install(monkeypatch, 2)
    with with_gpus(pair):
        yield pair


@pytest.fixture
def mortal_gpus(mortals, monkeypatch):
    """The same with workers that a test may kill."""
    install(monkeypatch, 2)
    with with_gpus(mortals.client):
        yield mortals


def trained(name, scheduler, devices, mode=AllReduce, steps=3, **options):
    options = {"native_kernels": False, "scheduler": scheduler, **options}
    return train(*NETS[name](steps), devices, mode, fluid.CUDAPlace(0), **options)


@functools.cache
def expected(name, devices):
    return trained(name, "threads", devices)


@pytest.mark.parametrize(
    ("name", "mode", "collectives"),
    [
        ("images", Reduce, "gang"),
        ("mlp", AllReduce, "tasks"),
        ("sequences", AllReduce, "gang"),
        ("word2vec", Reduce, "tasks"),
    ],
    ids=str,
)
def test_processes(gpus, name, mode, collectives):
    assert_same_bits(trained(name, gpus, 2, mode, collectives=collectives), expected(name, 2))


@both_collectives
def test_replicas_share_a_gpu(gpus, collectives):
    run = trained("mlp", gpus, 3, Reduce, collectives=collectives)
    assert_same_bits(run, expected("mlp", 3))


@both_collectives
def test_a_lost_worker_changes_nothing(mortal_gpus, collectives):
    """The moments of the lost replica come from its mirror, which is on the host."""
    net, feeds = NETS["mlp"]()
    build, execution = strategies(
        Reduce, scheduler=mortal_gpus.client, native_kernels=False, collectives=collectives
    )
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CUDAPlace(0))
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=[fluid.CUDAPlace(0)] * 2
        )
        first = exe.run(program, feeds[0], [net.loss])
        mortal_gpus.lose(program._engine._cluster.address[1])
        losses = [*first, *(exe.run(program, feed, [net.loss])[0] for feed in feeds[1:])]
        state = persistables(net.main, fluid.global_scope())
    assert_same_bits(Run(losses, state, None, None), expected("mlp", 2))


@both_collectives
def test_recorded_steps_have_the_times_of_the_gpus(gpus, collectives):
    run = trained("mlp", gpus, 2, collectives=collectives, trace=True)
    assert_same_bits(run, expected("mlp", 2))
    tasks = [event for event in run.compiled.trace if event.kind == "task"]
    assert len({event.args["worker"] for event in tasks}) == 2


def test_what_workers_made_is_used_on_a_gpu_of_the_client(gpus):
    net, (feed, *_) = NETS["mlp"]()
    losses = []
    for run in (trained("mlp", gpus, 2), trained("mlp", "threads", 2)):
        with fluid.scope_guard(run.scope):
            losses += fluid.Executor(fluid.CUDAPlace(0)).run(net.test, feed, [net.loss])
    np.testing.assert_array_equal(*losses)


def test_feeds_that_lie_on_a_gpu_of_the_client(gpus):
    net, feeds = NETS["mlp"]()
    build, execution = strategies(scheduler=gpus, native_kernels=False)
    losses = []
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CUDAPlace(0))
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution
        )
        for feed in feeds:
            tensors = {name: fluid.LoDTensor() for name in feed}
            for name, tensor in tensors.items():
                tensor.set(feed[name], fluid.CUDAPlace(1))
            losses += exe.run(program, tensors, [net.loss])
    np.testing.assert_array_equal(losses, expected("mlp", 2).losses)


def test_a_worker_without_a_gpu_is_named(gpus):
    gpus.run(give_gpus, 0)
    with pytest.raises(RuntimeError, match=r"on GPUs, but worker tcp://.*CUDAPlace\(0\) does"):
        trained("mlp", gpus, 2)


def test_a_gpu_that_is_too_old_is_named(gpus):
    gpus.run(give_gpus, 1, "75")
    with pytest.raises(RuntimeError, match=r"worker tcp://.*capability 8\.0, .* has 7\.5"):
        trained("mlp", gpus, 2, product_precision="tf32")


def graphs_launched():
    from dpexec.engine.core import places

    return [name for _, _, name in places._cupy().machine.log].count("graph")


@pytest.mark.parametrize(
    ("name", "mode", "collectives"),
    [("mlp", Reduce, "tasks"), ("mlp", AllReduce, "gang"), ("images", Reduce, "gang")],
    ids=str,
)
def test_graphs_give_the_same_bits(gpus, name, mode, collectives):
    options = {"collectives": collectives, "allow_cuda_graph_capture": True}
    assert_same_bits(trained(name, gpus, 2, mode, **options), expected(name, 2))
    # two steps of three are captured: at least forward and backward, and the updates
    assert all(count >= 4 for count in gpus.run(graphs_launched).values())


def test_graphs_look_at_labels_before_updates(gpus):
    net, feeds = NETS["mlp"](4)
    build, execution = strategies(
        scheduler=gpus, native_kernels=False, allow_cuda_graph_capture=True
    )
    feeds[2] = {**feeds[2], "y": np.full_like(feeds[2]["y"], 99)}
    losses = []
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CUDAPlace(0))
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=[fluid.CUDAPlace(0)] * 2
        )
        losses += (exe.run(program, feed, [net.loss])[0] for feed in feeds[:2])
        with pytest.raises(fluid.core.EnforceNotMet, match="cross_entropy"):
            exe.run(program, feeds[2], [net.loss])
        losses += exe.run(program, NETS["mlp"]()[1][2], [net.loss])
    np.testing.assert_array_equal(losses, expected("mlp", 2).losses)
