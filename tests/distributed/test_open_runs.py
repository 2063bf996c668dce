"""``return_numpy=False`` on a gang: ``run`` returns before the step is made."""

import _thread
import gc
import itertools
import threading
import time

import numpy as np
import pytest

import dpexec as fluid
from tests.distributed.faults import die
from tests.distributed.nets import NETS
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    batches,
    classifier,
    persistables,
    strategies,
)

STEPS = 6
MAKE = "dpexec.engine.cluster.worker.gang_step:GangSteps.make"


class Training:
    """A program that is trained.

    Args:
        scheduler: where.
        net: the program.
        mode: of the replicas.
        options: of the strategies.
    """

    def __init__(self, scheduler, net=None, mode=AllReduce, **options):
        self.net, self.scope = net or classifier(dropout=0.2), fluid.Scope()
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.net.startup, scope=self.scope)
        how = strategies(mode, scheduler=scheduler, **{"collectives": "gang", **options})
        self.compiled = fluid.CompiledProgram(self.net.main).with_data_parallel(
            self.net.loss.name, *how, places=fluid.cpu_places(2)
        )

    def step(self, feed, fetched=None):
        """Run a step; the loss is a tensor, perhaps to come."""
        names = [self.net.loss] if fetched is None else fetched
        found = self.exe.run(self.compiled, feed, names, scope=self.scope, return_numpy=False)
        return found[0] if found else None

    def state(self):
        found = persistables(self.net.main, self.scope)
        return {name: value.tobytes() for name, value in found.items()}

    def ended(self, losses):
        """What it left behind."""
        state, count = self.state(), self.scope.run_count(self.net.main)
        self.exe.close()
        return [np.array(loss).tolist() for loss in losses], state, count


def trained(scheduler, feeds, between=lambda training, step: None, **options):
    training = Training(scheduler, **options)
    losses = []
    for step, feed in enumerate(feeds):
        losses.append(training.step(feed))
        between(training, step)
    return training.ended(losses)


def read_a_parameter(training, step):
    np.array(training.scope.find_var("fc_0.w_0").get_tensor())


def set_the_rate(training, step):
    rate = np.full(1, 0.1 / (step + 1), "float32")
    training.scope.find_var("learning_rate_0").get_tensor().set(rate, fluid.CPUPlace())


def collect(training, step):
    gc.collect()


@pytest.mark.usefixtures("little_to_search")
@pytest.mark.parametrize("between", [collect, read_a_parameter, set_the_rate])
@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_same_bits_as_threads(pair, mode, between):
    feeds = batches(STEPS)
    found = trained(pair, feeds, between, mode=mode)
    assert found == trained("threads", feeds, between, mode=mode)


@pytest.mark.parametrize("name", NETS)
def test_same_bits_of_nets(pair, name):
    (net, feeds), (other, _) = NETS[name](STEPS), NETS[name](STEPS)
    assert trained(pair, feeds, net=net) == trained("threads", feeds, net=other)


def test_runs_of_several_steps(pair):
    feeds, options = batches(STEPS), {"num_iteration_per_run": 3}
    assert trained(pair, feeds, **options) == trained("threads", feeds, **options)


def test_new_sizes_come_between(pair):
    feeds = [batches(1, rows)[0] for rows in (8, 10, 10, 11, 14, 14, 9)]
    assert trained(pair, feeds) == trained("threads", feeds)


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_lists_of_values_and_steps_of_tasks_are_waited_for(pair, collectives):
    found = []
    for scheduler in "threads", pair:
        training, losses = Training(scheduler, collectives=collectives), []
        for feed in batches(3):
            how = {"scope": training.scope, "return_numpy": False, "return_merged": False}
            (each,) = training.exe.run(training.compiled, feed, [training.net.loss], **how)
            losses += each
            if collectives == "tasks":
                losses.append(training.step(feed))
        assert not any(loss.is_deferred for loss in losses)
        found.append(training.ended(losses))
    assert found[0] == found[1]


def waiting_for(path):
    """A net whose step waits until a file is there."""
    net = classifier()

    def wait(array):
        until = time.monotonic() + 60
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.01)
        if "fail" in path.read_text():
            raise ZeroDivisionError("wrong on purpose")
        return array

    with fluid.program_guard(net.main, net.startup):
        seen = net.main.current_block().create_var(name="seen", shape=[-1, 8], dtype="float32")
        fluid.layers.py_func(wait, net.main.global_block().var("x"), seen)
    return net


def test_a_run_returns_before_its_step_is_made(pair, tmp_path):
    """The step waits for something that happens after the run."""
    path = tmp_path / "go"
    path.write_text("on")
    training, (first, second) = Training(pair, waiting_for(path)), batches(2)
    np.array(training.step(first))
    path.unlink()
    loss = training.step(second)
    assert loss.is_deferred
    path.write_text("on")
    expected = trained("threads", [first, second], net=classifier())
    assert np.array(loss).tolist() == expected[0][1]
    training.exe.close()


def fails(pair, path):
    """A training whose second run fails, and what it was before."""
    path.write_text("on")
    training, feeds = Training(pair, waiting_for(path)), batches(4)
    np.array(training.step(feeds[0]))
    before = training.state()
    path.write_text("fail")
    loss = training.step(feeds[1])
    assert training.scope.run_count(training.net.main) == 2
    return training, feeds, before, loss


def went_on(training, feeds, before, path):
    """Nothing has changed, and the next runs are as if the failed one had not been."""
    path.write_text("on")
    assert training.scope.run_count(training.net.main) == 1
    assert training.state() == before
    losses = [np.array(training.step(feed)).tolist() for feed in feeds[2:]]
    training.exe.close()
    expected = trained("threads", [feeds[0], *feeds[2:]], net=classifier())
    assert losses == expected[0][1:]


failing = pytest.mark.parametrize("surface", ["fetch", "run", "variable", "close", "waiting run"])


@failing
def test_what_fails_is_raised_by_who_comes_next(pair, tmp_path, surface):
    path = tmp_path / "go"
    training, feeds, before, loss = fails(pair, path)
    acts = {
        "fetch": lambda: np.array(loss),
        "run": lambda: training.step(feeds[2]),
        "variable": training.state,
        "close": training.exe.close,
        "waiting run": lambda: training.exe.run(
            training.compiled, feeds[2], [training.net.loss], scope=training.scope
        ),
    }
    with pytest.raises(fluid.core.EnforceNotMet, match="wrong on purpose") as failed:
        acts[surface]()
    assert "py_func" in str(failed.value)
    assert "test_open_runs.py" in str(failed.value)
    with pytest.raises(fluid.core.EnforceNotMet, match="wrong on purpose"):
        np.array(loss)
    if surface != "close":
        went_on(training, feeds, before, path)


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("between", [collect, set_the_rate])
def test_a_worker_is_killed_in_a_run_that_nobody_waits_for(mortals, between, call):
    """What the user writes meanwhile is for the next run, not for the one that is made again."""
    address = mortals.addresses()[1]

    def disturb(training, step):
        between(training, step)
        if step == 2 and not isinstance(training.scheduler, str):
            die(mortals, address, MAKE, call)

    def both(scheduler):
        def act(training, step):
            training.scheduler = scheduler
            disturb(training, step)

        return trained(scheduler, batches(STEPS), act, mode=Reduce)

    assert both(mortals.client) == both("threads")
    assert address not in mortals.addresses()


def test_a_worker_is_killed_between_runs(mortals):
    address, feeds = mortals.addresses()[0], batches(STEPS)

    def lose(training, step):
        if step == 2:
            mortals.lose(address)

    assert trained(mortals.client, feeds, lose) == trained("threads", feeds)


def test_variables_outlive_the_program(pair):
    """The last step was not waited for when nobody had the compiled program any more."""
    expected = trained("threads", batches(3))
    training = Training(pair)
    for feed in batches(3):
        training.step(feed)
    del training.compiled
    training.exe = fluid.Executor(fluid.CPUPlace())
    gc.collect()
    assert training.state() == expected[1]


def test_an_interrupt_waits_for_the_step(pair):
    training, feed = Training(pair), batches(1)[0]
    training.step(feed)
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        any(training.step(feed) is None for _ in itertools.count())
    count, state = training.scope.run_count(training.net.main), training.state()
    assert trained("threads", [feed] * count)[1] == state
    training.exe.close()


def test_data_sets_end_when_all_steps_are_made(pair, tmp_path):
    """What fails in the last batch is raised by the call."""
    go, path = tmp_path / "go", tmp_path / "lines"
    go.write_text("on")
    feeds = batches(2)
    lines = [f"8 {' '.join(map(str, x))} 1 {y[0]}" for x, y in zip(*feeds[0].values(), strict=True)]
    path.write_text("\n".join(lines))
    training = Training(pair, waiting_for(go))
    np.array(training.step(feeds[1]))
    go.write_text("fail")
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_use_var([training.net.main.global_block().var(name) for name in ("x", "y")])
    dataset.set_batch_size(12)
    dataset.set_filelist([str(path)])
    dataset.set_thread(1)
    with pytest.raises(fluid.core.EnforceNotMet, match="wrong on purpose"):
        training.exe.train_from_dataset(training.compiled, dataset, scope=training.scope)
    training.exe.close()


def test_several_threads_read_what_one_trains(pair):
    training, feeds = Training(pair), batches(8)
    found = {}

    def read(loss, number):
        found[number] = np.array(loss).tolist()

    threads = []
    for number, feed in enumerate(feeds):
        thread = threading.Thread(target=read, args=(training.step(feed), number))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join(60)
    expected = trained("threads", feeds)
    assert [found[number] for number in range(8)] == expected[0]
    assert training.state() == expected[1]
    training.exe.close()
