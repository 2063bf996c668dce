"""A cluster gives the losses and parameters of threads, bit by bit."""

import numpy as np
import pytest
from distributed import Client

import dpexec as fluid
from tests.distributed.nets import NETS
from tests.engine.run.nets import AllReduce, Reduce, assert_same_bits, batches, classifier, train
from tests.guides import programs

both_modes = pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
every_net = pytest.mark.parametrize("name", NETS)
both_collectives = pytest.mark.parametrize("collectives", ["tasks", "gang"])


@pytest.fixture
def sockets(three):
    """Workers that take each other for other hosts."""

    def set_host(host):
        from dpexec.engine.exchange import rendezvous

        if host is None:
            rendezvous.host_id = rendezvous.original
        else:
            rendezvous.original, rendezvous.host_id = rendezvous.host_id, lambda: host

    three.run(set_host, "")
    yield three
    three.run(set_host, None)


@both_collectives
@both_modes
@every_net
def test_processes(client, expected, name, mode, collectives):
    devices = len(client.nthreads())
    run = train(*NETS[name](), devices, mode, scheduler=client, collectives=collectives)
    assert_same_bits(run, expected(name, devices))


@both_modes
@every_net
def test_gang_over_sockets(sockets, expected, name, mode):
    run = train(*NETS[name](), 3, mode, scheduler=sockets, collectives="gang")
    assert_same_bits(run, expected(name, 3))


@both_collectives
@both_modes
@pytest.mark.parametrize("name", ["mlp", "word2vec"])
def test_more_replicas_than_workers(pair, expected, name, mode, collectives):
    run = train(*NETS[name](), 3, mode, scheduler=pair, collectives=collectives)
    assert_same_bits(run, expected(name, 3))


@both_collectives
@both_modes
def test_fewer_sequences_than_replicas(pair, expected, mode, collectives):
    run = train(*NETS["sequences"](), 8, mode, scheduler=pair, collectives=collectives)
    assert_same_bits(run, expected("sequences", 8))


@both_collectives
@every_net
def test_several_steps_of_a_run(pair, name, collectives):
    net, (feed, *_) = NETS[name]()
    once = train(net, [feed] * 6, 2)
    options = {"collectives": collectives, "num_iteration_per_run": 3}
    run = train(net, [feed] * 2, 2, scheduler=pair, **options)
    np.testing.assert_array_equal(run.losses, [once.losses[2], once.losses[5]])
    for key, value in once.state.items():
        np.testing.assert_array_equal(run.state[key], value, err_msg=key)


@both_collectives
@both_modes
@pytest.mark.parametrize("name", ["mlp", "word2vec"])
def test_workers_of_one_process(expected, name, mode, collectives):
    with Client(
        n_workers=2, threads_per_worker=2, processes=False, dashboard_address=":0"
    ) as client:
        run = train(*NETS[name](), 3, mode, scheduler=client, collectives=collectives)
    assert_same_bits(run, expected(name, 3))


def test_the_guide(pair, capsys):
    program, recorded, _ = programs("docs/cluster.md")
    net, exe = classifier(), fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup)
    names = {"fluid": fluid, "main": net.main, "loss": net.loss, "exe": exe, "batch": batches(1)[0]}
    exec(program.replace("tcp://10.0.0.1:8786", pair.scheduler.address), names)
    with names["client"]:
        assert len(names["compiled"].graph.places) == 2
        exec(recorded, names)
        assert "What to change:" in capsys.readouterr().out
        exe.close()
