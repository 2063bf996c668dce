"""Workers that are lost between runs: their replicas move at once."""

import pytest

import dpexec as fluid
from tests.distributed.nets import NETS
from tests.engine.run.nets import Reduce, Run, assert_same_bits, persistables, strategies, train
from tests.waiting import until

STEPS = 6


@pytest.fixture(scope="module")
def feeds():
    return NETS["images"](STEPS)[1]


@pytest.fixture(scope="module")
def undisturbed(feeds):
    return train(NETS["images"]()[0], feeds, 3)


class Idling:
    """Training in Reduce mode, where only one worker has a parameter's optimizer state."""

    def __init__(self, found, **options):
        self._found, self._net = found, NETS["images"]()[0]
        self._scope, self._exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        how = strategies(Reduce, scheduler=found.client, **options)
        self._compiled = fluid.CompiledProgram(self._net.main).with_data_parallel(
            self._net.loss.name, *how, places=fluid.cpu_places(3)
        )
        self._exe.run(self._net.startup, scope=self._scope)
        self.fetched = []

    @property
    def _runner(self):
        return self._compiled._engine._cluster

    @property
    def homes(self):
        return list(dict.fromkeys(self._runner.address))

    def run(self, feed, **how):
        what = {"fetch_list": [self._net.loss], "scope": self._scope, **how}
        self.fetched += self._exe.run(self._compiled, feed, **what)

    def lose(self, address):
        """Kill a worker; no run helps replicas to move."""
        self._found.lose(address)
        until(lambda: address not in self.homes)
        with self._runner._recovery.busy:  # who moves them is done
            pass

    def finish(self):
        losses = [loss if hasattr(loss, "dtype") else loss.numpy() for loss in self.fetched]
        state = persistables(self._net.main, self._scope)
        return Run(losses, state, self._compiled, self._scope)


@pytest.mark.parametrize("collectives", ["gang", "tasks"])
def test_a_second_loss_finds_replicas_mirrored_again(
    three_mortals, feeds, undisturbed, collectives
):
    training = Idling(three_mortals, collectives=collectives)
    for feed in feeds[:2]:
        training.run(feed)
    first, second, _ = training.homes
    training.lose(first)
    training.lose(second)
    assert len(training.homes) == 1
    for feed in feeds[2:]:
        training.run(feed)
    assert_same_bits(training.finish(), undisturbed)


def test_the_last_of_all_workers_may_be_lost(three_mortals, feeds, undisturbed):
    training = Idling(three_mortals)
    for feed in feeds[:3]:
        training.run(feed)
    for address in training.homes[:2]:
        training.lose(address)
    three_mortals.lose(*training.homes)
    three_mortals.wait_for(3)
    for feed in feeds[3:]:
        training.run(feed)
    assert_same_bits(training.finish(), undisturbed)


def test_steps_that_were_only_ordered_are_made_again_before_anybody_asks(
    three_mortals, feeds, undisturbed
):
    training = Idling(three_mortals)
    for feed in feeds[:3]:
        training.run(feed)
    training.run(feeds[3], return_numpy=False)
    first, second, _ = training.homes
    training.lose(first)
    training.lose(second)
    for feed in feeds[4:]:
        training.run(feed)
    assert_same_bits(training.finish(), undisturbed)
