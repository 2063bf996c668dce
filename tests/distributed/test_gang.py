"""Gangs give the bits of threads, fail as one, and leave nothing behind."""

import gc
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

import dpexec as fluid
from dpexec.runtime.gang.wire import GangError
from tests.runtime.nets import (
    AllReduce,
    Net,
    Reduce,
    assert_same_bits,
    batches,
    classifier,
    persistables,
    train,
    word_batches,
    words,
)


def images() -> Net:
    """A convolution with batch norm, pooling and a classifier."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 3, 8, 8], "float32")
        y = fluid.data("y", [None, 1], "int64")
        hidden = fluid.layers.conv2d(x, 8, 3, padding=1, bias_attr=False)
        hidden = fluid.layers.batch_norm(hidden, act="relu")
        hidden = fluid.layers.pool2d(hidden, 2, pool_stride=2)
        prediction = fluid.layers.fc(hidden, 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        test = main.clone(for_test=True)
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return Net(main, startup, loss, test, prediction)


def image_batches(steps):
    """Batches whose rows do not divide evenly."""
    rng = np.random.RandomState(4)
    return [
        {
            "x": rng.randn(11, 3, 8, 8).astype("float32"),
            "y": rng.randint(0, 3, (11, 1)).astype("int64"),
        }
        for _ in range(steps)
    ]


NETS = {
    "mlp": lambda: (  # 0.5 MB: its gradients are divided, those of the small nets are not
        classifier(fluid.optimizer.Adam(0.01), sizes=(8, 300, 400, 3), dropout=0.2),
        batches(3, rows=11),
    ),
    "images": lambda: (images(), image_batches(3)),
    "words": lambda: (words(), word_batches(3)),
}


def cluster_of(workers):
    return LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0"
    )


@pytest.fixture(scope="module")
def pair():
    with cluster_of(2) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="module")
def three():
    with cluster_of(3) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture(params=[2, 3])
def client(request):
    return request.getfixturevalue({2: "pair", 3: "three"}[request.param])


@pytest.fixture
def sockets(client):
    """Workers that take each other for other hosts."""

    def set_host(host):
        from dpexec.runtime.gang import rendezvous

        if host is None:
            rendezvous.host_id = rendezvous.original
        else:
            rendezvous.original, rendezvous.host_id = rendezvous.host_id, lambda: host

    client.run(set_host, "")
    yield client
    client.run(set_host, None)


@pytest.fixture(scope="module")
def expected():
    """What the threads do, once per net and number of devices."""
    known = {}

    def find(name, devices):
        if (name, devices) not in known:
            known[name, devices] = train(*NETS[name](), devices, AllReduce)
        return known[name, devices]

    return find


def gang(name, client, devices, mode, **options):
    net, feeds = NETS[name]()
    return train(net, feeds, devices, mode, scheduler=client, collectives="gang", **options)


def devices_of(client):
    return len(client.scheduler_info(n_workers=-1)["workers"])


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
@pytest.mark.parametrize("name", NETS)
def test_gang_has_the_bits_of_threads(client, expected, name, mode):
    devices = devices_of(client)
    assert_same_bits(gang(name, client, devices, mode), expected(name, devices))


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
@pytest.mark.parametrize("name", NETS)
def test_sockets_give_the_same_bits(sockets, expected, name, mode):
    devices = devices_of(sockets)
    assert_same_bits(gang(name, sockets, devices, mode), expected(name, devices))


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
@pytest.mark.parametrize("name", ["mlp", "words"])
def test_more_replicas_than_workers(pair, expected, name, mode):
    assert_same_bits(gang(name, pair, 3, mode), expected(name, 3))


@pytest.mark.parametrize("name", NETS)
def test_several_steps_of_a_run(pair, name):
    net, (feed, *_) = NETS[name]()
    once = train(net, [feed] * 6, 2)
    run = train(net, [feed] * 2, 2, scheduler=pair, collectives="gang", num_iteration_per_run=3)
    np.testing.assert_array_equal(run.losses, [once.losses[2], once.losses[5]])
    for key, value in once.state.items():
        np.testing.assert_array_equal(run.state[key], value, err_msg=key)


def test_workers_of_one_process(expected):
    with Client(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as client:
        assert_same_bits(gang("mlp", client, 2, AllReduce), expected("mlp", 2))
        assert_same_bits(gang("words", client, 2, Reduce), expected("words", 2))


def test_recording_changes_no_bits_and_says_who_did_what(pair, expected):
    run = gang("mlp", pair, 2, AllReduce, trace=True)
    assert_same_bits(run, expected("mlp", 2))
    trace = run.compiled.trace
    assert {event.key for event in trace if event.kind == "task"} == {
        task["key"] for task in trace.graph["tasks"]
    }
    assert len({event.args["worker"] for event in trace if event.kind == "task"}) == 2


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_failed_operator_ends_the_step_everywhere(three, mode):
    net, feeds = words(fluid.optimizer.Adam(0.01)), word_batches(3)
    run = train(net, feeds[:1], 3, mode, scheduler=three, collectives="gang")
    bad = {"x": feeds[1]["x"].copy(), "y": feeds[1]["y"]}
    bad["x"][-1, 0] = 50  # on the last replica alone
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        with pytest.raises(fluid.core.EnforceNotMet, match=r"lookup_table_v2(.|\n)*nets\.py"):
            exe.run(run.compiled, feed=bad, fetch_list=[net.loss])
        state = persistables(net.main, run.scope)
        losses = [exe.run(run.compiled, feed=f, fetch_list=[net.loss])[0] for f in feeds[1:]]
    for name, value in run.state.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)
    np.testing.assert_array_equal(losses, train(net, feeds, 3).losses[1:])


def test_nan_ends_the_step_everywhere(pair):
    net, feeds = classifier(fluid.optimizer.Momentum(0.1, 0.9), batch_norm=True), batches(2)
    run = train(net, feeds[:1], 2, scheduler=pair, collectives="gang")
    bad = {**feeds[1], "x": feeds[1]["x"].copy()}
    bad["x"][-1, 0] = np.inf
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        fluid.set_flags({"FLAGS_check_nan_inf": True})
        try:
            with pytest.raises(fluid.core.EnforceNotMet, match=r"find nan or inf(.|\n)*nets\.py"):
                exe.run(run.compiled, feed=bad, fetch_list=[net.loss])
        finally:
            fluid.set_flags({"FLAGS_check_nan_inf": False})
        loss = exe.run(run.compiled, feed=feeds[1], fetch_list=[net.loss])[0]
    np.testing.assert_array_equal(loss, train(net, feeds, 2).losses[1])


def mapped():
    """How often a process has memory of a gang mapped or open."""
    gc.collect()
    files = [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    return "".join([*files, Path("/proc/self/maps").read_text()]).count("dpexec-gang")


def connections():
    """How many members came in at a door on this host and are still connected, and open doors."""
    return Path("/proc/net/unix").read_text().count("@dpexec-")


def test_nothing_stays_open(three):
    net, feeds = NETS["mlp"]()
    dropped = train(net, feeds[:1], 3, scheduler=three, collectives="gang")
    before = connections()
    del dropped
    gc.collect()
    run = train(net, feeds[:1], 3, scheduler=three, collectives="gang")
    assert connections() == before  # a new gang makes workers forget those that nobody needs
    held = three.run(mapped)
    run.compiled._engine._cluster.close()
    assert connections() == before - 3
    assert all(count < held[worker] for worker, count in three.run(mapped).items())


def test_silent_worker_is_named(pair):
    net, feeds = NETS["mlp"]()
    run = train(net, feeds[:1], 2, scheduler=pair, collectives="gang", collective_timeout=1)
    address = run.compiled._engine._cluster.address[1]
    pid = pair.run(os.getpid)[address]
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        os.kill(pid, signal.SIGSTOP)
        awake = threading.Timer(4, os.kill, (pid, signal.SIGCONT))
        awake.start()
        try:
            with pytest.raises(
                GangError, match=rf"{address} \(replica 1\).*1 s.*step 1, .*\w+@GRAD"
            ):
                exe.run(run.compiled, feed=feeds[1], fetch_list=[net.loss])
        finally:
            awake.join()


def test_lost_worker_is_named_and_leaves_nothing():
    with cluster_of(2) as cluster, Client(cluster) as client:
        net, feeds = NETS["mlp"]()
        run = train(net, feeds[:1], 2, scheduler=client, collectives="gang", collective_timeout=5)
        survivor, lost = run.compiled._engine._cluster.address

        def die():
            from dpexec.runtime.gang import group

            def and_die(*args):
                os.kill(os.getpid(), signal.SIGKILL)

            group._Divided.run = and_die

        client.run(die, workers=[lost])
        with (
            fluid.scope_guard(run.scope),
            pytest.raises(GangError, match=rf"{lost} \(replica 1\) is gone.*@GRAD"),
        ):
            fluid.Executor(fluid.CPUPlace()).run(run.compiled, feed=feeds[1], fetch_list=[net.loss])
        assert client.run(mapped, workers=[survivor]) == {survivor: 0}
