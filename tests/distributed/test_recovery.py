"""Checkpoints, traces and interrupts when workers are lost."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import dpexec as fluid
from dpexec.checkpoint import Checkpoints
from dpexec.checkpoint.files import Folder
from dpexec.engine.cluster.client.idle_watch import IdleWatch
from dpexec.engine.cluster.client.lifetime import topic_of
from dpexec.engine.core.errors import StateLostError
from tests.distributed.faults import disturbed
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    assert_same_bits,
    batches,
    classifier,
    persistables,
    strategies,
    train,
    word_batches,
    words,
)

STEPS = 6


def plugins(dask_scheduler):
    return [*dask_scheduler.plugins]


def adam():
    return classifier(fluid.optimizer.Adam(0.01), dropout=0.2)


def compiled(net, devices, mode, **options):
    build, execution = strategies(mode, **options)
    return fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=[fluid.CPUPlace()] * devices
    )


@pytest.fixture(scope="module")
def alone():
    return train(adam(), batches(STEPS, rows=11), 2)


def test_training_goes_on_from_a_checkpoint(mortals, alone, tmp_path):
    """Without mirrors, the moments that Adam has on the lost worker are nowhere else."""
    net, feeds = adam(), batches(STEPS, rows=11)
    options = {"scheduler": mortals.client, "recovery": "checkpoint"}
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup)
        program, losses = compiled(net, 2, Reduce, **options), []
        with Checkpoints(exe, tmp_path, program, every=2) as saved:
            for step in range(3):
                losses += exe.run(program, feed=feeds[step], fetch_list=[net.loss])
                saved.step()
            mortals.lose(program._engine._cluster.address[1])
            for _ in range(2):  # it stays an error
                with pytest.raises(StateLostError, match="keeps no mirrors"):
                    exe.run(program, feed=feeds[3], fetch_list=[net.loss])
            topic = topic_of(program._engine._cluster.token)
            mortals.client.unregister_scheduler_plugin(topic)  # as if it had begun anew
            start, _ = saved.resume()
            assert start == 2
            for step in range(start, STEPS):
                losses[step:] = exe.run(program, feed=feeds[step], fetch_list=[net.loss])
                saved.step()
            assert topic in mortals.client.run_on_scheduler(plugins)
        np.testing.assert_array_equal(losses, alone.losses)
        state = persistables(net.main, fluid.global_scope())
    for name, value in alone.state.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)


def _lose_all(found):
    for address in found.addresses():
        found.lose(address)
    found.wait_for(2)


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_training_goes_on_from_a_checkpoint_that_was_read_before_the_loss_was_noticed(
    mortals, alone, tmp_path, monkeypatch, collectives
):
    """As after ``Client.restart``: no step needs the lost state, so it is no error."""
    monkeypatch.setattr(IdleWatch, "left", lambda *_: None)
    net, feeds = adam(), batches(STEPS, rows=11)
    options = {"scheduler": mortals.client, "collectives": collectives}
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup)
        program, losses = compiled(net, 2, Reduce, **options), []
        with Checkpoints(exe, tmp_path, program, every=2) as saved:
            for step in range(3):
                losses += exe.run(program, feed=feeds[step], fetch_list=[net.loss])
                saved.step()
            _lose_all(mortals)
            for step in range(saved.resume().step, STEPS):
                losses[step:] = exe.run(program, feed=feeds[step], fetch_list=[net.loss])
        state = persistables(net.main, fluid.global_scope())
    np.testing.assert_array_equal(losses, alone.losses)
    for name, value in alone.state.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)


def test_some_variables_make_up_for_no_lost_state(mortals):
    """All were read before, but replicas have statistics of their own."""
    net, scope = classifier(batch_norm=True), fluid.Scope()
    exe, rate = fluid.Executor(fluid.CPUPlace()), "learning_rate_0"
    exe.run(net.startup, scope=scope)
    program, feeds = compiled(net, 2, AllReduce, scheduler=mortals.client), batches(2)
    exe.run(program, feeds[0], scope=scope)
    persistables(net.main, scope)
    _lose_all(mortals)
    scope.find_var(rate).get_tensor().set(np.float32([0.5]), fluid.CPUPlace())
    for _ in range(2):
        with pytest.raises(StateLostError, match="is lost with worker"):
            exe.run(program, feeds[1], scope=scope)


@pytest.mark.parametrize("notices", [False, True])
def test_where_steps_write_nothing_all_workers_may_be_lost(mortals, monkeypatch, notices):
    """What they read is in the user's scope."""
    net, (feed,) = adam(), batches(1, rows=11)
    if not notices:
        monkeypatch.setattr(IdleWatch, "left", lambda *_: None)
    found = []
    for scheduler in ("threads", mortals.client):
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        exe.run(net.startup, scope=scope)
        program = fluid.CompiledProgram(net.test).with_data_parallel(
            exec_strategy=strategies(scheduler=scheduler)[1], places=fluid.cpu_places(2)
        )
        for _ in range(3):
            found += exe.run(program, feed, [net.prediction.name], scope=scope)
            if scheduler != "threads":
                _lose_all(mortals)
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_checkpoints_of_workers_are_written_beside_the_training(
    mortals, alone, tmp_path, monkeypatch
):
    """Also when a worker is lost meanwhile; threads go on from the latest."""
    net, feeds, write, may_end = adam(), batches(STEPS, rows=11), Folder.write, threading.Event()
    written = []

    def slow(self, step, content):
        assert may_end.wait(60)
        write(self, step, content)

    def end():
        written.append(saved.steps)
        may_end.set()

    monkeypatch.setattr(Folder, "write", slow)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(net.startup)
        program = compiled(net, 2, Reduce, scheduler=mortals.client)
        with Checkpoints(exe, tmp_path, program, every=2) as saved:
            faults = {2: lambda: mortals.lose(mortals.addresses()[1]), 3: end}
            for feed in disturbed(feeds[:5], faults):
                exe.run(program, feed=feed, fetch_list=[net.loss])
                saved.step()
    assert written == [[]]  # a step was made before the first was written
    with fluid.scope_guard(fluid.Scope()):
        program = compiled(net, 2, Reduce)
        with Checkpoints(exe, tmp_path, program, every=2) as saved:
            start = saved.resume().step
            losses = [exe.run(program, feed=f, fetch_list=[net.loss])[0] for f in feeds[start:]]
    assert start == 4
    np.testing.assert_array_equal(losses, alone.losses[start:])


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_step_that_was_made_again_is_recorded_once(mortals, alone, collectives):
    faults = {3: lambda: mortals.kill(mortals.addresses()[1])}
    feeds = disturbed(batches(STEPS, rows=11), faults)
    options = {"scheduler": mortals.client, "collectives": collectives, "trace": True}
    run = train(adam(), feeds, 2, Reduce, **options)
    assert_same_bits(run, alone)
    trace = run.compiled.trace
    assert trace.steps == tuple(range(STEPS))
    keys = [event.key for event in trace if event.kind == "task" and event.step == 3]
    assert sorted(keys) == sorted(task["key"] for task in trace.graph["tasks"])


def run_until_interrupted(exe, program, feed, loss):
    for _ in range(12):  # Python loses an interrupt that comes while a destructor runs
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
        end = time.monotonic() + 5
        while time.monotonic() < end:
            exe.run(program, feed=feed, fetch_list=[loss])


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_interrupted_run_can_be_made_again(mortals, collectives):
    """The state is that before or after steps which the run count knows of."""
    net, (feed, *_) = adam(), batches(1)
    with fluid.scope_guard(fluid.Scope()):
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.global_scope()
        exe.run(net.startup)
        options = {"scheduler": mortals.client, "collectives": collectives}
        program = compiled(net, 2, AllReduce, num_iteration_per_run=8, **options)
        exe.run(program, feed=feed, fetch_list=[net.loss])
        with pytest.raises(KeyboardInterrupt):
            run_until_interrupted(exe, program, feed, net.loss)
        done = scope.run_count(net.main)
        loss = exe.run(program, feed=feed, fetch_list=[net.loss])[0]
    assert done >= 8
    np.testing.assert_array_equal(loss, train(net, [feed] * (done + 8), 2).losses[-1])


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_workers_with_nannies_survive_interrupts_of_the_user(mortals, alone, collectives):
    """A notebook interrupts the processes of a cell's ``LocalCluster``, too."""
    before = mortals.addresses()

    def press_ctrl_c():
        for address in before:
            os.kill(mortals.pid(address), signal.SIGINT)

    feeds = disturbed(batches(STEPS, rows=11), {2: press_ctrl_c})
    options = {"scheduler": mortals.client, "collectives": collectives}
    assert_same_bits(train(adam(), feeds, 2, Reduce, **options), alone)
    assert mortals.addresses() == before


def test_worker_that_cannot_take_replicas_is_left_out(three_mortals, alone):
    def refuse():
        from dpexec.engine.cluster.worker import state as cluster_state

        class Unfit:
            def __init__(self, *args):
                raise ModuleNotFoundError("No module named 'something'")

        cluster_state.WorkerReplicas = Unfit

    found = three_mortals
    lost, survivor, unfit = found.addresses()
    found.client.run(refuse, workers=[unfit])
    feeds = disturbed(batches(STEPS, rows=11), {2: lambda: found.lose(lost)})
    run = train(adam(), feeds, 2, Reduce, scheduler=found.client)
    found.lose(unfit)
    assert_same_bits(run, alone)
    assert run.compiled._engine._cluster.address == [survivor] * 2


def test_worker_that_takes_its_time_for_a_failed_step_is_waited_for(mortals):
    def be_slow():
        from dpexec.engine.cluster.worker import gpus

        original = gpus.run_steps

        def slow(*args):
            gpus.run_steps = original
            time.sleep(1.5)
            original(*args)

        gpus.run_steps = slow

    net, feeds = words(), word_batches(2)
    run = train(net, feeds[:1], 2, scheduler=mortals.client, collective_timeout=1)
    address = run.compiled._engine._cluster.address
    bad = {"x": feeds[1]["x"].copy(), "y": feeds[1]["y"]}
    bad["x"][0, 0] = 50  # on the first replica alone
    mortals.client.run(be_slow, workers=[address[1]])
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        with pytest.raises(fluid.core.EnforceNotMet, match="lookup_table_v2"):
            exe.run(run.compiled, feed=bad, fetch_list=[net.loss])
        loss = exe.run(run.compiled, feed=feeds[1], fetch_list=[net.loss])[0]
    assert run.compiled._engine._cluster.address == address
    np.testing.assert_array_equal(loss, train(net, feeds, 2).losses[1])
