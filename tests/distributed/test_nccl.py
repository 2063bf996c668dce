"""Workers whose simulated GPUs exchange values by NCCL."""

import itertools
import os
import signal

import numpy as np
import pytest

import dpexec as fluid
from tests.distributed.nets import NETS
from tests.distributed.test_gpus import expected, give_gpus, trained
from tests.engine.run.nets import AllReduce, Reduce, assert_same_bits, strategies
from tests.fakes.cupy import install


def give_own_gpu():
    give_gpus(1, slots=f"{os.getpid():x}")


def nccl_calls():
    """The groups of calls that a worker has made."""
    from dpexec.engine.core import places

    return places._cupy().cuda.nccl.done


def interrupt(how):
    """Let a worker get a signal in the middle of its second call of NCCL."""
    from tests.fakes.nccl_peers import Peer

    calls, go_on = itertools.count(), Peer._exchange

    def exchange(*args):
        if next(calls) == 1:
            os.kill(os.getpid(), how)
        return go_on(*args)

    Peer._exchange = exchange


@pytest.fixture
def gpus(pair, monkeypatch):
    """Two workers, each with a GPU of its own."""
    install(monkeypatch, 2)
    pair.run(give_own_gpu)
    yield pair
    pair.run(give_gpus, None)


@pytest.fixture
def mortal_gpus(mortals, monkeypatch):
    """The same with workers that a test may kill."""
    install(monkeypatch, 2)
    mortals.client.run(give_own_gpu)
    yield mortals
    mortals.wake()
    mortals.client.run(give_gpus, None)


def done_by(client):
    """What NCCL did; all workers must have made the same calls."""
    first, second = client.run(nccl_calls).values()
    assert first == second
    return sorted({name for group in first for name in group})


@pytest.mark.parametrize(
    ("name", "mode", "calls"),
    [
        ("mlp", AllReduce, ["allReduce"]),
        ("images", Reduce, ["broadcast", "reduce"]),
        ("word2vec", AllReduce, ["allReduce"]),  # the table's rows go through the host
    ],
    ids=str,
)
def test_same_bits(gpus, name, mode, calls):
    found = trained(name, gpus, 2, mode, collectives="gang")
    assert_same_bits(found, expected(name, 2))
    assert done_by(gpus) == calls
    assert "by NCCL" in found.compiled.plan.describe()


def test_replicas_of_a_worker_are_added_up_before(gpus):
    assert_same_bits(trained("mlp", gpus, 3, collectives="gang"), expected("mlp", 3))
    assert done_by(gpus) == ["allReduce"]


def test_several_steps_and_recorded_ones(gpus):
    for options in {"num_iteration_per_run": 2}, {"trace": True}:
        found = trained("mlp", gpus, 2, collectives="gang", **options)
        wanted = trained("mlp", "threads", 2, **options)
        assert_same_bits(found, wanted)


def test_a_flag_keeps_the_order_of_the_replicas(gpus, monkeypatch):
    monkeypatch.setenv("FLAGS_cudnn_deterministic", "1")
    found = trained("mlp", gpus, 2, collectives="gang")
    assert_same_bits(found, expected("mlp", 2))
    assert not done_by(gpus)
    assert "through the host: FLAGS_cudnn_deterministic" in found.compiled.plan.describe()


def test_an_error_of_one_replica_is_told_to_those_who_wait(gpus):
    net, (feed, *_) = NETS["mlp"]()
    build, execution = strategies(scheduler=gpus, native_kernels=False, collectives="gang")
    wrong = {**feed, "y": np.where(np.arange(len(feed["y"]))[:, None] == 10, 99, feed["y"])}
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CUDAPlace(0))
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=[fluid.CUDAPlace(0)] * 2
        )
        with pytest.raises(fluid.core.EnforceNotMet, match="cross_entropy"):
            exe.run(program, wrong, [net.loss])
        (loss,) = exe.run(program, feed, [net.loss])
    np.testing.assert_array_equal(loss, expected("mlp", 2).losses[0])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=lambda how: how.name)
def test_a_worker_that_is_lost_in_the_middle_changes_nothing(mortal_gpus, how):
    """The GPU of the other one waits for it, and would forever."""
    _, victim = mortal_gpus.addresses()
    mortal_gpus.will_stop(victim)
    mortal_gpus.client.run(interrupt, how, workers=[victim])
    options = {"collectives": "gang", "collective_timeout": 2}
    assert_same_bits(trained("mlp", mortal_gpus.client, 2, **options), expected("mlp", 2))
