"""Runs like the one before: which they are, and that nothing but their speed differs."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.cluster.client.usual_runs import UsualRuns
from dpexec.engine.core.errors import EnforceNotMet
from tests.distributed.faults import die, disturbed
from tests.engine.run.nets import assert_same_bits, batches, classifier, strategies, train


@pytest.fixture
def usual(monkeypatch):
    """The numbers of the steps that went the short way."""
    numbers, make = [], UsualRuns._make

    def noted(runs, *args):
        numbers.append(runs._group.complete + 1)
        return make(runs, *args)

    monkeypatch.setattr(UsualRuns, "_make", noted)
    return numbers


def on(client, feeds, **options):
    return train(classifier(), feeds, 2, scheduler=client, collectives="gang", **options)


def test_all_runs_but_the_first_ones_are_usual(pair, usual):
    feeds = batches(8)
    assert_same_bits(on(pair, feeds), train(classifier(), feeds, 2))
    assert len(usual) >= 5


def test_arrays_that_do_not_lie_in_one_piece_are_fed_as_they_are(pair, usual):
    feeds = batches(8)
    for feed in feeds[4:]:
        feed["x"] = np.asfortranarray(feed["x"])
    assert_same_bits(on(pair, feeds), train(classifier(), feeds, 2))
    assert len(usual) >= 5


def test_other_sizes_come_in_between(pair, usual):
    feeds = [batches(1, rows)[0] for rows in (12, 12, 12, 12, 8, 12, 12, 10, 10, 10, 12, 12)]
    assert_same_bits(on(pair, feeds), train(classifier(), feeds, 2))
    assert len(usual) >= 3


def test_variables_that_are_set_between_runs_are_sent(pair, usual):
    def trained(**options):
        net, scope, exe = classifier(), fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup, scope=scope)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, *strategies(**options), places=fluid.cpu_places(2)
        )
        name = net.main.all_parameters()[0].name
        losses = []
        for step, feed in enumerate(batches(9)):
            if step in (5, 6):
                tensor = scope.find_var(name).get_tensor()
                tensor.set(np.array(tensor) * np.float32(0.5), fluid.CPUPlace())
            losses.append(exe.run(compiled, feed, [net.loss.name], scope=scope)[0])
        return losses, np.array(scope.find_var(name).get_tensor())

    found, expected = trained(scheduler=pair, collectives="gang"), trained()
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    assert len(usual) >= 4


def test_a_step_that_is_refused_changes_nothing(pair, usual):
    net, scope, exe = classifier(), fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup, scope=scope)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, *strategies(scheduler=pair, collectives="gang"), places=fluid.cpu_places(2)
    )
    feeds, label = batches(9), next(n for n in batches(1)[0] if n != "x")
    found = []
    for step, feed in enumerate(feeds):
        if step == 5:
            wrong = {**feed, label: np.full_like(feed[label], 99)}
            with pytest.raises(EnforceNotMet):
                exe.run(compiled, wrong, [net.loss.name], scope=scope)
        found.append(exe.run(compiled, feed, [net.loss.name], scope=scope)[0])
    np.testing.assert_array_equal(found, train(classifier(), feeds, 2).losses)
    assert len(usual) >= 5


def test_a_worker_that_is_lost_in_a_usual_run_is_replaced(mortals, usual):
    feeds, address = batches(10), mortals.addresses()[0]
    where = "dpexec.engine.cluster.worker.gang_step:GangSteps.make"
    faults = {1: lambda: die(mortals, address, where, calls=5)}
    assert_same_bits(on(mortals.client, disturbed(feeds, faults)), train(classifier(), feeds, 2))
    assert 5 in usual and len(usual) >= 6
