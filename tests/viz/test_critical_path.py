"""The longest path and the slack of operators, compared with trying out all paths."""

import random
from itertools import pairwise

import pytest
from dpexec.viz.measured.critical_path import critical_path, longest_path
from dpexec.viz.measured.schedule import Schedule

from dpexec.engine.trace import Event, Trace
from tests.viz.traces import GraphFile, straggling, task, trace


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


def random_dag(seed):
    rng = random.Random(seed)
    count = rng.randint(1, 12)
    names = list(range(count))
    rng.shuffle(names)  # positions are in no order that would help
    before = [[] for _ in range(count)]
    for place in range(count):
        for earlier in range(place):
            if rng.random() < 0.3:
                before[names[place]].append(names[earlier])
    return [float(rng.randint(0, 9)) for _ in range(count)], before


@pytest.mark.parametrize("block", range(10))
def test_longest_path_and_slack_equal_brute_force(block):
    for seed in range(20 * block, 20 * block + 20):
        durations, before = random_dag(seed)
        paths = all_paths(durations, before)
        longest = max(length for length, _ in paths)
        path, slack = longest_path(durations, before)
        assert sum(durations[i] for i in path) == longest
        assert all(a in before[b] for a, b in pairwise(path))
        for index, found in enumerate(slack):
            through = max(length for length, members in paths if index in members)
            assert found == longest - through


@pytest.mark.parametrize("seed", range(20))
def test_critical_path_of_a_trace_equals_brute_force(seed):
    """A random program, executed by a list scheduler on three threads."""
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
    durations = [done[e.node] - e.start for e in events]
    longest = max(length for length, _ in all_paths(durations, before))
    found = critical_path(Schedule(made))
    assert found.seconds == longest
    assert found.step_seconds == max(done.values()) - min(e.start for e in events)
    assert all(found.slack[index] == 0 for index in found.slices)
    assert len(found.nodes) == len(found.slices)


def test_path_goes_through_the_slower_device():
    found = critical_path(Schedule(straggling(3)))
    names = [straggling(3).events[i].name for i in found.slices]
    assert names == ["mul", "mul_grad", "all_reduce", "sgd"]
    assert found.nodes == (2, 3, 4, 6)
    assert (found.seconds, found.share) == (9.5, 0.95)
    # what device 0 did before the all-reduce had three seconds, its update half a second
    assert sorted(found.slack.values()) == [0, 0, 0, 0, 0.5, 3, 3]


def test_without_a_graph_only_the_order_on_threads_counts():
    found = critical_path(Schedule(trace([task("a", 0, 0, 2), task("b", 0, 1, 5, thread=1)])))
    assert found.seconds == 4.0


def test_waiting_in_a_circle_is_an_error():
    with pytest.raises(ValueError, match="wait in a circle"):
        longest_path([1.0, 1.0], [[1], [0]])
