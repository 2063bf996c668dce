"""What-if: the recorded machine is reproduced, and other machines behave as their model says."""

import json
from dataclasses import replace

import numpy as np
import pytest
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.template import templates
from dpexec.viz.simulate import simulate

import dpexec as fluid
from tests.fixtures.record_traces import RUNS, stored
from tests.viz.traces import GraphFile, event, straggling, task, trace, two_replicas, warming_up


@pytest.mark.parametrize("name", RUNS)
def test_the_replay_of_the_recorded_machine_lies_within_a_tenth(name):
    devices, reduce, _ = RUNS[name]
    found = simulate(stored(name))
    assert abs(found.error) < 0.1
    assert found.prediction.devices == devices
    assert found.mode == ("reduce" if reduce else "all_reduce")
    assert found.prediction.step == pytest.approx(found.replayed)


def test_the_hand_made_trace_is_taken_apart_and_met_exactly():
    made = straggling(3)
    first = templates(Schedule(made), 2, 2)[0]
    assert [[work.seconds for work in chain] for chain in first.segments] == [[3.0], [6.0]]
    assert [work.seconds for work in first.updates] == [2.0, 2.5]
    assert [work.delay for work in first.updates] == [0.0, 0.5]
    assert [(b.bytes, b.after, len(b.parts)) for b in first.buckets] == [(64, 1, 1)]
    found = simulate(made)
    assert (found.measured, found.replayed) == pytest.approx((10.0, 10.0))


def test_a_slow_link_ends_scaling_and_is_named():
    found = simulate(straggling(3), devices=4, bandwidth=64.0)
    # twice around a ring of four with 64 bytes: 6/4 seconds; then the slower update
    assert found.prediction.step == pytest.approx(6 + 1.5 + 0.5 + 2.5)
    slow = simulate(straggling(3), bandwidth=64.0, latency=2.0)
    assert slow.prediction.step == pytest.approx(6 + 1.0 + 2 * 2.0 + 0.5 + 2.5)
    assert slow.scan[-1].reason == "link"
    assert slow.end is not None
    assert "aggregating gradients takes the time (link)" in slow.verdict


def even(steps):
    """Both devices take four seconds to compute and one to update."""
    events = []
    for step in range(steps):
        at = 20.0 * step
        events += [
            event("Feed", "feed", None, "Feed", at, at + 2, step=step),
            task("forward_backward_dev0-0", 0, at + 2, at + 6, step=step),
            task("forward_backward_dev1-1", 1, at + 2, at + 6, thread=1, step=step),
            task("all_reduce-2", None, at + 6, at + 6.5, step=step),
            task("optimizer_dev0-3", 0, at + 6.5, at + 7.5, step=step),
            task("optimizer_dev1-4", 1, at + 6.5, at + 7.5, thread=1, step=step),
        ]
    return trace(events, two_replicas(), num_threads=8, cpus=64, scheduler="threads")


def test_cores_end_scaling_and_are_named():
    found = simulate(even(3), cores=2)
    four = next(p for p in found.scan if p.devices == 4)
    assert four.step == pytest.approx(4 + 4 * 4 / 2 + 1.5 + 4 / 2)
    assert four.reason == "cores"
    assert "share 2 cores (cores)" in found.verdict
    assert found.end.devices == 2


def test_no_worth_in_a_second_device_explains_itself():
    found = simulate(even(3), cores=1)
    assert found.end.devices == 1 and found.verdict.startswith("More than one device is not worth")
    assert "because the devices share one core (cores); with cores= they" in found.verdict
    linked = simulate(straggling(3), bandwidth=1.0)  # 64 bytes: 64 seconds
    assert linked.end.devices == 1
    assert "because aggregating gradients takes the time (link)." in linked.verdict


@pytest.mark.parametrize(("scheduler", "seconds"), [("sync", 10.0), ("threads", 5.0)])
def test_one_thread_does_the_work_of_all_devices(scheduler, seconds):
    graph = GraphFile(1)
    work = [
        graph.op("mul", 0, ["x", "w"], ["h"]),
        graph.op("mul_grad", 0, ["x", "w", "h"], ["w@GRAD"], role="backward"),
    ]
    graph.task("forward_backward_dev0-0", 0, work)
    update = graph.op("sgd", 0, ["w", "w@GRAD"], ["w"], role="optimize")
    graph.task("optimizer_dev0-1", 0, [update], ["forward_backward_dev0-0"])
    events = [
        task(key, 0, 10 * step + start, 10 * step + stop, step=step)
        for step in range(2)
        for key, start, stop in (("forward_backward_dev0-0", 0, 4), ("optimizer_dev0-1", 4, 5))
    ]
    made = trace(events, graph, scheduler=scheduler, num_threads=8, cpus=2)
    found = simulate(made, devices=2, bandwidth=1e12, cores=2)
    assert found.prediction.step == pytest.approx(seconds)


def by_threads(works, **meta):
    """Three steps of a device each for as many works: the thread, the start and the end."""
    graph = GraphFile(len(works))
    keys = []
    for d in range(len(works)):
        node = graph.op("mul", d, ["x", "w"], ["h"])
        keys.append(f"forward_backward_dev{d}-{d}")
        graph.task(keys[-1], d, [node])
    events = [
        task(keys[d], d, 20 * step + start, 20 * step + stop, thread, step)
        for step in range(3)
        for d, (thread, start, stop) in enumerate(works)
    ]
    return trace(events, graph, num_threads=8, cpus=8, **meta)


def test_delays_that_followed_one_another_add_up():
    made = by_threads([(0, 0, 2), (0, 2.5, 4.5), (0, 5, 7), (0, 7.5, 9.5)], scheduler="sync")
    assert simulate(made).replayed == pytest.approx(9.5)
    assert simulate(made, devices=8).prediction.step == pytest.approx(19)


def test_waiting_for_a_busy_thread_is_no_delay():
    made = by_threads([(0, 0, 4), (0, 4, 8), (0, 8, 12)], scheduler="threads")
    work = [delay for t in templates(Schedule(made), 8, 8) for (delay,) in t.segments]
    assert {w.delay for w in work} == {0.0}
    found = simulate(made)
    assert found.replayed == pytest.approx(12)  # by the one thread that there was
    with_link = simulate(made, bandwidth=1e9)
    assert with_link.prediction.step == pytest.approx(4)  # machines of their own


def test_a_thread_that_woke_up_late_joins_late():
    made = by_threads([(0, 0, 4), (0, 4, 8), (1, 7, 11)], scheduler="threads")
    assert templates(Schedule(made), 8, 8)[0].joins == (0.0, 7.0)
    assert simulate(made).replayed == pytest.approx(11)


def test_feeding_is_a_serial_part():
    found = simulate(even(3))
    assert found.replayed == pytest.approx(7.5)
    eight = next(p for p in found.scan if p.devices == 8)
    assert eight.step == pytest.approx(8 + 4 + 3.5 + 1)
    assert eight.reason == "serial part"


def test_a_straggler_is_what_limits():
    found = simulate(straggling(3))
    one, two = found.scan[:2]
    assert one.step == pytest.approx((3 + 2 + 6 + 0.5 + 2.5) / 2)  # on either device
    assert two.reason == "stragglers"
    assert two.without["stragglers"] == pytest.approx(4.5 + 1 + 0.25 + 2.25)


def test_reduce_mode_shares_the_optimizer():
    found = simulate(straggling(3), mode="reduce", bandwidth=1e12)
    assert found.mode == "reduce"
    assert found.prediction.step == pytest.approx(6 + 0.5 + 2.5 / 2)


def test_a_single_device_needs_a_bandwidth():
    made = stored("one")
    with pytest.raises(ValueError, match="a trace of one device does not tell"):
        simulate(made, devices=4)
    found = simulate(made, devices=4, bandwidth=1e9)
    assert found.prediction.devices == 4 and found.prediction.step > found.scan[0].step
    assert [p.devices for p in simulate(made).scan] == [1]


def test_a_single_device_without_gradients_needs_none():
    execution = fluid.ExecutionStrategy()
    execution.trace = True
    out = fluid.layers.softmax(fluid.data("x", [None, 4]))
    predictor = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        exec_strategy=execution, places=fluid.cpu_places(1)
    )
    exe = fluid.Executor(fluid.CPUPlace())
    for _ in range(3):
        exe.run(predictor, feed={"x": np.ones((2, 4), "float32")}, fetch_list=[out])
    found = simulate(predictor, devices=4, cores=4)
    assert found.prediction.devices == 4 and found.prediction.throughput > 1


def test_steps_slow_at_first_are_left_out():
    found = simulate(warming_up())
    assert found.measured == pytest.approx(10.0)
    assert "Not counted: the first step, slower" in found.notes[2]


def test_figures_are_the_same_in_all_forms():
    found = simulate(straggling(3), devices=4, bandwidth=1e9)
    data = json.loads(found.json)
    assert data["scan"][2]["step"] == found.prediction.step
    stack = found.payload()
    assert [view["type"] for view in stack["views"]] == ["chart", "chart", "table"]
    assert stack["views"][0]["series"][0]["y"] == [p.step for p in found.scan]
    assert "time of a step" in found.svg and found.title in found.svg
    assert str(found).splitlines()[0] == found.title


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"devices": 0}, "at least 1, not 0"),
        ({"mode": "ring"}, "'all_reduce' or 'reduce', not 'ring'"),
        ({"bandwidth": 0.0}, "impossible link"),
        ({"latency": 1.0}, "needs a bandwidth"),
        ({"cores": 0}, "cores must be at least 1"),
    ],
)
def test_impossible_machines(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        simulate(straggling(), **arguments)


def test_traces_that_cannot_be_replayed():
    with pytest.raises(ValueError, match="holds no tasks of a graph"):
        simulate(trace([task("t", 0, 0, 1)]))
    graph = two_replicas()
    graph.data["nodes"][4]["kind"] = "all_sum"
    with pytest.raises(ValueError, match="a network with all_sum cannot be replayed"):
        simulate(trace(straggling().events, graph))
    with pytest.raises(ValueError, match="no step of the trace ran all tasks"):
        simulate(trace([task("forward_backward_dev0-0", 0, 0, 1)], two_replicas()))


def test_a_run_without_processors_predicts_less_surely():
    made = straggling(3)
    rows = [[0.0, 0.0, 0.0], [30.0, 10.0, 40.0]]
    busy = replace(made, meta={**made.meta, "processors": rows})
    assert "Threads had no processor for 80%" in str(simulate(busy)).replace("\n", " ")
    assert "no processor" not in str(simulate(made))
