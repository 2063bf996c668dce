"""Every recorded step of code keeps its own notes, also when other steps run in between."""

from unittest.mock import Mock

import numpy as np
import pytest

from dpexec.engine import kernels
from dpexec.engine.compile.bindings import notes
from dpexec.engine.run.whole_code import ScopeVariables
from dpexec.engine.trace import Recorder
from tests.engine.compile.bindings.test_step import Training
from tests.engine.run.nets import AllReduce, Reduce, batches, word_batches

if not kernels.available():
    pytest.skip("needs numba", allow_module_level=True)


def operators(trace, step):
    """Devices and names of what a step did, and how long the tasks of device 0 took."""
    events = [event for event in trace if event.step == step]
    seconds = sum(e.stop - e.start for e in events if e.kind == "task" and e.device == 0)
    return sorted((str(e.device), e.name) for e in events if e.kind == "op"), seconds


def test_steps_of_several_sizes_in_turn_note_what_they_did(monkeypatch):
    monkeypatch.setattr(notes, "_ROWS", 3)  # room is soon used up
    training = Training()
    sizes = [12, 8, 12, 8, 12, 12, 12, 12, 8, 8, 12]
    for rows in sizes[:4]:
        training.step(*batches(1, rows))
    engine = training.program._engine
    recorder = Recorder()
    for number, rows in enumerate(sizes):
        engine.observers.recorders = (recorder,) * (number != 5)  # one step is not recorded
        training.step(*batches(1, rows))
    assert training.whole_steps
    trace = recorder.trace()
    assert trace.steps == tuple(range(len(sizes) - 1))
    first, _ = operators(trace, 0)
    assert first
    for step in trace.steps:
        done, seconds = operators(trace, step)
        assert done == first and 0 < seconds < 60
    feeds = [event.start for event in trace if event.name == "Feed"]
    fetches = [event.stop for event in trace if event.name == "Fetch"]
    assert len(feeds) == len(fetches) == len(trace.steps)
    assert all(stop <= start for stop, start in zip(fetches, feeds[1:], strict=False))


def test_two_recorders_keep_the_steps_they_saw():
    training = Training()
    (feed,) = batches(1)
    for _ in range(3):
        training.step(feed)
    engine, always, late = training.program._engine, Recorder(), Recorder()
    engine.observers.add(always)
    for is_late in (False, False, True, True, False, True):
        if is_late:
            engine.observers.add(late)
        training.step(feed)
        engine.observers.remove(late)
    assert len(always.trace().steps) == 6 and len(late.trace().steps) == 3
    starts = [event.start for event in always.trace() if event.name == "Feed"]
    seen = [event.start for event in late.trace() if event.name == "Feed"]
    assert seen == [starts[2], starts[3], starts[5]]


def test_a_step_that_fails_behind_its_code_leaves_its_failure_alone(monkeypatch):
    training = Training()
    (feed,) = batches(1)
    for _ in range(3):
        training.step(feed)
    recorder = Recorder()
    training.program._engine.observers.add(recorder)
    training.step(feed)
    with monkeypatch.context() as patch:
        patch.setattr(ScopeVariables, "commit", Mock(side_effect=OSError("full")))
        with pytest.raises(OSError, match="full"):
            training.step(feed)
    training.step(feed)
    trace = recorder.trace()
    assert trace.steps == (0, 1, 2)
    (failed,) = (event for event in trace if event.step == 1)
    assert failed.kind == "failure" and failed.args["text"] == "full"
    for step in (0, 2):
        events = {event.name: event for event in trace if event.step == step}
        fed, fetched = events.pop("Feed"), events.pop("Fetch")
        assert fed.stop == min(event.start for event in events.values())
        assert fetched.start == max(event.stop for event in events.values())


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_sums_of_sparse_gradients_say_what_they_moved(mode):
    row = 5 * 4 + 8  # of the embedding, with its number
    feeds = word_batches(4)
    for feed in feeds[1::2]:
        feed["x"][:] = 7  # a single word
    expected = [row * sum(len(np.unique(x)) for x in np.split(feed["x"], 2)) for feed in feeds]
    for whole in (True, False):
        training = Training("sparse", mode=mode, whole=whole)
        for feed in feeds[:2]:
            training.step(feed)
        engine, recorder = training.program._engine, Recorder()
        engine.observers.add(recorder)
        for feed in feeds:
            training.step(feed)
        assert bool(training.whole_steps) == whole
        events = [event for event in recorder.trace() if event.kind == "collective"]
        sizes = [event.args["bytes"] for event in events if event.name in ("all_reduce", "reduce")]
        assert [size for size in sizes if size not in (12, 60)] == expected  # bias and weights
