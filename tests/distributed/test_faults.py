"""Workers are killed, stopped, started and cut off: training goes on with the same bits."""

import os
import time

import dask
import numpy as np
import pytest

import dpexec as fluid
from dpexec.errors import ClusterError, SchedulerLostError, StateLostError
from tests.distributed.clusters import workers
from tests.distributed.faults import die, disturbed, fill_memory
from tests.distributed.nets import NETS
from tests.runtime.nets import (
    AllReduce,
    Reduce,
    assert_same_bits,
    train,
    word_batches,
    words,
)

STEPS = 6
COMMIT = "dpexec.runtime.versions:Versions.commit"
KERNELS = {
    "tasks": "dpexec.runtime.cluster_worker:run_steps",
    "gang": "dpexec.runtime.gang.members:run_steps",
}

both_collectives = pytest.mark.parametrize("collectives", ["tasks", "gang"])
both_modes = pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)


@pytest.fixture(scope="module")
def mended():
    """Two workers that are replaced when they are gone."""
    with workers(2) as found:
        yield found


@pytest.fixture
def pair(mended):
    """The same, complete."""
    mended.wait_for(2)
    return mended


@pytest.fixture(scope="module")
def undisturbed():
    """What two replicas on threads do in so many steps."""
    return train(*NETS["images"](STEPS), 2)


def survives(found, faults, mode, collectives, **options):
    """Train on the cluster while things go wrong."""
    net, feeds = NETS["images"](STEPS)
    options = {"scheduler": found.client, "collectives": collectives, **options}
    return train(net, disturbed(feeds, faults), 2, mode, **options)


@both_collectives
@pytest.mark.parametrize(("mode", "victim"), [(AllReduce, 0), (Reduce, 1)], ids=str)
def test_killed_between_steps(pair, undisturbed, mode, victim, collectives):
    lost = pair.addresses()[victim]
    run = survives(pair, {2: lambda: pair.lose(lost)}, mode, collectives)
    assert_same_bits(run, undisturbed)


@both_collectives
@both_modes
def test_killed_when_others_have_made_the_step(pair, undisturbed, mode, collectives):
    lost = pair.addresses()[1]
    run = survives(pair, {2: lambda: die(pair, lost, COMMIT)}, mode, collectives)
    assert_same_bits(run, undisturbed)
    assert lost not in pair.addresses()


@both_collectives
def test_killed_in_a_step(pair, undisturbed, collectives):
    lost = pair.addresses()[0]
    faults = {2: lambda: die(pair, lost, KERNELS[collectives], calls=3)}
    assert_same_bits(survives(pair, faults, Reduce, collectives), undisturbed)
    assert lost not in pair.addresses()


@both_collectives
@pytest.mark.parametrize(("mode", "calls"), [(AllReduce, 3), (Reduce, 1), (Reduce, 4)], ids=str)
def test_killed_in_a_run_of_several_steps(pair, mode, calls, collectives):
    net, (feed, *_) = NETS["images"]()
    once = train(net, [feed] * 8, 2)
    lost = pair.addresses()[1]
    faults = {1: lambda: die(pair, lost, COMMIT, calls)}
    options = {"collectives": collectives, "num_iteration_per_run": 4}
    run = train(net, disturbed([feed] * 2, faults), 2, mode, scheduler=pair.client, **options)
    np.testing.assert_array_equal(run.losses, [once.losses[3], once.losses[7]])
    for name, value in once.state.items():
        np.testing.assert_array_equal(run.state[name], value, err_msg=name)
    assert lost not in pair.addresses()


def test_restarted_by_its_nanny(undisturbed):
    with workers(2, restart=True) as found:

        def restart():
            found.client.restart_workers([found.addresses()[0]], timeout=30)

        assert_same_bits(survives(found, {2: restart}, Reduce, "gang"), undisturbed)


def test_too_much_memory(undisturbed):
    with workers(2, restart=True, memory_limit="700MB") as found:
        victim = found.addresses()[1]
        faults = {2: lambda: fill_memory(found, victim, COMMIT, 800)}
        assert_same_bits(survives(found, faults, AllReduce, "tasks"), undisturbed)
        assert victim not in found.wait_for(2)


@both_collectives
def test_stopped_worker_is_replaced_and_does_no_harm_when_it_goes_on(
    pair, undisturbed, collectives
):
    stopped = pair.addresses()[1]
    faults = {2: lambda: pair.stop(stopped), 4: lambda: pair.go_on(stopped)}
    run = survives(pair, faults, Reduce, collectives, collective_timeout=3)
    assert_same_bits(run, undisturbed)


@pytest.mark.parametrize(("mode", "collectives"), [(AllReduce, "gang"), (Reduce, "tasks")], ids=str)
def test_joining_worker_gets_replicas(undisturbed, mode, collectives):
    with workers(1) as found:

        def join():
            found.cluster.scale(2)
            found.wait_for(2)
            time.sleep(1.1)  # runs look who has joined once a second

        run = survives(found, {2: join}, mode, collectives)
        assert_same_bits(run, undisturbed)
        assert len(set(run.compiled._engine._cluster.address)) == 2


@both_collectives
def test_connection_to_the_scheduler_is_lost_and_comes_back(pair, undisturbed, collectives):
    connections = set()

    def cut():
        connections.add(pair.client.scheduler_comm.comm)
        pair.client.loop.add_callback(pair.client.scheduler_comm.comm.abort)

    run = survives(pair, {2: cut, 4: cut}, Reduce, collectives)
    assert_same_bits(run, undisturbed)
    assert len(connections) == 2
    assert pair.client.scheduler_comm.comm not in connections


@both_modes
def test_operator_that_fails_is_an_error_and_no_lost_worker(pair, mode):
    net, feeds = words(fluid.optimizer.Adam(0.01)), word_batches(3)
    run = train(net, feeds[:1], 2, mode, scheduler=pair.client)
    pids = set(pair.client.run(os.getpid).values())
    bad = {**feeds[1], "x": feeds[1]["x"].copy()}
    bad["x"][-1, 0] = 50  # on the last replica alone
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        with pytest.raises(fluid.core.EnforceNotMet, match=r"lookup_table_v2(.|\n)*nets\.py"):
            exe.run(run.compiled, feed=bad, fetch_list=[net.loss])
        losses = [exe.run(run.compiled, feed=f, fetch_list=[net.loss])[0] for f in feeds[1:]]
    np.testing.assert_array_equal(losses, train(net, feeds, 2).losses[1:])
    assert set(pair.client.run(os.getpid).values()) == pids


def test_state_that_nobody_has_is_an_error_that_names_checkpoints(pair):
    def lose_all():
        for address in pair.addresses():
            pair.lose(address)
        pair.wait_for(2)

    with pytest.raises(StateLostError, match=r"Checkpoints\.resume"):
        survives(pair, {2: lose_all}, Reduce, "tasks")


def test_no_worker_is_left():
    with workers(1) as found:
        lost = found.addresses()[0]
        faults = {1: lambda: found.lose(lost)}
        with pytest.raises(ClusterError, match="has no workers, and none has come for 3 s"):
            survives(found, faults, AllReduce, "tasks", collective_timeout=3)


def test_no_worker_answers():
    with workers(2) as found:

        def stop_all():
            for address in found.addresses():
                found.stop(address)

        with pytest.raises(ClusterError, match="has no workers, and none has come for 3 s"):
            survives(found, {2: stop_all}, AllReduce, "gang", collective_timeout=3)


def test_scheduler_that_ends_is_named():
    with dask.config.set({"distributed.comm.timeouts.connect": "2s"}), workers(2) as found:

        def end():
            found.cluster.sync(found.cluster.scheduler.close)

        with pytest.raises(SchedulerLostError, match=found.client.scheduler.address):
            survives(found, {2: end}, AllReduce, "tasks", collective_timeout=3)
