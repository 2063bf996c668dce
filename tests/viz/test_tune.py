"""Tuning finds and verifies faster settings, explains the others, and changes nothing."""

import itertools
import json
import math
import random
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
from dpexec.viz.tune import Tuning, tune
from dpexec.viz.tuning import search
from dpexec.viz.tuning.confidence import sure
from dpexec.viz.tuning.forecast import Forecaster
from dpexec.viz.tuning.settings import Setting
from dpexec.viz.tuning.trial import Subject, Trial

import dpexec as fluid
from dpexec import layers
from tests.viz.traces import task, trace, two_replicas

FEED = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)}


def net(middle=None):
    """A net with a dropout that has a seed, and its loss."""
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 7
    hidden = layers.dropout(layers.fc(layers.data("x", [4]), 8, act="relu"), 0.5, seed=3)
    loss = layers.mean(layers.fc(middle(hidden) if middle else hidden, 1))
    fluid.optimizer.Adam(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return loss, exe


def compiled(loss, build=None, execution=None, devices=2):
    return fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, build, execution, places=[fluid.CPUPlace()] * devices
    )


@pytest.fixture
def clock(monkeypatch):
    """Steps that take as long as a test says; the rest is real."""

    def takes(seconds):
        seen = {}
        noise = itertools.cycle((0.98, 1.0, 1.02))  # no setting is faster by chance

        def run(trial, batches, calls):
            trial.fetched = [np.float32(len(trial.setting.fields))]
            first = seen.setdefault(str(trial.setting), trial) is trial
            return seconds(trial.setting, first) * next(noise)

        monkeypatch.setattr(search, "HOPELESS", -1e9)  # whatever the machine makes of forecasts
        monkeypatch.setattr(Trial, "run", run)
        monkeypatch.setattr(Trial, "recorded", lambda trial, *_: real.recorded(trial.batches(), 3))

    loss, _ = net()
    real = Trial(Subject.of(compiled(loss), FEED, None, None, False), Setting())
    real_run = Trial.run
    real.run = lambda *given: real_run(real, *given)
    recorded = Trial.recorded
    real.recorded = lambda *given: recorded(real, *given)
    takes.program = compiled(loss)
    return takes


def test_what_is_faster_is_found_joined_and_measured_again(clock):
    gains = {"fuse_all_optimizer_ops": 0.8, "enable_auto_fusion": 0.9, "memory_optimize": 1.2}

    def seconds(setting, first):
        return 1e-3 * math.prod([gains.get(name, 1.0) for name in setting.fields])

    clock(seconds)
    found = tune(clock.program, FEED, progress=False)
    assert found.is_better
    assert found.found.setting.build.keys() == {"fuse_all_optimizer_ops", "enable_auto_fusion"}
    assert found.found.ratio.median == pytest.approx(0.72, rel=0.05)
    assert found.found.ratio.low <= found.found.ratio.median <= found.found.ratio.high < 0.8
    verdicts = {name: one.verdict for one in found.tried for name in one.setting.fields}
    assert verdicts["memory_optimize"] == "slower"
    assert verdicts["enable_sequential_execution"] == "the same"
    assert re.search(r"2\d% shorter|3[01]% shorter", found.title)
    scope = {"fluid": fluid}
    exec("\n".join(found.lines), scope)
    assert scope["build_strategy"].fuse_all_optimizer_ops
    assert scope["build_strategy"].enable_auto_fusion
    assert json.loads(found.json)["found"]["setting"]["enable_auto_fusion"] == "True"
    assert "build_strategy.enable_auto_fusion = True" in str(found)
    assert found.payload()["views"][0]["sections"][1]["code"] == found.lines
    assert "To set it" in found.svg


def test_where_nothing_is_faster_that_is_said(clock):
    clock(lambda setting, first: 1e-3)
    found = tune(clock.program, FEED, progress=False)
    assert not found.is_better and found.lines == []
    assert "nothing is faster beyond noise than a step of 9" in found.title
    assert "To set it" not in str(found)


def test_what_was_faster_by_chance_is_not_advised(clock):
    """The first runs of a setting are lucky, those at the end are not."""
    clock(lambda setting, first: 0.9e-3 if first and "memory_optimize" in setting.fields else 1e-3)
    found = tune(clock.program, FEED, progress=False)
    assert found.found is not None and not found.is_better
    assert "memory_optimize = False seemed faster, and was not, or hardly," in str(found)


def _sleeping(x):
    time.sleep(0.01)
    return x


def test_threads_are_found_for_replicas_that_wait_in_one():
    def slept(x):
        out = (
            fluid.default_main_program()
            .global_block()
            .create_var(name="slept", dtype="float32", shape=[-1, 8])
        )
        return layers.py_func(_sleeping, x, out)

    loss, _ = net(slept)
    execution = fluid.ExecutionStrategy()
    execution.scheduler = "sync"
    subject = Subject.of(compiled(loss, execution=execution), FEED, None, None, False)
    looking = search.Search(subject, 60.0, False)
    plans = looking._plan
    wanted = Setting(execution={"scheduler": "threads", "num_threads": 2})

    def planned(base):
        kept, idle = plans(base)
        forecast = next(one.forecast for one in kept if one.setting == wanted)
        assert forecast.basis == "simulated" and 0.3 < forecast.saved < 0.6
        assert kept[0].setting == wanted  # the most promising comes first
        return kept[:1], idle

    looking._plan = planned
    list(looking)
    found = Tuning(looking.step, looking.tried, looking.found, subject.acting)
    assert found.is_better and found.found.setting == wanted and found.found.same
    assert found.found.ratio.median < 0.8
    assert "Trials ran py_func as well." in found.notes
    assert "execution_strategy.scheduler = 'threads'" in found.lines


def test_tuning_changes_nothing(monkeypatch):
    monkeypatch.setattr(search, "HOPELESS", -1e9)  # whatever the machine makes of forecasts
    loss, exe = net()
    scope, program = fluid.global_scope(), fluid.default_main_program()
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    one, other = compiled(loss, build, execution), compiled(loss)
    exe.run(other, feed=FEED, fetch_list=[loss])
    names = [var.name for var in program.list_vars() if var.persistable]

    def state():
        return {n: np.array(v.get_tensor()) for n in names if (v := scope.find_var(n))}

    def after():
        drawn = random.getstate(), np.random.get_state()[1].tobytes()  # noqa: NPY002
        return drawn, scope.run_count(program), fluid.get_flags(flags)

    flags = ["FLAGS_fuse_parameter_memory_size", "FLAGS_fuse_parameter_groups_size"]
    before, others = state(), after()
    subject = Subject.of(one, FEED, None, None, False)
    looking = search.Search(subject, 600.0, False)
    looking._pairs = lambda base, trial, _: (  # short: a step each
        [base.run(looking._batches, 1)],
        [trial.run(looking._batches, 1)],
        [0.5],
    )
    list(looking)
    assert sum(t.ratio is not None for t in looking.tried) >= 5
    assert all(np.array_equal(before[n], value) for n, value in state().items())
    assert after() == others
    build.fuse_all_optimizer_ops = True  # nobody compiled with it
    execution.num_threads = 2
    assert looking.found.same  # all settings of these keep bits
    # what comes is what would have come: dropout draws by the number of the run
    trained = [exe.run(other, feed=FEED, fetch_list=[loss])[0].tobytes() for _ in range(2)]
    with fluid.scope_guard(fluid.Scope()):
        exe.run(fluid.default_startup_program())
        again = compiled(loss)
        exe.run(again, feed=FEED, fetch_list=[loss])
        assert trained == [
            exe.run(again, feed=FEED, fetch_list=[loss])[0].tobytes() for _ in range(2)
        ]


def test_what_cannot_be_tried_is_refused():
    loss, _ = net()
    client = SimpleNamespace(scheduler_info=None, asynchronous=False)
    execution = fluid.ExecutionStrategy()
    execution.scheduler = client
    with pytest.raises(ValueError, match="but the program runs on a cluster: tune it with"):
        tune(compiled(loss, execution=execution), FEED)
    build = fluid.BuildStrategy()
    build.num_trainers = 2
    with pytest.raises(ValueError, match="trains together with other processes"):
        tune(compiled(loss, build), FEED)
    with pytest.raises(ValueError, match="compile it with_data_parallel"):
        tune(fluid.CompiledProgram(fluid.default_main_program()), FEED)
    with pytest.raises(TypeError, match="but received a Program"):
        tune(fluid.default_main_program(), FEED)
    with pytest.raises(fluid.core.EnforceNotMet, match="x"):
        tune(compiled(loss), {}, progress=False)


def test_a_program_that_writes_files_and_one_with_a_loader_are_refused(tmp_path):
    loss, _ = net()
    block = fluid.default_main_program().global_block()
    weight = block.all_parameters()[0]
    block.append_op("save", {"X": weight}, {}, {"file_path": str(tmp_path / "w")})
    with pytest.raises(ValueError, match="an operator save, which would do in every trial"):
        tune(compiled(loss), FEED)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4])
        fluid.io.DataLoader.from_generator([x], 4, iterable=False)
        loss = layers.mean(layers.fc(x, 1))
        with pytest.raises(ValueError, match="takes no batch from the loaders"):
            tune(compiled(loss), None)


def test_medians_lie_in_their_intervals_as_often_as_promised():
    draw = random.Random(1)
    inside = 0
    for _ in range(400):
        found = sure([draw.expovariate(1.0) for _ in range(15)])
        inside += found.low <= np.log(2) <= found.high
    assert inside / 400 >= 0.95
    assert sure([2.0]).low == sure([2.0]).high == 2.0


@pytest.mark.parametrize("busy", [1, 2])
def test_threads_that_found_no_work_are_not_forecast_to_help(busy):
    """Two devices on one thread of eight: tasks are too short for the others to join."""
    events = []
    for step in range(3):
        at = 1e-3 * step
        for d in range(2):
            start, thread = at + (d * 1e-4 if busy == 1 else 0), d % busy
            key = f"forward_backward_dev{d}-{d}"
            events.append(task(key, d, start, start + 1e-4, thread, step))
        events.append(task("all_reduce-2", None, at + 2e-4, at + 2.1e-4, 0, step))
        for d in range(2):
            start = at + 2.1e-4 + d * 1e-5
            events.append(task(f"optimizer_dev{d}-{3 + d}", d, start, start + 1e-5, 0, step))
    facts = {"num_threads": 8, "cpus": 4, "scheduler": "threads", "mode": "all_reduce"}
    subject = SimpleNamespace(compiled=lambda _: (SimpleNamespace(ops=[]), []))
    forecaster = Forecaster(subject, trace(events, two_replicas(), **facts))
    for threads in (2, 4):
        found = forecaster.of(Setting(execution={"num_threads": threads}))
        assert found.basis == "simulated" and found.saved == pytest.approx(0, abs=1e-9)
    alone = forecaster.of(Setting(execution={"scheduler": "sync"})).saved
    assert alone == pytest.approx(0, abs=1e-9) if busy == 1 else alone < -0.2


def test_a_pass_that_changes_nothing_is_not_tried_though_names_of_the_trace_differ():
    """A run knows more outputs of some operators than a compiled program: offsets of sequences."""
    loss, exe = net()
    traced = fluid.ExecutionStrategy()
    traced.trace = True
    replicas = compiled(loss, execution=traced)
    exe.run(replicas, feed=FEED, fetch_list=[loss])
    found = replicas.trace
    for var in found.graph["vars"]:
        if var["name"].startswith("dropout") and "GRAD" not in var["name"]:
            var["name"] += "@LOD"
    subject = Subject.of(replicas, FEED, [loss], None, loads=False)
    forecaster = Forecaster(subject, found)
    assert forecaster.of(Setting(build={"fuse_relu_depthwise_conv": True})) is None
    assert forecaster.of(Setting(build={"fuse_elewise_add_act_ops": True})).saved >= 0
