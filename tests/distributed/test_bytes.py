"""The bytes that steps move between workers, as traces show them."""

import numpy as np
import pytest
from dpexec.viz.measured.runs import runs_of
from dpexec.viz.measured.schedule import Schedule

from dpexec.engine.cluster.client import links
from dpexec.engine.compile.plans.bucket_size import Link
from tests.distributed.nets import NETS
from tests.engine.run.nets import AllReduce, Reduce, assert_same_bits, train, words

LINE = 64  # bytes; what arrays in a frame are padded to


@pytest.fixture
def sockets(pair):
    """Workers that take each other for other hosts."""

    def set_host(host):
        from dpexec.engine.exchange import rendezvous

        if host is None:
            rendezvous.host_id = rendezvous.original
        else:
            rendezvous.original, rendezvous.host_id = rendezvous.host_id, lambda: host

    pair.run(set_host, "")
    yield pair
    pair.run(set_host, None)


def collectives_of(run):
    """The collectives of the last step."""
    trace = run.compiled.trace
    return [e for e in trace if e.kind == "collective" and e.step == trace.steps[-1]]


def bytes_for_the_table(client, ids, vocabulary):
    """What the owner of a table receives when both replicas look up some words."""
    rows = np.array(ids, "int64").reshape(-1, 4)
    feed = {"x": np.concatenate([rows, rows]), "y": np.zeros((2 * len(rows), 1), "int64")}
    options = {"scheduler": client, "collectives": "gang", "trace": True}
    run = train(words(vocabulary=vocabulary), [feed], 2, **options)
    return sum(e.args["received"] for e in collectives_of(run) if e.name == "reduce")


def test_only_rows_that_were_looked_up_travel_each_once(sockets):
    width = 5 * 4
    for ids, different in ([7] * 8, 1), ([1, 2, 3, 4, 5, 6, 7, 8], 8), ([1, 2] * 4, 2):
        frame = LINE + -(-8 * different // LINE) * LINE + -(-width * different // LINE) * LINE
        assert bytes_for_the_table(sockets, ids, vocabulary=1000) == frame
    assert frame < 1000 * width / 100  # of a dense gradient


def total(events, fact):
    return sum(event.args.get(fact, 0) for event in events)


def test_dense_gradients_go_through_memory_on_one_host(pair):
    options = {"scheduler": pair, "collectives": "gang", "trace": True}
    events = collectives_of(train(*NETS["mlp"](), 2, **options))
    assert total(events, "shared") > total(events, "bytes") / 2
    assert total(events, "sent") < total(events, "bytes") / 10


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_every_worker_of_a_gang_shows_its_part_of_collectives(pair, mode):
    options = {"scheduler": pair, "collectives": "gang", "trace": True}
    trace = train(*NETS["mlp"](), 2, mode, **options).compiled.trace
    step = [e for e in trace if e.step == trace.steps[-1]]
    homes = {e.device: e.args["worker"] for e in step if e.name.startswith("forward")}
    assert len(set(homes.values())) == 2
    workers = {e.args["worker"] for e in step if e.kind == "collective"}
    assert workers == set(homes.values())
    for node in {e.node for e in step if e.kind == "collective"}:
        assert {e.args["worker"] for e in step if e.node == node} == workers
    for one in step:
        if one.device is not None:
            assert homes[one.device] == one.args["worker"]
    fed = [(row.device, row.name) for row in trace.memory if row.kind == "feed" and row.bytes > 0]
    assert len(fed) == len(trace.steps) * len(set(fed))  # each is counted once a step
    runs = runs_of(Schedule(trace), Schedule(trace).steps[-1])
    for run, before in zip(runs.runs, runs.before, strict=True):
        if run.name.startswith("optimizer"):  # it waits for what its own worker has received
            sums = [runs.runs[at] for at in before if "reduce" in runs.runs[at].name]
            assert sums
            assert {one.worker for one in sums} == {run.worker}
        if run.worker is not None:
            assert {homes[device] for device in run.devices} == {run.worker}


def test_dense_gradients_go_through_sockets_between_hosts(sockets):
    options = {"scheduler": sockets, "collectives": "gang", "trace": True}
    events = collectives_of(train(*NETS["mlp"](), 2, **options))
    gradients = total(events, "bytes")
    assert total(events, "shared") == 0
    assert gradients <= total(events, "sent") < 1.1 * gradients
    assert gradients <= total(events, "received") < 1.1 * gradients


def test_transfers_of_tasks_say_what_they_brought(pair):
    options = {"scheduler": pair, "collectives": "tasks", "trace": True}
    trace = train(*NETS["mlp"](), 2, **options).compiled.trace
    moved = [event.args["bytes"] for event in trace if event.kind == "transfer"]
    gradients = sum(e.args["bytes"] for e in trace if e.kind == "collective")
    assert sum(moved) >= gradients  # those of the other replica come, and the sums go back


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_replicas_of_a_worker_are_added_up_before_a_sum_travels(pair, monkeypatch, mode):
    monkeypatch.setattr(links, "TASKS", Link(0.0, 1e9))  # as if only bytes took time
    net, feeds = NETS["mlp"]()
    options = {"scheduler": pair, "collectives": "tasks", "trace": True}
    run = train(net, feeds, 6, mode, **options)
    assert_same_bits(run, train(net, feeds, 6))
    trace = run.compiled.trace
    came = [e for e in trace if e.kind == "transfer" and e.step == trace.steps[-1]]
    assert not any(e.args["keys"][0].startswith("forward") for e in came)  # no single gradient
    if mode == AllReduce:
        sums = [e for e in came if e.args["keys"][0].startswith("all_reduce")]
        gradients = sum(run.state[p.name].nbytes for p in net.main.all_parameters())
        assert total(sums, "bytes") == 2 * gradients  # a part of each sum goes, and a sum comes


def test_large_parameters_come_without_advice_to_load_them_with_dask(pair):
    table = 12e6
    feed = {"x": np.zeros((2, 4), "int64"), "y": np.zeros((2, 1), "int64")}
    net, options = words(vocabulary=int(table / (5 * 4))), {"collectives": "tasks"}
    run = train(net, [feed], 2, scheduler=pair, **options)
    assert max(value.nbytes for value in run.state.values()) >= table
