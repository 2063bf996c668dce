"""Several steps of one run in one dask graph."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.cluster.client import task_runner
from tests.distributed.faults import fail
from tests.distributed.nets import NETS
from tests.engine.run.nets import AllReduce, Reduce, persistables
from tests.engine.run.nets import train as train_there

RUN = 10
RUN_STEPS = "dpexec.engine.cluster.worker.gpus:run_steps"

both_modes = pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)


def train(net, feeds, devices, mode=AllReduce, **options):
    return train_there(net, feeds, devices, mode, collectives="tasks", **options)


def one_by_one(net, feed, steps):
    """What two replicas on threads do with the same batch, over and over."""
    return train(net, [feed] * steps, 2)


@both_modes
def test_graphs_have_so_many_steps_at_most(pair, monkeypatch, mode):
    monkeypatch.setattr(task_runner, "_STEPS", 4)
    net, (feed, *_) = NETS["mlp"]()
    sent = []
    send = task_runner.TaskRunner._send
    monkeypatch.setattr(
        task_runner.TaskRunner,
        "_send",
        lambda self, graphs: sent.append(len(graphs)) or send(self, graphs),
    )
    run = train(net, [feed], 2, mode, scheduler=pair, num_iteration_per_run=RUN)
    assert max(sent) == 4  # a step that somebody watches goes alone
    assert sum(sent) == RUN
    once = one_by_one(net, feed, RUN)
    np.testing.assert_array_equal(run.losses, once.losses[-1:])
    for name, value in once.state.items():
        np.testing.assert_array_equal(run.state[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("mode", "devices", "tasks"),
    [
        (AllReduce, 2, {"all_reduce", *(f"optimizer_forward_backward_dev{d}" for d in (0, 1))}),
        (AllReduce, 3, {"all_reduce", "optimizer_forward_backward_dev2"}),  # others share a worker
        (Reduce, 2, {"commit_dev0", "mirror_dev0", "forward_backward_dev0"}),
    ],
)
def test_replica_goes_on_in_the_task_that_ends_a_step_unless_others_wait_for_that(
    pair, monkeypatch, mode, devices, tasks
):
    net, (feed, *_) = NETS["mlp"]()
    sent = []
    send = task_runner.TaskRunner._send
    monkeypatch.setattr(
        task_runner.TaskRunner,
        "_send",
        lambda self, graphs: sent.extend(graphs) or send(self, graphs),
    )
    run = train(net, [feed], devices, mode, scheduler=pair, num_iteration_per_run=4)
    names = {name.partition("-")[0] for name, _ in sent[-2].tasks}
    assert tasks <= names
    assert not any(f"optimizer_forward_backward_dev{d}" in names - tasks for d in range(devices))
    np.testing.assert_array_equal(run.losses, train(net, [feed] * 4, devices).losses[-1:])


@both_modes
def test_failed_step_leaves_what_the_steps_before_it_made(pair, mode):
    net, (feed, *_) = NETS["mlp"]()
    once = one_by_one(net, feed, 3 * RUN)
    run = train(net, [feed], 2, mode, scheduler=pair, num_iteration_per_run=RUN)
    fail(pair, run.compiled._engine._cluster.address[1], RUN_STEPS, calls=9)
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        with pytest.raises(ValueError, match="failed on purpose"):
            exe.run(run.compiled, feed=feed, fetch_list=[net.loss])
        done = run.scope.run_count(net.main)
        assert RUN < done < 2 * RUN
        state = persistables(net.main, run.scope)
        (loss,) = exe.run(run.compiled, feed=feed, fetch_list=[net.loss])
    np.testing.assert_array_equal(loss, once.losses[done + RUN - 1])
    before = train(net, [feed] * done, 2).state
    for name, value in before.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)
