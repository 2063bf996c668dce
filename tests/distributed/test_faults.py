"""Workers that are killed, stopped, or cut off: training continues with the same bits."""

import os
import threading
import time

import dask
import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.cluster.client import recovery, replica_group
from dpexec.engine.cluster.client.replica_group import ReplicaGroup
from dpexec.engine.core.errors import ClusterError, SchedulerLostError, StateLostError
from dpexec.engine.dask.reach import unreachable
from tests.distributed.clusters import Workers, workers
from tests.distributed.faults import die, disturbed, fill_memory
from tests.distributed.nets import NETS
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    assert_same_bits,
    strategies,
    train,
    word_batches,
    words,
)
from tests.waiting import until

STEPS = 6
COMMIT = "dpexec.engine.cluster.worker.versions:Versions.commit"
WORK = {
    "tasks": ("dpexec.engine.cluster.worker.gpus:run_steps", 3),
    "gang": ("dpexec.engine.threads.thread_team:ThreadTeam.run", 1),
}
"""What works on a step, and at which call it is in the middle of it."""

both_collectives = pytest.mark.parametrize("collectives", ["tasks", "gang"])
both_modes = pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)


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
def test_killed_between_steps(mortals, undisturbed, mode, victim, collectives):
    lost = mortals.addresses()[victim]
    run = survives(mortals, {2: lambda: mortals.lose(lost)}, mode, collectives)
    assert_same_bits(run, undisturbed)


@both_collectives
@both_modes
def test_killed_when_others_have_made_the_step(mortals, undisturbed, mode, collectives):
    lost = mortals.addresses()[1]
    run = survives(mortals, {2: lambda: die(mortals, lost, COMMIT)}, mode, collectives)
    assert_same_bits(run, undisturbed)
    assert lost not in mortals.addresses()


@both_collectives
def test_killed_in_a_step(mortals, undisturbed, collectives):
    lost = mortals.addresses()[0]
    faults = {2: lambda: die(mortals, lost, *WORK[collectives])}
    assert_same_bits(survives(mortals, faults, Reduce, collectives), undisturbed)
    assert lost not in mortals.addresses()


def is_home():
    """Whether replicas live on this worker."""
    from dpexec.engine.cluster.worker.worker import _workers

    return any(replicas.stores for replicas in _workers.values())


@both_modes
def test_killed_while_only_rows_of_a_table_are_copied(mortals, mode):
    """Once in a step, and once when others have made it: they go back to what the step left."""
    net, feeds = words(vocabulary=90), word_batches(16, 3, 90)
    lost = []

    def kill(*where):
        mortals.wait_for(2)
        homes = mortals.client.run(is_home)  # replicas may not have moved to a new worker yet
        lost.append(next(worker for worker, is_one in homes.items() if is_one))
        die(mortals, lost[-1], *where)

    faults = {6: lambda: kill(*WORK["gang"]), 12: lambda: kill(COMMIT)}
    options = {"scheduler": mortals.client, "collectives": "gang"}
    run = train(net, disturbed(feeds, faults), 2, mode, **options)
    assert_same_bits(run, train(net, feeds, 2))
    assert {*lost}.isdisjoint(mortals.addresses())


@both_collectives
@pytest.mark.parametrize(("mode", "calls"), [(AllReduce, 3), (Reduce, 1), (Reduce, 4)], ids=str)
def test_killed_in_a_run_of_several_steps(mortals, mode, calls, collectives):
    net, (feed, *_) = NETS["images"]()
    once = train(net, [feed] * 8, 2)
    lost = mortals.addresses()[1]
    faults = {1: lambda: die(mortals, lost, COMMIT, calls)}
    options = {"collectives": collectives, "num_iteration_per_run": 4}
    run = train(net, disturbed([feed] * 2, faults), 2, mode, scheduler=mortals.client, **options)
    np.testing.assert_array_equal(run.losses, [once.losses[3], once.losses[7]])
    for name, value in once.state.items():
        np.testing.assert_array_equal(run.state[name], value, err_msg=name)
    assert lost not in mortals.addresses()


@pytest.fixture(scope="module")
def nursed():
    """Two workers that their nannies start again, with little memory."""
    with workers(2, restart=True, memory_limit="700MB") as found:
        yield found


def test_restarted_by_its_nanny(nursed, undisturbed):
    def restart():
        nursed.client.restart_workers([nursed.addresses()[0]], timeout=30)

    assert_same_bits(survives(nursed, {2: restart}, Reduce, "gang"), undisturbed)


def test_too_much_memory(nursed, undisturbed):
    victim = nursed.wait_for(2)[1]
    faults = {2: lambda: fill_memory(nursed, victim, COMMIT, 800)}
    assert_same_bits(survives(nursed, faults, AllReduce, "tasks"), undisturbed)
    assert victim not in nursed.wait_for(2)


@both_collectives
def test_stopped_worker_is_replaced_and_does_no_harm_when_it_goes_on(
    mortals, undisturbed, monkeypatch, collectives
):
    known, regroup = [], ReplicaGroup.regroup

    def spy(group, lost, allowed):
        known.append(set(lost))
        regroup(group, lost, allowed)

    monkeypatch.setattr(ReplicaGroup, "regroup", spy)
    stopped = mortals.addresses()[1]
    faults = {2: lambda: mortals.stop(stopped), 4: lambda: mortals.go_on(stopped)}
    run = survives(mortals, faults, Reduce, collectives, collective_timeout=3)
    assert_same_bits(run, undisturbed)
    assert known[0] == {stopped}  # who is known to be silent is not waited for again


@pytest.mark.parametrize(("mode", "collectives"), [(AllReduce, "gang"), (Reduce, "tasks")], ids=str)
def test_joining_worker_gets_replicas_when_it_has_loaded_what_steps_need(
    mortals, undisturbed, monkeypatch, mode, collectives
):
    """Until then the others go on without it."""
    monkeypatch.setattr(replica_group, "_LOOK", 0.0)  # every run looks who has joined
    mine, begun, moved = [], [], []  # those of earlier tests may still be there
    init, rehearse, move = ReplicaGroup.__init__, ReplicaGroup._rehearse, ReplicaGroup._move

    class Rehearsal:
        def __init__(self, future):
            self.future, self.awaited = future, False

        def done(self):
            return self.awaited and self.future.done()

    def make(group, *how):
        mine.append(group)
        init(group, *how)

    def begin(group, worker):
        if group not in mine:
            return rehearse(group, worker)
        begun.append(Rehearsal(rehearse(group, worker)))
        return begun[-1]

    def note(group, homes, *how):
        if group in mine:
            moved.append((len(homes.workers), all(rehearsal.done() for rehearsal in begun)))
        move(group, homes, *how)

    def load():
        assert len(begun) == 1 and not moved
        begun[0].awaited = True
        assert begun[0].future.result(60) is None

    monkeypatch.setattr(ReplicaGroup, "__init__", make)
    monkeypatch.setattr(ReplicaGroup, "_rehearse", begin)
    monkeypatch.setattr(ReplicaGroup, "_move", note)
    mortals.lose(mortals.addresses()[0])
    faults = {2: lambda: mortals.wait_for(2), 4: load}
    assert_same_bits(survives(mortals, faults, mode, collectives), undisturbed)
    assert moved == [(2, True)]


def test_worker_that_has_ended_is_not_waited_for_by_others_that_ask_it(mortals):
    """Dask tries to reach it for half a minute."""
    one, ended = mortals.addresses()
    mortals.lose(ended)
    began = time.monotonic()
    found = mortals.client.run(unreachable, [one, ended], 25.0, workers=[one])
    assert found[one].keys() == {ended}
    assert "no answer" not in found[one][ended]
    assert time.monotonic() - began < 20


@both_collectives
def test_connection_to_the_scheduler_is_lost_and_comes_back(mortals, undisturbed, collectives):
    connections = set()

    def is_new():
        held = mortals.client.scheduler_comm
        return held is not None and not held.comm.closed() and held.comm not in connections

    def cut():
        until(is_new)  # steps of a gang go on without the scheduler
        connections.add(mortals.client.scheduler_comm.comm)
        mortals.client.loop.add_callback(mortals.client.scheduler_comm.comm.abort)

    run = survives(mortals, {2: cut, 4: cut}, Reduce, collectives)
    until(is_new)
    assert_same_bits(run, undisturbed)
    assert len(connections) == 2
    assert mortals.client.scheduler_comm.comm not in connections


@both_collectives
@both_modes
def test_operator_that_fails_is_an_error_and_no_lost_worker(mortals, mode, collectives):
    net, feeds = words(fluid.optimizer.Adam(0.01)), word_batches(3)
    options = {"scheduler": mortals.client, "collectives": collectives}
    run = train(net, feeds[:1], 2, mode, **options)
    pids = set(mortals.client.run(os.getpid).values())
    bad = {**feeds[1], "x": feeds[1]["x"].copy()}
    bad["x"][-1, 0] = 50  # on the last replica alone
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        with pytest.raises(fluid.core.EnforceNotMet, match=r"lookup_table_v2(.|\n)*nets\.py"):
            exe.run(run.compiled, feed=bad, fetch_list=[net.loss])
        losses = [exe.run(run.compiled, feed=f, fetch_list=[net.loss])[0] for f in feeds[1:]]
    np.testing.assert_array_equal(losses, train(net, feeds, 2).losses[1:])
    assert set(mortals.client.run(os.getpid).values()) == pids


@pytest.mark.parametrize(("mode", "collectives"), [(AllReduce, "auto"), (Reduce, "tasks")], ids=str)
def test_second_kill_moments_later_loses_nothing(mortals, undisturbed, mode, collectives):
    """While one worker is left, the client has a copy of what nobody else could mirror."""
    first, second = mortals.addresses()

    def lose_the_other():
        mortals.lose(second)
        mortals.wait_for(2)

    faults = {2: lambda: mortals.lose(first), 4: lose_the_other}
    assert_same_bits(survives(mortals, faults, mode, collectives), undisturbed)


def test_the_last_worker_may_be_lost_while_replicas_move_from_it(mortals, undisturbed):
    """One of them has moved, the other has no mirror yet: the client still has its copy."""
    first, second = mortals.addresses()

    def lose_the_other_while_it_gives():
        mortals.wait_for(2)
        die(mortals, second, "dpexec.engine.cluster.worker.state:values_on", 3)

    faults = {2: lambda: mortals.lose(first), 4: lose_the_other_while_it_gives}
    assert_same_bits(survives(mortals, faults, Reduce, "auto"), undisturbed)


def test_the_last_worker_may_be_lost_in_the_first_step(mortals, undisturbed):
    """The other one was lost when it took the first values, of which the client keeps a copy."""
    first, second = mortals.addresses()

    def lose_both():
        die(mortals, second, "dpexec.engine.cluster.worker.state:store")
        die(mortals, first, COMMIT)
        comes.start()

    comes = threading.Timer(1.0, mortals.wait_for, (2,))
    assert_same_bits(survives(mortals, {0: lose_both}, Reduce, "gang"), undisturbed)
    comes.join()
    assert {first, second}.isdisjoint(mortals.addresses())


def test_the_last_worker_may_be_lost_if_the_other_was_so_before_the_first_step(
    mortals, undisturbed
):
    """A run that begins on one worker, as another one has just been lost, has copies, too."""
    first, second = mortals.addresses()

    def replace():
        mortals.lose(second)
        mortals.wait_for(2)

    die(mortals, first, "dpexec.engine.cluster.worker.state:require_gpu")
    assert_same_bits(survives(mortals, {2: replace}, Reduce, "auto"), undisturbed)


def test_what_is_written_while_one_worker_is_left_is_kept(mortals):
    """It is part of the copy that the client has, and reaches the worker that comes then."""
    net, feeds = NETS["images"](STEPS)
    first, second = mortals.addresses()

    def losses(where, faults):
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, *strategies(Reduce, scheduler=where), places=fluid.cpu_places(2)
        )

        def write():
            rate = next(n for n in net.main.global_block().vars if n.startswith("learning_rate"))
            scope.find_var(rate).get_tensor().set(np.array([0.02], "float32"), fluid.CPUPlace())

        exe.run(net.startup, scope=scope)
        found = []
        for step, feed in enumerate(disturbed(feeds, faults)):
            if step == 4:
                write()
            found += exe.run(compiled, feed=feed, fetch_list=[net.loss], scope=scope)
        return [loss.tolist() for loss in found]

    def lose_the_other_soon():
        die(mortals, second, *WORK["gang"])
        comes.start()

    comes = threading.Timer(1.0, mortals.wait_for, (2,))
    faults = {2: lambda: mortals.lose(first), 4: lose_the_other_soon}
    assert losses(mortals.client, faults) == losses("threads", {})
    comes.join()


def test_rolling_restarts_lose_nothing(nursed, undisturbed):
    """All workers, one by one, with a step between them."""

    def restart(number):
        found = nursed.wait_for(2)
        nursed.client.restart_workers([found[number]], timeout=30)

    faults = {1 + number: lambda n=number: restart(n % 2) for number in range(4)}
    assert_same_bits(survives(nursed, faults, Reduce, "auto"), undisturbed)


def test_state_that_nobody_has_is_an_error_that_names_checkpoints(mortals, monkeypatch):
    """At once: workers whose processes have ended hand on nothing any more."""
    monkeypatch.setattr(recovery, "_HANDED_ON", 600)

    def lose_all():
        for address in mortals.addresses():
            mortals.lose(address)
        mortals.wait_for(2)

    with pytest.raises(StateLostError, match=r"Checkpoints\.resume"):
        survives(mortals, {2: lose_all}, Reduce, "tasks")


@both_collectives
@pytest.mark.parametrize("fault", [Workers.lose, Workers.stop])
def test_no_worker_is_left(mortals, fault, collectives):
    def disable_all():
        for address in mortals.addresses():
            fault(mortals, address)

    with pytest.raises(ClusterError, match="has no workers, and none has come for 1 s"):
        survives(mortals, {2: disable_all}, AllReduce, collectives, collective_timeout=1)


@both_collectives
def test_scheduler_that_ends_is_named_at_once(collectives):
    short = {"distributed.comm.timeouts.connect": "5s"}  # who ends later looks for it that long
    with dask.config.set(short), workers(2) as found:
        ended = []

        def end():
            found.cluster.sync(found.cluster.scheduler.close)
            ended.append(time.monotonic())

        text = rf"scheduler {found.client.scheduler.address} has ended"
        with pytest.raises(SchedulerLostError, match=text):
            survives(found, {2: end}, AllReduce, collectives, collective_timeout=60)
        assert time.monotonic() - ended[0] < 10
