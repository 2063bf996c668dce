"""Rounds of a loop: the round and the operator of the body for each slice."""

import numpy as np
from dpexec.viz.loop_rounds import rounds_of
from dpexec.viz.measured.bodies import rounds_text
from dpexec.viz.measured.schedule import Schedule

import dpexec as fluid
from dpexec import layers
from tests.viz.traces import GraphFile, event, task, trace


def rounds(body, ran):
    """The rounds of a loop in which operators ran for 1, 2, 3 ... seconds."""
    graph = GraphFile(1)
    graph.task("loop-0", 0, [graph.op("while", 0, ["x"], ["y"])])
    graph.data["nodes"][0]["body"] = [{"name": name, "output": "", "depth": 0} for name in body]
    events = [task("loop-0", 0, 0, 100), event("while", "op", 0, "loop-0", 0, 100, node=0)]
    at = 0
    for number, name in enumerate(ran, 1):
        events.append(event(name, "op", 0, "loop-0", at, at + number, inside="while"))
        at += number
    return rounds_of(Schedule(trace(events, graph)))


def test_slices_belong_to_rounds_in_their_order():
    found = rounds(["mul", "relu"], ["mul", "relu", "mul", "relu"])
    assert found == {"0": {"of": [0, 0], "seconds": [[1, 2], [3, 4]]}}


def test_what_did_not_run_and_what_ran_together():
    found = rounds(["less", "tanh", "relu", "mul", "add"], ["less", "relu", "mul+add", "less"])
    assert found["0"]["seconds"] == [[1, None, 2, 3, 3], [4, None, None, None, None]]


def test_loops_in_loops_have_rounds_of_their_own():
    """A loop of two rounds; in the first its inner loop makes three, in the second one."""
    graph = GraphFile(1)
    graph.task("loop-0", 0, [graph.op("while", 0, ["x"], ["y"])])
    body = [("scale", 0), ("while", 0), ("relu", 1), ("less_than", 1), ("less_than", 0)]
    graph.data["nodes"][0]["body"] = [{"name": n, "output": "", "depth": d} for n, d in body]
    events = [task("loop-0", 0, 0, 100), event("while", "op", 0, "loop-0", 0, 100, node=0)]

    def ran(name, start, stop):
        events.append(event(name, "op", 0, "loop-0", start, stop, inside="while"))

    for start, inner in ((0, 3), (50, 1)):
        ran("scale", start, start + 1)
        ran("while", start + 2, start + 32)
        for k in range(inner):
            ran("relu", start + 3 + 5 * k, start + 4 + 5 * k)
            ran("less_than", start + 5 + 5 * k, start + 7 + 5 * k)
        ran("less_than", start + 40, start + 43)
    found = rounds_of(Schedule(trace(events, graph)))
    assert found["0"] == {"of": [0, 0], "seconds": [[1, 30, 3], [1, 30, 3]]}
    assert found["0.1"] == {"of": [0, 0, 0, 1], "seconds": [[1, 2]] * 4}


def test_a_loop_of_which_nothing_was_recorded_has_none():
    assert rounds(["mul"], []) == {}


def recorded(steps, rows=(2,)):
    """A loop of three rounds, recorded, in steps on batches of such numbers of rows in turn."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = layers.assign(fluid.data("x", [None, 4]))
        at, end = (layers.fill_constant([1], "int64", number) for number in (0, 3))
        cond = layers.less_than(at, end)
        loop = layers.While(cond)
        with loop.block():
            layers.assign(layers.tanh(x), x)
            layers.increment(at, 1, True)
            layers.less_than(at, end, cond=cond)
    execution = fluid.ExecutionStrategy()
    execution.trace = True
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        exec_strategy=execution, places=[fluid.CPUPlace()]
    )
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        for step in range(steps):
            feed = {"x": np.ones([rows[step % len(rows)], 4], np.float32)}
            exe.run(compiled, feed=feed, fetch_list=[x])
    return Schedule(compiled.trace)


def test_only_first_steps_record_rounds_whatever_their_sizes():
    schedule = recorded(7, range(2, 9))
    names = [[schedule.by_id[i].event.name for i in s.slices] for s in schedule.steps]
    assert [found.count("tanh") for found in names] == [3, 3, 3, 3, 0, 0, 0]


def test_only_first_steps_record_rounds_and_a_sentence_says_so():
    schedule = recorded(7)
    names = {s.number: [schedule.by_id[i].event.name for i in s.slices] for s in schedule.steps}
    assert [names[number].count("tanh") for number in range(7)] == [3, 3, 3, 3, 0, 0, 0]
    assert all("while" in found for found in names.values())
    assert min(step.number for step in schedule.counted) >= 4  # steps with rounds take longer
    [rounds] = rounds_of(schedule).values()  # also where the typical step has none
    assert len(rounds["of"]) == 3
    assert rounds_text(schedule).startswith(
        "Operators inside of loops and branches are recorded in steps 0 to 3 alone, since that "
    )
    assert rounds_text(recorded(3)) == ""
