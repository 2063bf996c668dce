"""A step like an earlier one makes few calls, and notices whatever has changed since."""

import functools
import os
import sys

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.trace.recorder import Recorder
from tests.engine.run.nets import (
    batches,
    classifier,
    flags,
    sequence_batches,
    sequences,
    strategies,
)

CPU = fluid.CPUPlace()
PACKAGE = os.path.dirname(fluid.__file__) + os.sep


class Trained:
    """A net that made some steps: compiled for two devices, or as it is."""

    def __init__(self, compiled):
        self.net, self.scope, self.exe = classifier(), fluid.Scope(), fluid.Executor(CPU)
        self.feeds, self.program = batches(8), self.net.main
        self.exe.run(self.net.startup, scope=self.scope)
        if compiled:
            made = fluid.CompiledProgram(self.net.main)
            self.program = made.with_data_parallel(
                self.net.loss.name, *strategies(), places=[CPU, CPU]
            )
        for feed in self.feeds[:3]:
            self.step(feed)

    def step(self, feed=None, fetch=None, **options):
        """Another one."""
        options.setdefault("scope", self.scope)
        given = self.feeds[3] if feed is None else feed
        return self.exe.run(self.program, given, fetch or [self.net.loss.name], **options)


@pytest.fixture(params=[True, False], ids=["compiled", "plain"])
def trained(request):
    return Trained(request.param)


def calls_of(function):
    """The functions of dpexec that a call makes, with their files."""
    found = []

    def note(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            found.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return found


def test_cached_step_is_few_calls_of_few_files():
    trained = Trained(compiled=True)
    found = min((calls_of(trained.step) for _ in range(5)), key=len)  # threads may be slow to come
    assert len(found) <= 50, found
    assert len({file for file, _ in found}) <= 15, {file for file, _ in found}


@pytest.mark.parametrize(("devices", "most"), [(1, 189), (2, 216)])
def test_sequences_of_a_new_size_are_few_calls(devices, most):
    """Feeds are checked and split, and the code gets its sizes; no piece of it is made."""
    net, scope, exe = sequences(), fluid.Scope(), fluid.Executor(CPU)
    exe.run(net.startup, scope=scope)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, *strategies(), places=[CPU] * devices
    )
    counts = []
    for feed in sequence_batches([30, 39, 41, 35, 31, 33, 32, 34, 37, 36]):
        run = functools.partial(exe.run, compiled, feed, [net.loss], scope=scope)
        counts.append(len(calls_of(run)))
    assert min(counts[4:]) <= most, counts


def test_request_is_few_calls(tmp_path):
    trained = Trained(compiled=False)
    with fluid.scope_guard(trained.scope):
        fluid.io.save_inference_model(
            str(tmp_path), ["x"], [trained.net.prediction], trained.exe, trained.net.test
        )
    config = fluid.core.AnalysisConfig(str(tmp_path))
    config.switch_use_feed_fetch_ops(False)
    predictor = fluid.core.create_paddle_predictor(config)
    (out,) = map(predictor.get_output_tensor, predictor.get_output_names())

    def request():
        predictor.get_input_tensor("x").copy_from_cpu(trained.feeds[3]["x"])
        predictor.zero_copy_run()
        return out.copy_to_cpu()

    first = request()
    assert min(len(calls_of(request)) for _ in range(5)) <= 46
    (wanted,) = trained.exe.run(
        trained.net.test,
        trained.feeds[3],
        [trained.net.prediction.name],
        scope=trained.scope,
    )
    for found in (first, request()):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    predictor.get_input_tensor("x").copy_from_cpu(trained.feeds[3]["x"][:, :5])
    with pytest.raises(EnforceNotMet, match="x"):
        predictor.zero_copy_run()
    np.testing.assert_array_equal(request(), first)


def test_steps_are_the_same_with_others_between(trained):
    """Those that are like the latest one, and those that are looked up, train alike."""
    other = Trained(compiled=trained.program is not trained.net.main)
    for number, feed in enumerate(trained.feeds):
        shorter = {name: array[:6] for name, array in feed.items()}
        other.exe.run(other.net.test, shorter, [other.net.prediction.name], scope=other.scope)
        fetch = [other.net.loss.name, *([other.net.prediction.name] if number % 2 else [])]
        np.testing.assert_array_equal(other.step(feed, fetch)[0], trained.step(feed)[0])


def test_recorded_steps_between_others_are_recorded(trained):
    (engine,) = [*trained.exe._compiled] or [
        engine for engine in trained.exe._engines.values() if engine.graph.is_training
    ]
    recorder = Recorder()
    trained.step()
    engine.observers.add(recorder)
    for _ in range(2):
        trained.step()
    engine.observers.remove(recorder)
    for _ in range(2):
        trained.step()
    assert len(recorder.steps()) == 2


def test_a_flag_counts_from_the_next_step_on(trained):
    feed = {**trained.feeds[3], "x": np.full_like(trained.feeds[3]["x"], np.nan)}
    assert np.isnan(trained.step(feed)[0]).all()
    with flags(check_nan_inf=True), pytest.raises(EnforceNotMet, match=r"nan|NaN"):
        trained.step(feed)


def test_other_fetches_and_sizes_between_steps(trained):
    loss = trained.step()[0]
    names = [trained.net.loss.name, trained.net.prediction.name]
    assert [len(a) for a in trained.step(fetch=names)][1] == 12
    shorter = {name: array[:7] for name, array in trained.feeds[4].items()}
    assert len(trained.step(shorter, fetch=names)[1]) == 7
    assert trained.step()[0].shape == loss.shape
    with pytest.raises((EnforceNotMet, ValueError)):
        trained.step({**trained.feeds[3], "x": trained.feeds[3]["x"][:, :5]})


def test_what_was_set_from_outside_is_used(trained):
    (weight, *_) = trained.net.main.all_parameters()
    trained.scope.find_var(weight.name).get_tensor().set(np.zeros(weight.shape, "float32"), CPU)
    (found,) = trained.step(fetch=[weight.name], return_merged=True)
    assert np.abs(found).max() < 0.5  # one step away from the zeros


def test_entries_that_are_appended_to_arrays_are_used():
    """A step looks at arrays of tensors, which do not say that they have more entries."""
    scope, reads = fluid.Scope(), [["array"], ["array"]]
    replicas, reader = Replicas(scope, [CPU, CPU], shared=False), fluid.Program()
    tensors = scope.var("array").get_lod_tensor_array()
    for count in (1, 2, 3):
        entry = fluid.LoDTensor()
        entry.set(np.full([2], count, "float32"), CPU)
        tensors.append(entry)
        replicas.sync(reader, reads)
        for device in (0, 1):
            found = [array.tolist() for array, _ in replicas.value(device, "array")]
            assert found == [2 * [value] for value in range(1, count + 1)]


def test_a_plain_program_may_change_and_move_to_another_scope():
    trained = Trained(compiled=False)
    with fluid.program_guard(trained.net.main):
        twice = fluid.layers.scale(trained.net.loss, 2.0)
    loss, double = trained.step(fetch=[trained.net.loss.name, twice.name])
    np.testing.assert_array_equal(2 * loss, double)
    with pytest.raises(EnforceNotMet):
        trained.step(scope=fluid.Scope())


def test_a_compiled_program_stays_where_it_ran():
    trained = Trained(compiled=True)
    with pytest.raises(ValueError, match="different scope"):
        trained.step(scope=fluid.Scope())
    other = fluid.Executor(CPU)
    other.run(trained.program, trained.feeds[3], [trained.net.loss.name], scope=trained.scope)
    assert len(other._compiled) == 1  # closing it closes what it ran


def test_sequences_of_other_levels_than_declared_between_usual_ones():
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main):
        x = fluid.data("x", [None, 1], lod_level=1)
        out = fluid.layers.sequence_pool(x, "sum")
    exe, scope = fluid.Executor(CPU), fluid.Scope()
    values = np.arange(6, dtype="float32").reshape(-1, 1)

    def sums(*levels):
        fed = {"x": fluid.create_lod_tensor(values, list(levels), CPU)}
        (found,) = exe.run(main, fed, [out], scope=scope, return_numpy=False)
        return np.array(found).reshape(-1).tolist()

    for _ in range(2):
        assert sums([2, 4]) == [1, 14]
        assert sums([1, 2], [2, 1, 3]) == [1, 2, 12]  # of the finest level


def test_fed_tensors_give_what_arrays_give(trained):
    tensors = {}
    for name, array in trained.feeds[3].items():
        tensors[name] = fluid.LoDTensor()
        tensors[name].set(array, CPU)
    fetch = [trained.net.prediction.name]
    test = trained.exe.run(trained.net.test, trained.feeds[3], fetch, scope=trained.scope)
    again = trained.exe.run(trained.net.test, tensors, fetch, scope=trained.scope)
    np.testing.assert_array_equal(test, again)


def test_runs_are_counted_in_the_scope(trained):
    before = trained.scope.run_count(trained.net.main)
    trained.step()
    assert before >= 3 and trained.scope.run_count(trained.net.main) == before + 1
    trained.scope.set_run_count(trained.net.main, 70)
    trained.step()
    assert trained.scope.run_count(trained.net.main) == 71


def test_an_empty_program_is_warned_of_each_time():
    exe = fluid.Executor(CPU)
    for _ in range(2):
        with pytest.warns(UserWarning, match="is empty"):
            exe.run(fluid.Program(), {}, [], scope=fluid.Scope())
