"""Where the time of a run went, on traces with known answers."""

import json
from dataclasses import replace

import pytest
from dpexec.viz.advising.analysis import analysis_of
from dpexec.viz.measured.shares import CAUSES
from hypothesis import given, settings

from tests.viz.test_schedule import any_events
from tests.viz.traces import (
    GraphFile,
    event,
    straggling,
    task,
    trace,
    two_replicas,
    warming_up,
)


def shares(use):
    return {name: pytest.approx(value) for name, value in use.parts.items() if value}


def test_a_straggler_is_named_with_what_it_costs():
    found = analysis_of(straggling(2))
    one, other = found.devices
    assert shares(one) == {"compute": 0.5, "communication": 0.1, "straggler": 0.4}
    assert shares(other) == {"compute": 0.85, "communication": 0.1, "scheduler": 0.05}
    assert one.idle == pytest.approx(0.4)
    first = found.waits[0]
    assert (first.device, first.on_device, first.cause) == (0, 1, "straggler")
    assert first.task == "forward_backward_dev1"
    assert (first.seconds, first.share, first.ratio) == pytest.approx((6.0, 0.3, 2.0))
    assert str(found.advice[0]).startswith(
        "device 0 waits 30% of the step for device 1, whose forward_backward_dev1 takes 2.0 times"
    )
    assert str(found.advice[0]).endswith("; without that a step takes 30% less")
    assert str(found.advice[1]) == (
        "mul_grad takes 4.00 s of the critical path; twice as fast, it makes a step 20% shorter "
        "(8.00 s); made at train.py:3"
    )
    assert [one.nodes for one in found.advice[:2]] == [(2, 3), (1, 3)]
    assert [one.share for one in found.advice] == sorted(a.share for a in found.advice)[::-1]
    assert [step.seconds for step in found.steps] == [10.0, 10.0]
    assert [step.gap for step in found.steps] == [0.0, None]
    json.dumps(found.to_json())


def test_an_operator_that_was_interrupted_once_is_not_worth_changing():
    graph = GraphFile(1)
    key = "forward_dev0-0"
    graph.task(key, 0, [graph.op("mul", 0, ["x"], ["h"]), graph.op("relu", 0, ["h"], ["y"])])
    events = []
    for step, mul in enumerate((7, 2, 7)):  # step 1 is the typical one: all take 10 seconds
        start, middle, stop = 10 * step, 10 * step + mul, 10 * step + 10
        events += [
            task(key, 0, start, stop, step=step),
            event("mul", "op", 0, key, start, middle, node=0, step=step),
            event("relu", "op", 0, key, middle, stop, node=1, step=step),
        ]
    mul, relu = analysis_of(trace(events, graph)).advice
    assert str(mul).startswith("mul takes 7.00 s of the critical path; twice as fast")
    assert (mul.share, relu.share) == pytest.approx((0.35, 0.15))


def reduce_graph():
    """Device 0 owns the parameter: it reduces, updates and broadcasts."""
    graph = GraphFile(2, "reduce")
    work = [graph.op("mul_grad", d, ["w"], ["w@GRAD"], role="backward") for d in range(2)]
    ends = [("w@GRAD", 0), ("w@GRAD", 1)]
    sums = graph.op("reduce", 0, ends, ends[:1], role="collective", kind="reduce")
    sgd = graph.op("sgd", 0, ["w", "w@GRAD"], ["w"], role="optimize")
    last = graph.op("scale", 1, ["w"], ["y"], role="optimize")
    graph.task("backward_dev0-0", 0, work[:1])
    graph.task("backward_dev1-1", 1, work[1:])
    graph.task("reduce_dev0-2", 0, [sums], ["backward_dev0-0", "backward_dev1-1"])
    graph.task("optimizer_dev0-3", 0, [sgd], ["reduce_dev0-2"])
    graph.task("optimizer_dev1-4", 1, [last], ["optimizer_dev0-3"])
    return graph


def test_a_wait_is_split_along_the_chain_of_what_it_waits_for():
    made = trace(
        [
            event("x", "feed", None, "feed", 0, 1),
            task("backward_dev0-0", 0, 1, 3),
            task("backward_dev1-1", 1, 1, 2, thread=1),
            task("reduce_dev0-2", 0, 3.5, 4),
            task("optimizer_dev0-3", 0, 4, 6),
            task("optimizer_dev1-4", 1, 7, 9, thread=1),
            event("y", "fetch", None, "fetch", 9, 10),
        ],
        reduce_graph(),
        num_threads=2,
    )
    one, other = analysis_of(made).devices
    assert shares(one) == {
        "compute": 0.4,
        "communication": 0.05,
        "data": 0.2,
        "scheduler": 0.15,  # 3 to 3.5: the reduce was ready; 6 to 7: the other device's work, too
        "dependency": 0.2,  # 7 to 9: the step ends with that
    }
    # 2 to 3: device 0 has not done what this one has; 3 to 3.5 its reduce waits; 3.5 to 6: work
    assert shares(other) == {
        "compute": 0.3,
        "data": 0.2,
        "straggler": 0.1,
        "scheduler": 0.15,
        "dependency": 0.25,
    }


def test_a_ready_task_waits_for_a_thread_if_all_are_at_work():
    made = trace(
        [
            task("forward_backward_dev0-0", 0, 0, 4),
            task("forward_backward_dev1-1", 1, 4, 8),
            task("all_reduce-2", None, 8, 9),
            task("optimizer_dev0-3", 0, 9, 9.5),
            task("optimizer_dev1-4", 1, 9.5, 10),
        ],
        two_replicas(),
        num_threads=1,
    )
    one, other = analysis_of(made).devices
    assert shares(other) == {
        "compute": 0.45,
        "communication": 0.1,
        "no_free_thread": 0.45,
    }
    # what it waits for is itself late because the only thread did its own work before
    assert shares(one)["compute"] == pytest.approx(0.45)
    assert one.idle == pytest.approx(0.45)
    sentence = next(s for s in map(str, analysis_of(made).advice) if "num_threads" in s)
    assert "(now 1)" in sentence


def test_the_synchronous_scheduler_has_one_thread_whatever_num_threads_says():
    events = [
        task("forward_backward_dev0-0", 0, 0, 4),
        task("forward_backward_dev1-1", 1, 4, 8),
    ]
    made = trace(events, two_replicas(), num_threads=8, scheduler="sync")
    assert analysis_of(made).devices[1].no_free_thread == pytest.approx(0.5)


def test_communication_is_hidden_as_far_as_the_device_computes_meanwhile():
    graph = GraphFile(1)
    graph.task("a-0", 0, [graph.op("mul", 0, ["x"], ["y"])])
    made = trace(
        [
            event("mul", "op", 0, "a-0", 0, 6, node=0),
            event("all_reduce", "collective", None, "c", 4, 8, thread=1),
            event("sgd", "op", 0, "b", 8, 10),
        ],
        graph,
    )
    (use,) = analysis_of(made).devices
    assert use.overlap == pytest.approx(0.5)
    assert shares(use) == {"compute": 0.8, "communication": 0.2}


def test_time_between_the_operators_of_a_task_is_overhead():
    made = trace(
        [
            task("t", 0, 0, 10),
            event("mul", "op", 0, "t", 1, 4),
            event("relu", "op", 0, "t", 5, 9),
        ]
    )
    (use,) = analysis_of(made).devices
    assert shares(use) == {"compute": 0.7, "overhead": 0.3}
    assert "between the operators" in str(analysis_of(made).advice[0])


def test_without_a_graph_the_cause_of_a_wait_is_unknown():
    made = trace([task("a", 0, 0, 2), task("b", 1, 1, 4, thread=1)])
    one, other = analysis_of(made).devices
    assert shares(one) == {"compute": 0.5, "unknown": 0.5}
    assert shares(other) == {"compute": 0.75, "unknown": 0.25}


def test_a_device_of_the_graph_that_never_ran_waits_all_the_time():
    events = [task("forward_backward_dev0-0", 0, 0, 4)]
    idle = analysis_of(trace(events, two_replicas())).devices[1]
    assert idle.idle == pytest.approx(1.0) and idle.overlap is None


def test_time_between_steps_is_named():
    made = trace([task("t", 0, 0, 6), task("t", 0, 10, 16, step=1)])
    found = analysis_of(made)
    assert found.steps[0].gap == pytest.approx(4.0)
    assert any(
        s.startswith("25% of the whole time passes between the steps")
        for s in map(str, found.advice)
    )


@settings(deadline=None)
@given(any_events())
def test_fractions_of_every_device_add_up_to_one(made):
    for use in analysis_of(made).devices:
        assert all(value >= 0 for value in use.parts.values())
        whole = sum(use.parts.values())
        assert whole == pytest.approx(1.0 if made.span[1] > made.span[0] else 0.0)
        assert sum(getattr(use, cause) for cause in CAUSES) == pytest.approx(use.idle)


def test_first_steps_that_are_slower_count_in_no_average():
    made = warming_up()
    found = analysis_of(made)
    assert (found.left_out, found.median) == (1, 10.0)
    assert [step.seconds for step in found.steps] == [50.0, 10.0, 10.0, 10.0]
    assert found.waits[0].share == pytest.approx(0.3)
    assert analysis_of(made, [0, 1]).left_out == 0


def on_a_cluster():
    """A worker per device: what device 1 computes travels to worker 0, and the sum back."""
    events = [
        task("forward_backward_dev0-0", 0, 0, 4),
        task("forward_backward_dev1-1", 1, 0, 3, thread=1),
        event("grad", "transfer", None, "forward_backward_dev1-1", 4, 5, bytes=64),
        task("all_reduce-2", None, 5, 6),
        event("sum", "transfer", None, "all_reduce-2", 6, 8, thread=1, keys=["all_reduce-2"]),
        task("optimizer_dev0-3", 0, 6, 7),
        task("optimizer_dev1-4", 1, 8, 10, thread=1),
    ]
    return trace(events, two_replicas(), num_threads=1, scheduler="distributed")


def test_transfers_belong_to_the_worker_that_they_reach():
    one, other = analysis_of(on_a_cluster()).devices
    assert shares(one) == {
        "compute": 0.5,
        "communication": 0.2,  # the gradient comes, and the sum is made
        "dependency": 0.1,  # 7 to 8: the sum travels to the other worker
        "straggler": 0.2,  # 8 to 10: its twin ends later
    }
    assert shares(other) == {
        "compute": 0.5,
        "communication": 0.3,  # the sum is made, and comes
        "scheduler": 0.1,  # 3 to 4: its gradient does not travel yet
        "dependency": 0.1,  # 4 to 5: its gradient travels
    }


def test_the_critical_path_of_a_cluster_goes_through_transfers():
    path = analysis_of(on_a_cluster()).path
    names = [on_a_cluster().events[i].name.split("-")[0] for i in path.slices]
    assert names == ["forward_backward_dev0", "grad", "all_reduce", "sum", "optimizer_dev1"]
    assert path.seconds == 10.0


def test_steps_that_others_interrupted_change_no_share():
    """One step of 7 takes 50 times as long; the shares are those of the median step."""
    made = straggling(7)
    late = [
        replace(one, stop=one.stop + 490) if one.step == 6 and one.stop == 70 else one
        for one in made.events
    ]
    found = analysis_of(replace(made, events=tuple(late)))
    assert [round(step.seconds) for step in found.steps][-2:] == [10, 500]
    assert shares(found.devices[0]) == {"compute": 0.5, "communication": 0.1, "straggler": 0.4}
