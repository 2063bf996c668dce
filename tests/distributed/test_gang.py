"""Gangs fail as one, and leave nothing behind."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.distributed.faults import die
from tests.distributed.nets import NETS
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    assert_same_bits,
    batches,
    classifier,
    persistables,
    train,
    word_batches,
    words,
)


def gang(name, client, devices, mode, **options):
    net, feeds = NETS[name]()
    return train(net, feeds, devices, mode, scheduler=client, collectives="gang", **options)


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


def test_gang_that_lost_a_worker_in_a_step_leaves_nothing(mortals):
    net, feeds = NETS["mlp"]()
    run = train(net, feeds[:1], 2, scheduler=mortals.client, collectives="gang")
    survivor, lost = run.compiled._engine._cluster.address
    die(mortals, lost, "dpexec.engine.exchange.divided:DividedInMemory.run")
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(run.compiled, feed=feeds[1], fetch_list=[net.loss])
    assert lost not in mortals.addresses()
    assert mortals.client.run(mapped, workers=[survivor]) == {survivor: 0}
