"""What advice says of stragglers, of Python that takes turns, and of waits for a thread."""

from dataclasses import replace

from dpexec.viz.advising.analysis import analysis_of

from dpexec import viz
from tests.viz.traces import GraphFile, event, straggling, task, trace, two_replicas


def said(made, word):
    """The first piece of advice with a word."""
    return next((str(one) for one in analysis_of(made).advice if word in str(one)), "")


def fed(rows):
    """The trace of a straggler, device 1, where devices are fed these numbers of rows."""
    made = straggling(2)
    for var in made.graph["vars"]:
        if var["name"] == "x":
            var["shape"] = [rows[var["device"]], 4]
    return made


def test_a_straggler_with_more_rows_is_told_apart_from_one_on_a_busy_core():
    assert "it is fed 12 rows of x, and device 0 4: divide the batch evenly" in said(
        fed((4, 12)), "for device 1"
    )
    assert "it is fed as many rows, so see what else runs on its core" in said(
        fed((4, 4)), "for device 1"
    )
    assert "divide" not in said(fed((12, 4)), "for device 1")


def side_by_side(gap, **args):
    """Device 1 waits between its operators for some of 10 seconds, while device 0 works for 8."""
    events = []
    for d, between, end in ((0, 0.1, 8), (1, gap, 10)):
        key = f"forward_backward_dev{d}-{d}"
        middle = 5 - between / 2
        events += [
            task(key, d, 0, end, d),
            event("mul", "op", d, key, 0, middle, d, 2 * d, **args),
            event("mul_grad", "op", d, key, middle + between, end, d, 2 * d + 1, **args),
        ]
    return events


def test_python_that_takes_turns_is_named_where_one_device_waits_between_operators():
    facts = {"num_threads": 2, "scheduler": "threads", "cpus": 2}
    text = said(trace(side_by_side(4), two_replicas(), **facts), "between the operators")
    assert "device 1 spends 40% of the step between the operators of its tasks, device 0" in text
    assert "take turns, as one thread of a process runs Python at a time" in text
    even = [replace(one, device=0, key=one.key) for one in side_by_side(4)[3:]]
    alone = said(trace(even, **facts), "between the operators")
    assert "enable_auto_fusion" in alone and "turns" not in alone
    busy = said(crowded(trace(even, **facts)), "between the operators")
    assert "threads wait for a processor" in busy and "enable_auto_fusion" not in busy


def in_one_thread():
    """Two devices, one after the other."""
    events = []
    for d in range(2):
        key = f"forward_backward_dev{d}-{d}"
        at = 5 * d
        events += [
            task(key, d, at, at + 5),
            event("mul", "op", d, key, at, at + 2, 0, 2 * d),
            event("mul_grad", "op", d, key, at + 2, at + 5, 0, 2 * d + 1),
        ]
    return trace(events, two_replicas(), scheduler="sync", cpus=2)


def test_more_threads_are_not_promised_to_do_what_python_does_in_one():
    made = in_one_thread()
    texts = ({"kind": "machine code", "name": "a"}, {"kind": "declaration", "name": "b"})
    made.graph["listings"] = list(texts)
    for node in made.graph["nodes"]:
        node["kernels"] = [0]
    assert '"threads" has more than one, if there are cores for them; without' in said(
        made, "all are at work"
    )
    for node in made.graph["nodes"]:
        node["kernels"] = [int(node["name"] == "mul_grad")]
    assert "60% of the work is done in Python" in said(made, "all are at work")


def test_one_change_of_threads_is_advised_once():
    found = [str(one) for one in analysis_of(in_one_thread()).advice]
    assert sum("all are at work" in text for text in found) == 1


def test_a_straggler_that_one_operator_makes_late_is_told_by_its_name():
    """Device 1 sleeps 3 seconds in an operator for which device 0 takes one."""
    made = straggling(2)

    def slower(one):
        if one.device == 1 and one.name == "mul":
            return replace(one, stop=one.start + 1)
        if one.device == 1 and one.name == "mul_grad":
            return replace(one, start=one.start - 1, args={"busy": 0.1})
        return one

    made = replace(made, events=tuple(map(slower, made.events)))
    rest = [replace(e, stop=e.start + 0.1) if e.name == "mul_grad" else e for e in made.events]
    text = said(replace(made, events=tuple(rest)), "for device 1")  # the operator takes too little
    assert "it spends 4.90 s a step between operators, and device 0 1.90 s" in text
    text = said(made, "for device 1")
    assert "mul_grad takes 5.00 s a step there, and 2.00 s on device 0; without" in text
    text = said(made, "of the critical path")
    assert "mul_grad takes 5.00 s of the critical path; for 70% of its time it has no proc" in text


def test_a_task_that_waits_for_its_thread_beside_a_free_one_is_said_once():
    """Four threads, of which one does all; without that, both devices need 5 of 10 seconds."""
    made = replace(in_one_thread(), meta={"num_threads": 4, "scheduler": "threads", "cpus": 2})
    text = said(made, "though it is ready")
    assert "device 1 waits 50% of the step until forward_backward_dev1 starts" in text
    assert "its thread has other work, the free one sleeps or has no processor" in text
    assert text.endswith("without that a step takes 50% less")
    assert "threads had none for 30% of the time with work" in said(crowded(made, 0.3), "is ready")


def test_devices_that_take_turns_on_fewer_processors_are_not_told_to_take_more_threads():
    """Eight threads for two devices on one processor; and one thread, which more would help."""
    made = replace(in_one_thread(), meta={"scheduler": "threads", "num_threads": 8, "cpus": 1})
    text = said(made, "2 devices take turns on 1 processor: 1 devices do as much")
    assert text.startswith("device 1 waits 50% of the step until forward_backward_dev1 starts")
    few = replace(made, meta={**made.meta, "num_threads": 1, "cpus": 2})
    assert "raise ExecutionStrategy.num_threads (now 1)" in said(few, "all are at work")


def small_buckets(count, seconds, name="all_reduce", waited=0.0, shape=(2, 2)):
    """A backward pass of a second, then collectives of 16 bytes, one after the other."""
    graph = GraphFile(2)
    events, at, before = [], 1.0, []
    for d in range(2):
        key = f"backward_dev{d}-{d}"
        graph.task(key, d, [graph.op("mul_grad", d, ["x"], ["h"], role="backward")])
        before.append(key)
        events += [task(key, d, 0, 1, d), event("mul_grad", "op", d, key, 0, 1, d, d)]
    for number in range(count):
        key = f"all_reduce-{2 + number}"
        ends = [(f"w{number}@GRAD", d, [*shape]) for d in range(2)]
        node = graph.op(name, None, ends, ends, role="collective", kind="all_reduce")
        graph.task(key, None, [node], before)
        end = at + seconds
        events += [
            task(key, None, at, end),
            event(name, "collective", None, key, at, end, 0, node, waited=waited),
        ]
        at = end
    return trace(events, graph, num_threads=2, scheduler="threads", cpus=2)


def test_many_small_collectives_are_named_with_what_one_would_save():
    text = said(small_buckets(10, 0.1), "collectives")
    assert text.startswith("a step has 10 collectives of 16 B each (the median), which take 100 ms")
    assert "BuildStrategy.fuse_all_reduce_ops = True joins those of a layer" in text
    assert text.endswith("without that a step takes 45% less")  # 0.9 of 2 seconds
    assert "FLAGS_fuse_parameter_memory_size" in said(
        small_buckets(10, 0.1, "fused_all_reduce"), "collectives"
    )
    assert not said(small_buckets(3, 0.1), "collectives")  # they are few
    assert not said(small_buckets(10, 1e-8), "collectives")  # bytes explain their time
    assert not said(small_buckets(10, 0.1, waited=0.1), "collectives")  # waits for others do
    assert not said(small_buckets(10, 0.1, shape=[-1, 2]), "collectives")  # rows stay apart


def crowded(made, share=0.8):
    """The trace, if its threads had no processor for a share of the time with work."""
    rows = [[0.0, 0.0, 0.0], [10.0, 20 * (1 - share), 20 * share]]
    return replace(made, meta={**made.meta, "processors": rows})


def test_a_straggler_that_is_late_between_operators_is_not_blamed_on_its_core():
    events = side_by_side(4)
    events.append(event("all_reduce", "collective", None, "all_reduce-2", 10, 11, 0, 4))
    facts = {"num_threads": 2, "scheduler": "threads", "cpus": 2}
    text = said(trace(events, two_replicas(), **facts), "for device 1")
    assert "it spends 4.00 s a step between operators, and device 0 100 ms" in text


def test_lack_of_processors_is_named_in_place_of_what_it_only_looks_like():
    why = "for 80% of the time in which they have work, threads wait for a processor"
    assert f"it is fed as many rows, and {why}" in said(crowded(fed((4, 4))), "for device 1")
    fetching = [task("forward_dev0-0", 0, 0, 5), event("Fetch", "fetch", None, "Fetch", 5, 10)]
    text = said(crowded(trace(fetching, two_replicas())), "of it Fetch")
    assert f"of it Fetch: {why}" in text and "variables" not in text
    assert "larger batches fetch less often" in said(trace(fetching, two_replicas()), "it Fetch")


def test_a_run_in_reduce_mode_is_not_told_to_use_it():
    keys = ["forward_backward_dev0-0", "forward_backward_dev1-1"]
    events = [task(key, d, 0, 2, d) for d, key in enumerate(keys)]
    events.append(event("all_reduce", "collective", None, "all_reduce-2", 2, 10, 0, 4))
    assert "Reduce mode spreads it" in said(trace(events, two_replicas()), "communication")
    text = said(trace(events, two_replicas(), mode="reduce"), "communication")
    assert "larger batches need it less often; without" in text


def test_a_straggler_of_a_cluster_is_named_with_its_worker():
    made = straggling()
    events = [
        replace(e, args={**e.args, "worker": f"tcp://host-{e.device}"})
        if e.device is not None
        else e
        for e in made.events
    ]
    there = replace(made, events=tuple(events), meta={**made.meta, "scheduler": "distributed"})
    text = " ".join(str(viz.analyse(there)).split())
    assert "for device 1 (worker tcp://host-1), whose" in text
    assert "device 0 (worker tcp://host-0): " in text
    assert "worker" not in str(viz.analyse(made))


def test_forecasts_have_the_range_of_the_replayed_steps():
    text = str(viz.analyse(straggling(9)))
    assert "In brackets: the range over 9 replayed steps." in text
    assert "-20% (20–20%)" in text  # all steps are alike
    assert "In brackets" not in str(viz.analyse(straggling(1)))
