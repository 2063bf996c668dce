"""Views of nets with large tables on a cluster: what is copied, and what is sent whole."""

from dpexec.viz.advising.analysis import analysis_of

from dpexec import viz
from tests.viz.traces import GraphFile, event, task, trace

ROWS = 1_000_000
CLUSTER = {"scheduler": "distributed", "num_threads": 1, "cpus": 2}


def embedding(late, send=2.0, mode="reduce"):
    """A step of two workers whose gradient is sparse: updates begin late, then the table is sent.

    Seconds 0 to 1: forward and backward; to 2: the rows are summed on device 0; after a delay of
    `late` an update of a second, then a broadcast.
    """
    graph = GraphFile(2, mode)
    shape = [ROWS, 4]
    events, before = [], []
    for d in range(2):
        key = f"forward_backward_dev{d}-{d}"
        ends = [("w@GRAD", d, [-1, 4])]
        node = graph.op("lookup_table_grad", d, [("w", d, shape)], ends, role="backward")
        graph.task(key, d, [node])
        before.append(key)
        events += [task(key, d, 0, 1, d), event("lookup_table_grad", "op", d, key, 0, 1, d, node)]
    pair = [("w@GRAD", d, [-1, 4]) for d in range(2)]
    ends = pair[:1] if mode == "reduce" else pair
    node = graph.op(mode, None, pair, ends, role="collective", kind=mode)
    graph.task("reduce-2", None, [node], before)
    facts = {"bytes": 1600, "worker": "0"}
    events.append(event(mode, "collective", None, "reduce-2", 1, 2, 0, node, **facts))
    key, at = "optimizer_dev0-3", 2 + late
    node = graph.op("sgd", 0, [("w", 0, shape)], [("w", 0, shape)], role="optimize")
    graph.task(key, 0, [node], ["reduce-2"])
    events += [task(key, 0, at, at + 1, 0), event("sgd", "op", 0, key, at, at + 1, 0, node)]
    if mode == "reduce":
        ends = [("w", 1, shape)]
        node = graph.op("broadcast", None, ["w"], ends, role="collective", kind="broadcast")
        graph.op("broadcast", 0, [("w", 0)], ends, role="collective", kind="broadcast")
        graph.task("broadcast-4", None, [node], [key])
        stop = at + 1 + send
        events.append(event("broadcast", "collective", None, "broadcast-4", at + 1, stop, 0, node))
    return trace(events, graph, mode=mode, **CLUSTER)


def texts(made):
    return [str(one) for one in analysis_of(made).advice]


def test_a_table_that_reduce_mode_sends_whole_is_named_with_its_rows():
    (text,) = [text for text in texts(embedding(0)) if "Reduce mode" in text]
    assert text.startswith("Reduce mode sends w to all devices after each update, 15.3 MiB")
    assert "their rows take 1.56 KiB; AllReduce mode" in text
    assert text.endswith("without that a step takes 40% less")  # 2 of 5 seconds
    assert not any("Reduce mode" in text for text in texts(embedding(0, mode="all_reduce")))


def test_copies_of_recorded_steps_are_no_wait_for_a_scheduler():
    said = str(viz.analyse(embedding(2)))
    flat = " ".join(said.split())
    assert "29% of a step, 2.00 s, pass before updates begin: steps that are recorded on a" in flat
    assert "was ready 2.00 s before it began, as it first copied what it updates, 15.3 MiB" in flat
    assert "though it is ready and a thread is free: it first copied" in flat
    assert "copied" not in str(viz.analyse(embedding(0)))
    here = embedding(2)
    here.meta["scheduler"] = "threads"
    assert "copied" not in str(viz.analyse(here))
