"""A failure in one member ends the step on all members of a gang, and leaves no state changed."""

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
from tests.waiting import until


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
    start, stop = trace.span
    rows = trace.meta.get("processors", [])  # a short run may end before the second sample
    assert rows == sorted(rows) and all(start <= row[0] <= stop for row in rows)


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


CODE_STEP = "dpexec.engine.compile.bindings.code_step:CodeStep"
BOUND, COMPUTED = f"{CODE_STEP}.bring", f"{CODE_STEP}.results"
MADE = "dpexec.engine.cluster.gang_messages:OutcomesToTell.encode"  # others have made it, too
UPDATED = f"{CODE_STEP}.update"  # when the client knows that all have made the step


def whole_steps():
    """How many plans a worker runs as whole steps of code."""
    from dpexec.engine.cluster.worker import gang

    made = [seat._steps._runner.code.by_binding for seat in gang._seats.values() if seat._steps]
    return sum(code is not None for codes in made for code in codes.values())


def waiting():
    """Whether a worker runs steps whose updates wait for the next one."""
    from dpexec.engine.cluster.worker import gang

    made = [seat._steps._runner.code.by_binding for seat in gang._seats.values() if seat._steps]
    return any(code.updates_wait for codes in made for code in codes.values() if code)


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
@pytest.mark.parametrize("name", NETS)
def test_members_run_whole_steps_of_code(name, mode, pair, expected):
    run = gang(name, pair, 3, mode)
    assert all(number > 0 for number in pair.run(whole_steps).values())
    assert_same_bits(run, expected(name, 3))


@pytest.mark.parametrize(
    ("mode", "where", "rank"),
    [
        (AllReduce, BOUND, 1),
        (AllReduce, COMPUTED, 1),
        (AllReduce, MADE, 0),  # in whose memory the sums lie
        (AllReduce, UPDATED, 0),
        (Reduce, BOUND, 1),
        (Reduce, COMPUTED, 1),
        (Reduce, MADE, 0),
    ],
    ids=str,
)
def test_worker_killed_in_a_step_of_code(mode, where, rank, mortals):
    net, feeds = NETS["mlp"]()
    feeds = [*feeds, *feeds]
    run = train(net, feeds[:3], 2, mode, scheduler=mortals.client, collectives="gang")
    assert mode == Reduce or all(mortals.client.run(waiting).values())
    homes = run.compiled._engine._cluster.address
    lost, survivor = homes[rank], homes[1 - rank]
    die(mortals, lost, where)
    losses = []
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        for feed in feeds[3:]:
            losses += exe.run(run.compiled, feed=feed, fetch_list=[net.loss])
        state = persistables(net.main, run.scope)
    alone = train(net, feeds, 2, mode)
    np.testing.assert_array_equal(losses, alone.losses[3:])
    for name, value in alone.state.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)
    assert lost not in mortals.addresses()
    until(lambda: mortals.client.run(mapped, workers=[survivor]) == {survivor: 0})


def test_variables_that_nobody_reads_are_deferred_once(pair, monkeypatch):
    net, feeds = NETS["mlp"]()
    name = net.main.all_parameters()[0].name
    deferred, defer = [], fluid.LoDTensor.defer
    monkeypatch.setattr(fluid.LoDTensor, "defer", lambda *a: deferred.append(a) or defer(*a))

    def states(**options):
        """A parameter after 4 steps; after it was read, and written, one more step each."""
        run = train(net, feeds[:1], 2, **options)  # which reads all
        exe, counts, values = fluid.Executor(fluid.CPUPlace()), [], []
        with fluid.scope_guard(run.scope):
            tensor = run.scope.find_var(name).get_tensor()
            for steps in (4, 1, 1):
                deferred.clear()
                for _ in range(steps):
                    exe.run(run.compiled, feed=feeds[0], fetch_list=[net.loss])
                counts.append(len(deferred))
                values.append(np.array(tensor))
                if steps == 1:
                    tensor.set(values[-1] + 1, fluid.CPUPlace())
        return counts, values

    counts, values = states(scheduler=pair, collectives="gang")
    assert counts[0] > 0 and counts == counts[:1] * 3
    np.testing.assert_array_equal(values, states()[1])
