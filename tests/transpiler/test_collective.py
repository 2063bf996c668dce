"""``transpiler.collective``: programs with operators that exchange values."""

import threading

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.exchange.party import part_all
from tests.engine.run.nets import batches, classifier, train
from tests.engine.run.trainers.pair import free_endpoint


def config(mode, collective_mode=None):
    made = fluid.DistributeTranspilerConfig()
    made.mode, made.collective_mode = mode, collective_mode
    return made


def transpiled(net, endpoints, rank, mode="nccl2", collective_mode=None):
    """A copy of the net's program for one of the trainers."""
    program = net.main.clone()
    transpiler = fluid.DistributeTranspiler(config(mode, collective_mode))
    there = {"trainers": ",".join(endpoints), "current_endpoint": endpoints[rank]}
    transpiler.transpile(rank, program=program, startup_program=net.startup, **there)
    return program


@pytest.fixture
def endpoints(monkeypatch):
    monkeypatch.setenv("DPEXEC_SECRET", "of this test")
    yield [str(free_endpoint()) for _ in range(2)]
    part_all()


def losses_of(run, feeds):
    """What two trainers, which run at once, get for their halves of batches; by step."""
    found = [[], []]

    def work(rank):
        for feed in feeds:
            half = {name: np.array_split(array, 2)[rank] for name, array in feed.items()}
            found[rank].append(run(rank, half))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [np.concatenate(pair) for pair in zip(*found, strict=True)]


@pytest.mark.parametrize("how", ["collective", "nccl2"])
def test_trainers_compute_what_one_process_does(endpoints, how):
    net = classifier(fluid.optimizer.Adam(0.01))
    feeds = batches(3)
    scopes = [fluid.Scope(), fluid.Scope()]
    exe = [fluid.Executor(fluid.CPUPlace()) for _ in scopes]
    programs = []
    for rank, scope in enumerate(scopes):
        exe[rank].run(net.startup, scope=scope)
        if how == "collective":
            programs.append(transpiled(net, endpoints, rank, how, "grad_allreduce"))
            continue
        build = fluid.BuildStrategy()
        build.num_trainers, build.trainer_id = 2, rank
        compiled = fluid.CompiledProgram(transpiled(net, endpoints, rank))
        programs.append(
            compiled.with_data_parallel(net.loss.name, build, places=fluid.cpu_places(1))
        )

    def run(rank, feed):
        return exe[rank].run(programs[rank], feed, [net.loss.name], scope=scopes[rank])[0]

    together = losses_of(run, feeds)
    alone = train(net, feeds, 2).losses
    np.testing.assert_array_equal(together, [np.array(loss) for loss in alone])


def test_test_programs_run_alone(endpoints):
    net = classifier()
    program = transpiled(net, endpoints, 0, "collective", "grad_allreduce")
    assert program.clone()._trainer_id == 0
    assert program.clone(for_test=True)._trainer_id is None


def test_what_is_not_supported_is_said(endpoints):
    net = classifier()
    with pytest.raises(EnforceNotMet, match="'sgd' is not supported; there are 'grad_all"):
        transpiled(net, endpoints, 0, "collective", "sgd")
    with pytest.raises(EnforceNotMet, match="mode 'ring' is not supported; there are 'pserver'"):
        transpiled(net, endpoints, 0, "ring")


def test_a_trainer_must_be_one_of_the_trainers(endpoints):
    transpiler = fluid.DistributeTranspiler(config("nccl2"))
    there = {"trainers": ",".join(endpoints), "current_endpoint": endpoints[0]}
    for rank in (-1, 1, 2):
        with pytest.raises(ValueError, match=f"must be number {rank}"):
            transpiler.transpile(rank, program=classifier().main, **there)
