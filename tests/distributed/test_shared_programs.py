"""Programs that share their variables on a cluster give what they give on threads, bit by bit.

One program trains and another one tests (``share_vars_from``), by turns; or a program runs pruned
and whole. Each has copies of the variables on workers, which another one's steps make old.
"""

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.run.nets import AllReduce, Reduce, persistables, strategies

layers = fluid.layers
DEVICES = 2


class Session:
    """A program that trains, its test program, and what they have fetched so far.

    Args:
        scheduler: of all runs.
        mode: how gradients come together.
    """

    def __init__(self, scheduler, mode):
        self._scheduler, self._mode, self._rng = scheduler, mode, np.random.default_rng(0)
        self._main, startup = fluid.Program(), fluid.Program()
        self._main.random_seed = startup.random_seed = 3
        with fluid.unique_name.guard(), fluid.program_guard(self._main, startup):
            x, y = layers.data("x", [4]), layers.data("y", [1])
            hidden = layers.batch_norm(layers.fc(x, 3, act="tanh"), moving_mean_name="means")
            self._prediction = layers.fc(hidden, 1)
            self._loss = layers.mean(layers.square_error_cost(self._prediction, y))
            tested = self._main.clone(for_test=True)
            fluid.optimizer.Momentum(0.1, 0.9).minimize(self._loss)
        self._exe = fluid.Executor(fluid.CPUPlace())
        self._exe.run(startup)
        self._trains = self._compiled(self._main, self._loss.name)
        self._tests = self._compiled(tested, None, self._trains)
        self.found = []

    def _compiled(self, program, loss, source=None):
        places = [fluid.CPUPlace()] * DEVICES
        how = strategies(self._mode, scheduler=self._scheduler)
        made = fluid.CompiledProgram(program)
        return made.with_data_parallel(loss, *how, share_vars_from=source, places=places)

    def _run(self, program, *fetched, **options):
        feed = {"x": self._rng.normal(size=(5, 4)), "y": self._rng.normal(size=(5, 1))}
        feed = {name: value.astype("float32") for name, value in feed.items()}
        self.found += self._exe.run(program, feed=feed, fetch_list=[*fetched], **options)

    def train(self):
        self._run(self._trains, self._loss)

    def train_pruned(self):
        self._run(self._trains, self._loss, use_prune=True)

    def predict_pruned(self):
        self._run(self._trains, self._prediction, use_prune=True)

    def test(self):
        self._run(self._tests, self._prediction, "means")

    def close(self):
        """Close the executor; the programs go on with another one."""
        self._exe.close()
        self._exe = fluid.Executor(fluid.CPUPlace())

    def end(self):
        return [*self.found, *persistables(self._main, fluid.global_scope()).values()]


def take_turns(session):
    session.train()
    for _ in range(2):
        session.test()
        session.train()
        session.train()
    session.test()
    session.predict_pruned()
    session.train_pruned()
    session.test()
    session.train()
    return session.end()


def assert_same(found, expected):
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, wanted)


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_programs_take_turns(mode, pair):
    expected = take_turns(Session("threads", mode))
    with fluid.scope_guard(fluid.Scope()):
        assert_same(take_turns(Session(pair, mode)), expected)


def test_variables_of_a_program_whose_worker_was_lost_reach_the_other_one(mortals):
    def lasting(scheduler, lose):
        session = Session(scheduler, AllReduce)
        session.train()
        session.train()
        lose()
        session.test()
        session.train()
        return session.end()

    expected = lasting("threads", lambda: None)
    lost = mortals.addresses()[0]
    with fluid.scope_guard(fluid.Scope()):
        assert_same(lasting(mortals.client, lambda: mortals.lose(lost)), expected)


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_executor_that_is_closed_keeps_every_device_s_newest_values(mode, pair):
    def closing(scheduler):
        session = Session(scheduler, mode)
        session.train()
        session.test()
        session.train()  # the test program's copies of the variables are old
        session.close()
        session.test()  # with the means that each device had
        session.train()
        session.close()
        session.close()
        return session.end()

    expected = closing("threads")
    with fluid.scope_guard(fluid.Scope()):
        assert_same(closing(pair), expected)
