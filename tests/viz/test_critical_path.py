"""The critical path covers a step, and follows the actual waits."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from dpexec.viz.advising.path_text import path_sentences
from dpexec.viz.findings import analyse
from dpexec.viz.measured.activities import activities_of
from dpexec.viz.measured.critical_path import critical_path
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.schedule import Schedule
from hypothesis import given, settings

from dpexec.engine.trace import Event, Trace
from tests.viz.test_schedule import any_events
from tests.viz.traces import GraphFile, event, looping, straggling, task, trace, two_replicas


def all_paths(durations, before):
    """The lengths of all paths from a beginning to an end, with what they go through."""
    after = [[j for j, sources in enumerate(before) if i in sources] for i in range(len(before))]
    found = []

    def walk(path):
        if not after[path[-1]]:
            found.append((sum(durations[i] for i in path), path))
        for following in after[path[-1]]:
            walk([*path, following])

    for index, sources in enumerate(before):
        if not sources:
            walk([index])
    return found


def random_run(seed):
    """A random program, executed by a list scheduler on three threads that are late at times."""
    rng = random.Random(seed)
    graph, events, free, done = GraphFile(1), [], [0.0] * 3, {}
    before, last = [], [None] * 3
    for node in range(rng.randint(2, 9)):
        sources = [n for n in range(node) if rng.random() < 0.4]
        graph.op("op", 0, [f"v{n}" for n in sources], [f"v{node}"])
        thread = rng.randrange(3)
        start = max([free[thread], *(done[n] for n in sources)]) + rng.choice([0, 0.5])
        done[node] = free[thread] = start + rng.randint(1, 9)
        events.append(Event("op", "op", 0, f"t{node}", start, done[node], thread, {}, node))
        before.append([*sources, *([last[thread]] if last[thread] is not None else [])])
        last[thread] = node
    made = Trace(tuple(sorted(events, key=lambda e: e.start)), {}, graph.data)
    return made, [done[e.node] - e.start for e in events], before


def covers(path):
    """Whether work and delays of a path follow one another for as long as the step took."""
    gaps = [b.start - b.delay - a.stop for a, b in pairwise(path.links)]
    whole = sum(link.stop - link.start + link.delay for link in path.links)
    assert gaps == pytest.approx([0.0] * len(gaps))
    assert all(link.stop >= link.start and link.delay >= 0 for link in path.links)
    assert whole == pytest.approx(path.seconds) == pytest.approx(sum(path.parts.values()))


@pytest.mark.parametrize("block", range(10))
def test_path_and_slack_of_random_steps(block):
    for seed in range(20 * block, 20 * block + 20):
        made, durations, before = random_run(seed)
        found = critical_path(Schedule(made))
        covers(found)
        assert found.seconds == made.span[1] - made.span[0]
        longest = max(length for length, _ in all_paths(durations, before))
        assert found.unhindered == pytest.approx(longest)
        assert all(found.slack[index] == 0 for index in found.slices)
        assert len(found.nodes) == len(found.slices)
        replay = Replay(activities_of(Schedule(made), Schedule(made).typical))
        for at, one in enumerate(replay.activities.all):
            longer = replay.recorded.copy()
            longer[at] += found.slack[one.piece.id]
            assert replay.seconds(longer) == pytest.approx(found.seconds)
            longer[at] += 1.0
            assert replay.seconds(longer) == pytest.approx(found.seconds + 1.0)


@settings(deadline=None)
@given(any_events())
def test_the_path_is_all_of_any_step(made):
    schedule = Schedule(made)
    for step in schedule.steps:
        covers(critical_path(schedule, step.number))
        assert Replay(activities_of(schedule, step)).seconds() == pytest.approx(step.seconds)


def late_start():
    """Device 1 works from 0 to 120 ms, device 0, which starts late, from 50 to 150."""
    events = []
    for device, start, stop in ((0, 0.05, 0.15), (1, 0.0, 0.12)):
        key = f"forward_backward_dev{device}-{device}"
        events += [
            task(key, device, start, stop, thread=device),
            event("mul", "op", device, key, start, start + 0.02, device, 2 * device),
            event("mul_grad", "op", device, key, start + 0.02, stop, device, 2 * device + 1),
        ]
    key = "all_reduce-2"
    events += [
        event(key, "task", None, key, 0.15, 0.16),
        event("all_reduce", "collective", None, key, 0.15, 0.16, node=4),
    ]
    return trace(events, two_replicas(), num_threads=2, scheduler="threads")


def test_a_device_that_starts_late_is_to_blame_not_the_one_that_works_longest():
    found = critical_path(Schedule(late_start()))
    covers(found)
    assert [(link.name, link.device) for link in found.links] == [
        ("mul", 0),
        ("mul_grad", 0),
        ("all_reduce", None),
    ]
    assert [link.reason for link in found.links] == ["begin", "order", "straggler"]
    assert [link.delay for link in found.links] == pytest.approx([0.05, 0, 0])
    assert found.links[2].lead == pytest.approx(0.03)
    assert found.parts["compute"] == pytest.approx(0.1)
    assert found.parts["scheduler"] == pytest.approx(0.05)
    assert found.unhindered == pytest.approx(0.13)  # then device 1 is the last one
    slack = {made.event.node: found.slack.get(made.id) for made in Schedule(late_start()).slices}
    assert (slack[2], slack[3]) == pytest.approx((0.03, 0.03))
    assert not any("device 1" in text for text in path_sentences(found))
    assert path_sentences(found)[1:] == [
        "mul of device 0 began 50.0 ms into the step.",
        "all_reduce waited 30.0 ms for forward_backward_dev0 of device 0 alone, which ended with "
        "mul_grad: a straggler, other devices were done.",
        "If scheduling were free: 130 ms.",
    ]
    assert "began 50.0 ms into the step" in str(analyse(late_start()))


def test_path_goes_through_the_slower_device():
    made = straggling(3)
    found = critical_path(Schedule(made))
    covers(found)
    assert [link.name for link in found.links] == ["mul", "mul_grad", "all_reduce", "sgd"]
    assert found.nodes == (2, 3, 4, 6)
    assert (found.seconds, found.work, found.unhindered) == (10.0, 9.5, 9.5)
    assert [link.reason for link in found.links] == ["begin", "order", "straggler", "data"]
    # what device 0 did before the all-reduce had three seconds, its update one until the end
    assert sorted(found.slack.values()) == [0, 0, 0, 0, 1.0, 3, 3]


def test_what_a_thread_did_before_is_waited_for():
    events = [
        task("forward_backward_dev0-0", 0, 0, 4),
        task("forward_backward_dev1-1", 1, 4, 8),
        task("all_reduce-2", None, 8, 9),
    ]
    found = critical_path(Schedule(trace(events, two_replicas(), num_threads=1)))
    assert [(link.reason, link.lead) for link in found.links] == [
        ("begin", 0.0),
        ("thread", 4.0),
        ("straggler", 4.0),
    ]
    assert "forward_backward_dev1 of device 1 waited 4.00 s for its thread, which" in " ".join(
        path_sentences(found)
    )


def test_time_between_operators_and_rounds_of_a_loop_are_on_the_path():
    made = trace([task("t", 0, 0, 10), event("mul", "op", 0, "t", 2, 6)])
    found = critical_path(Schedule(made))
    assert (found.parts["compute"], found.parts["overhead"]) == (4.0, 6.0)
    found = critical_path(Schedule(looping()))
    covers(found)
    names = [link.name for link in found.links]
    assert names == ["while", "mul", "relu", "while", "mul", "while"]


def test_without_a_graph_only_the_order_on_threads_is_known():
    found = critical_path(Schedule(trace([task("a", 0, 0, 2), task("b", 0, 1, 5, thread=1)])))
    assert (found.seconds, found.work, found.parts["unknown"]) == (5.0, 4.0, 1.0)
    assert path_sentences(found) == [
        "The critical path of step 0 is all of its 5.00 s: 80% computing, 20% waiting."
    ]


def test_clocks_that_disagree_leave_no_hole():
    """What device 1 sends seems to arrive after it is used."""
    made = straggling()
    skewed = [replace(e, stop=e.stop + 0.25) if e.device == 1 else e for e in made.events]
    found = critical_path(Schedule(replace(made, events=tuple(skewed))))
    covers(found)
