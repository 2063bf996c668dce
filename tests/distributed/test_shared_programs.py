"""Programs that share their variables on a cluster give what they give on threads, bit by bit.

One program trains and another one tests (``share_vars_from``), by turns; or a program runs pruned
and whole; or two programs are trained in turn, as those of a GAN are. Each has copies of the
variables on workers, which another one's steps make old.
"""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.cluster.client.gang_runner import GangRunner
from dpexec.engine.cluster.client.replica_group import ReplicaGroup
from tests.engine.run.nets import AllReduce, Reduce, persistables, strategies

layers = fluid.layers
DEVICES = 2


def compiled(program, loss, how, source=None, devices=DEVICES):
    places = [fluid.CPUPlace()] * devices
    made = fluid.CompiledProgram(program)
    return made.with_data_parallel(loss, *how, share_vars_from=source, places=places)


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
        how = strategies(self._mode, scheduler=self._scheduler)
        return compiled(program, loss, how, source)

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


# ---- two programs that are trained in turn, each on what the other one has written


class Adversaries:
    """The two programs of a GAN, with statistics that differ from device to device.

    Args:
        scheduler: of all runs.
        mode: how gradients come together.
        devices: how many the first and the second program run on.
        wait: whether runs wait for their results.
    """

    def __init__(self, scheduler, mode, devices=(DEVICES, DEVICES), wait=True):
        self._rng, self._wait = np.random.default_rng(0), wait
        critic, maker, startup = fluid.Program(), fluid.Program(), fluid.Program()
        startup.random_seed = critic.random_seed = maker.random_seed = 3
        self._losses = []
        with fluid.program_guard(critic, startup):
            made = self._made(layers.data("z", [3]))
            made.stop_gradient = True
            gap = self._judged(made) - self._judged(layers.data("x", [4]))
            self._minimize(gap, ["judge.w"])
        with fluid.program_guard(maker, startup):
            self._minimize(-self._judged(self._made(layers.data("z", [3]))), ["make.w", "norm.w"])
        self._exe, self._programs = fluid.Executor(fluid.CPUPlace()), [critic, maker]
        self._exe.run(startup)
        how = [strategies(mode, scheduler=scheduler) for _ in devices]
        several = zip([critic, maker], self._losses, how, devices, strict=True)
        self._compiled = [compiled(p, loss.name, h, None, d) for p, loss, h, d in several]
        self.found = []

    def _made(self, z):
        hidden = layers.fc(z, 4, param_attr="make.w", bias_attr=False)
        means = {"moving_mean_name": "means", "moving_variance_name": "variances"}
        return layers.batch_norm(hidden, param_attr="norm.w", bias_attr="norm.b", **means)

    def _judged(self, x):
        return layers.mean(layers.fc(x, 1, act="sigmoid", param_attr="judge.w", bias_attr=False))

    def _minimize(self, loss, names):
        self._losses.append(loss)
        fluid.optimizer.Adam(0.05).minimize(loss, parameter_list=names)

    def take_turns(self, rounds):
        for _ in range(rounds):
            feed = {"x": self._rng.normal(size=(8, 4)), "z": self._rng.normal(size=(8, 3))}
            feed = {name: value.astype("float32") for name, value in feed.items()}
            for program, loss, names in zip(self._compiled, self._losses, ("xz", "z"), strict=True):
                given = {name: feed[name] for name in names}
                self.found += self._exe.run(program, given, [loss], return_numpy=self._wait)
        return self

    def set(self, name):
        tensor = fluid.global_scope().find_var(name).get_tensor()
        tensor.set(np.array(tensor) * np.float32(0.5), fluid.CPUPlace())

    def save(self, folder):
        for program in self._programs:
            fluid.io.save_persistables(self._exe, str(folder), program)

    def end(self):
        ends = [persistables(program, fluid.global_scope()) for program in self._programs]
        return [*map(np.array, self.found), *ends[0].values(), *ends[1].values()]


def both_ways(scheduler, act, *how, **options):
    """What threads and a cluster give when two programs take turns; ``act`` comes on the way."""
    expected = Adversaries("threads", *how, **options).take_turns(3)
    with fluid.scope_guard(fluid.Scope()):
        found = Adversaries(scheduler, *how, **options).take_turns(3)
        act(found)
        found = found.take_turns(3).end()
    act(expected, alone=True)
    assert_same(found, expected.take_turns(3).end())


def nothing(session, alone=False):
    pass


@pytest.fixture
def tasks(monkeypatch):
    """The names of the dask tasks that read or set values of replicas."""
    found, call = [], ReplicaGroup.call

    def counted(group, function, *rest):
        found.append(function.__name__)
        return call(group, function, *rest)

    monkeypatch.setattr(ReplicaGroup, "call", counted)
    return found


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_adversaries_hand_over_what_they_write(mode, pair, tasks):
    def act(session, alone=False):
        tasks.clear()
        session.take_turns(4)
        assert tasks == []

    both_ways(pair, act, mode)


@pytest.mark.parametrize("devices", [(2, 4), (3, 2), (1, 2)], ids=str)
def test_adversaries_of_other_numbers_of_devices(devices, pair):
    both_ways(pair, nothing, AllReduce, devices)


def test_adversaries_that_do_not_wait(pair):
    both_ways(pair, nothing, AllReduce, wait=False)


def test_variables_that_users_read_and_set_between_turns(pair, tasks, tmp_path):
    def act(session, alone=False):
        tasks.clear()
        session.set("judge.w")
        session.take_turns(1)
        session.save(tmp_path)
        assert tasks == []

    both_ways(pair, act, Reduce)


def test_adversaries_that_lose_a_worker(mortals):
    def lose(session, alone=False):
        if not alone:
            mortals.lose(mortals.addresses()[0])

    both_ways(mortals.client, lose, AllReduce)


def test_the_only_worker_left_is_lost_when_it_has_taken_variables(mortals, monkeypatch):
    """The client's copy of its state has what was handed over; else workers take it again."""
    hand_over = GangRunner.hand_over

    def lose_after(runner, orders):
        made = hand_over(runner, orders)
        if any(order.copied is not None for order in orders):
            monkeypatch.undo()
            (last,) = mortals.addresses()
            mortals.lose(last)
            mortals.wait_for(2)
        return made

    def act(session, alone=False):
        if not alone:
            mortals.lose(mortals.addresses()[0])
        session.take_turns(2)  # one is left
        if not alone:
            monkeypatch.setattr(GangRunner, "hand_over", lose_after)

    both_ways(mortals.client, act, AllReduce)
