"""Several of four workers are lost at once, while replicas move, or before they have homes.

They are killed when they call a function: so all have come as far when they give up.
"""

import threading

import pytest

from dpexec.engine.cluster.client import recovery
from dpexec.engine.core.errors import StateLostError
from tests.distributed.clusters import workers
from tests.distributed.faults import die, disturbed
from tests.distributed.nets import NETS
from tests.engine.run.nets import AllReduce, Reduce, assert_same_bits, train

STEPS = 6
BOUND = "dpexec.engine.compile.bindings.code_step:CodeStep.bring"
UPDATED = "dpexec.engine.compile.bindings.code_step:CodeStep.update"  # all have made the step
MIRRORED = "dpexec.engine.cluster.worker.mirrors:Mirroring.exchange"
TOLD = "dpexec.engine.cluster.gang_messages:OutcomesToTell.encode"
STATE = "dpexec.engine.cluster.worker.state"


@pytest.fixture(scope="module")
def four():
    with workers(4) as found:
        yield found


@pytest.fixture(scope="module")
def undisturbed():
    return train(*NETS["mlp"](STEPS), 4)


def survives(found, mode, fault):
    net, feeds = NETS["mlp"](STEPS)
    feeds = disturbed(feeds, {3: fault})
    return train(net, feeds, 4, mode, scheduler=found.client, collectives="gang")


@pytest.mark.parametrize(
    ("mode", "where", "ranks"),
    [
        (AllReduce, BOUND, (0, 1, 3)),
        (AllReduce, UPDATED, (0, 1)),  # in the memory of the first one lie the sums
        (Reduce, MIRRORED, (1, 3)),
        (Reduce, TOLD, (0, 2)),
    ],
    ids=str,
)
def test_killed_at_the_same_moment(four, undisturbed, mode, where, ranks):
    there = four.wait_for(4)
    lost = {there[rank] for rank in ranks}

    def kill():
        for address in lost:
            die(four, address, where)

    assert_same_bits(survives(four, mode, kill), undisturbed)
    assert lost.isdisjoint(four.addresses())


@pytest.mark.parametrize("where", ["advance", "_kept"])
def test_killed_while_replicas_move(four, undisturbed, where):
    """As soon as it is asked what it has, and when it is to go on."""
    first, _, second, _ = four.wait_for(4)

    def kill():
        die(four, second, f"{STATE}:{where}")
        four.kill(first)

    assert_same_bits(survives(four, Reduce, kill), undisturbed)
    assert {first, second}.isdisjoint(four.addresses())


def test_one_is_killed_with_its_mirror(four, monkeypatch):
    monkeypatch.setattr(recovery, "_HANDED_ON", 0.5)
    first, second, *_ = four.wait_for(4)

    def kill():
        for address in (first, second):
            die(four, address, BOUND)

    with pytest.raises(StateLostError, match="the worker that mirrored it is gone, too"):
        survives(four, Reduce, kill)


def test_several_are_retired_in_the_middle_of_a_step(four, undisturbed):
    leaving = four.wait_for(4)[1:3]
    thread = threading.Thread(target=four.client.retire_workers, args=(leaving,))
    assert_same_bits(survives(four, Reduce, thread.start), undisturbed)
    thread.join(60)
    assert set(leaving).isdisjoint(four.client.nthreads())


def test_killed_while_the_run_is_set_up(four, undisturbed):
    first, second, *_ = four.wait_for(4)
    for address in (first, second):
        die(four, address, f"{STATE}:setup")
    run = train(*NETS["mlp"](STEPS), 4, scheduler=four.client, collectives="gang")
    assert_same_bits(run, undisturbed)
    assert {first, second}.isdisjoint(four.addresses())
