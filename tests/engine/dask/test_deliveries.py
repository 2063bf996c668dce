"""How blocks of fed Dask collections travel to the workers of the replicas."""

from types import SimpleNamespace

import numpy as np
import pytest
from distributed import CancelledError

from dpexec.engine.cluster.gang_messages import AlikeSteps, Order
from dpexec.engine.cluster.messages import GangStep
from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.core.errors import WorkerLostError
from dpexec.engine.dask import held as held_rows
from dpexec.engine.dask.deliveries import StepRows, arrive, fed_to, rows_of
from dpexec.engine.dask.held import BlockRows, HeldBlocks, HeldRows
from dpexec.engine.exchange.wire import GangError

ROWS = {"x": np.arange(20).reshape(10, 2), "y": np.arange(10)}


class Block:
    """A future of something that is known."""

    def __init__(self, key, value, status="finished"):
        self.key, self.value, self.status = key, value, status


class Cluster:
    """Workers that hold blocks, and do at once what they are sent."""

    limit = 3.0

    def __init__(self, **holders):
        self._holders, self.sent = holders, []
        self.client = self
        self.reachability = SimpleNamespace(between=lambda one, other: True, pause=0.0, apart={})

    def holders(self, keys):
        return {key: self._holders.get(key, ()) for key in keys}

    def silent(self):
        return frozenset()

    def submit(self, function, *args, workers, allow_other_workers=False):
        self.sent.append((function.__name__, workers))
        given = [arg.value if isinstance(arg, Block) else arg for arg in args]
        names = [getattr(arg, "key", arg) for arg in args]
        return Block(f"{function.__name__}-{names}", function(*given))


def lasting(block):
    """A block that dask never gives up."""
    return held_rows.Block(block, lambda anew: pytest.fail("it was there"))


def held(block, first=0, end=10):
    """Arrays of a batch of some rows of a block."""
    return cut(whole(block), first, end)


def whole(block):
    rows = HeldBlocks([BlockRows(lasting(block), 10, 0, 10)])
    return {n: HeldRows(rows, 0, a.shape, a.dtype, n) for n, a in ROWS.items()}


def cut(rows, first, end):
    return {name: array[first:end] for name, array in rows.items()}


def given(fed):
    """What a worker makes of it."""
    blocks = {}
    found = dict(fed.values)
    for rows in rows_of([fed], blocks):
        found.update(*rows.batches([block.value for block in blocks.values()]))
    return found


def assert_rows(fed, first, end):
    found = given(fed)
    for name, array in ROWS.items():
        assert np.array_equal(found[name], array[first:end])


def test_blocks_that_dask_has_given_up_are_computed_again():
    cluster, made = Cluster(part=["a"]), []

    def again(anew):
        made.append(Block("part", ROWS))
        return made[-1]

    lost = held_rows.Block(Block("part", {}, "cancelled"), again)
    rows = HeldBlocks([BlockRows(lost, 10, 0, 10)])
    values = {n: HeldRows(rows, 0, a.shape, a.dtype, n) for n, a in ROWS.items()}
    for fed in fed_to(cluster, [("b", cut(values, 2, 6)), ("a", cut(values, 6, 9))])[:1]:
        assert_rows(fed, 2, 6)
    assert len(made) == 1 and lost.future is made[0]


def test_blocks_that_dask_gives_up_meanwhile_are_lost(monkeypatch):
    def gone(self, futures):
        raise CancelledError(futures)

    monkeypatch.setattr(Cluster, "holders", gone)
    with pytest.raises(WorkerLostError, match="dask gave up rows that are fed"):
        fed_to(Cluster(), [("b", held(Block("part", ROWS)))])


def test_rows_of_several_steps_are_cut_out_together():
    cluster, rows = Cluster(part=["a"]), whole(Block("part", ROWS))
    shares = [("a", cut(rows, 0, 2)), ("b", cut(rows, 2, 4))]
    shares += [("a", cut(rows, 4, 6)), ("b", cut(rows, 6, 8))]
    fed = fed_to(cluster, shares, stay=True)
    assert cluster.sent == [("_rows", ["a"]), ("_kept", ["b"])]  # what lies on a stays there
    for each, first in zip(fed, (0, 2, 4, 6), strict=True):
        assert_rows(each, first, first + 2)
    blocks = {}
    (found,) = rows_of([fed[1], fed[3]], blocks)
    assert found == StepRows({"x": "x", "y": "y"}, [1, 1], [(0, 0, 2), (0, 2, 4)])
    assert len(blocks) == 1
    assert {each.holders for each in fed} == {frozenset("a")}


def test_what_is_on_its_way_is_not_sent_again():
    cluster, rows = Cluster(part=["a"]), whole(Block("part", ROWS))
    shares = [("b", cut(rows, first, first + 2)) for first in (0, 4, 6)]
    fed_to(cluster, shares, stay=True, until="homes")
    sent = list(cluster.sent)
    for share, first in zip(shares, (0, 4, 6), strict=True):
        (fed,) = fed_to(cluster, [share], stay=True, until="homes")
        assert_rows(fed, first, first + 2)
    assert cluster.sent == sent
    fed_to(cluster, shares, stay=True, until="other homes")
    assert cluster.sent == 2 * sent
    shares.append(("b", cut(rows, 1, 2)))
    for _ in range(2):  # what is new comes beside the rest
        fed = fed_to(cluster, shares, stay=True, until="other homes")
        assert cluster.sent == 3 * sent
        for each, first in zip(fed, (0, 4, 6), strict=False):
            assert_rows(each, first, first + 2)
        assert_rows(fed[3], 1, 2)


def test_whole_blocks_are_not_cut():
    cluster, rows = Cluster(part=["a"]), whole(Block("part", ROWS))
    fed = fed_to(cluster, [("b", cut(rows, 0, 5)), ("b", cut(rows, 5, 10))])
    assert cluster.sent == []  # a task of b takes it
    assert_rows(fed[1], 5, 10)
    fed_to(cluster, [("b", rows)], stay=True)
    assert cluster.sent == [("_kept", ["b"])]


def test_the_same_rows_in_every_step_come_once():
    cluster, rows = Cluster(part=["a"]), held(Block("part", ROWS), 3, 7)
    fed = fed_to(cluster, [("b", rows)] * 3)
    assert cluster.sent == [("_rows", ["a"])]
    for each in fed:
        assert_rows(each, 3, 7)


def test_a_batch_of_several_blocks():
    cluster = Cluster(one=["a"], other=["b"])
    one, other = Block("one", ROWS), Block("other", ROWS)
    rows = HeldRows.joined([held(one, 8, 10), held(other, 0, 3)])
    (fed,) = fed_to(cluster, [("a", {**rows, "z": np.ones(1)})])
    found = given(fed)
    assert found["y"].tolist() == [8, 9, 0, 1, 2] and found["z"].tolist() == [1]
    assert fed.holders == {"a", "b"}


def test_a_block_that_nobody_holds_yet_may_be_computed_anywhere():
    cluster = Cluster()
    fed_to(cluster, [("a", held(Block("part", ROWS, "pending"), 0, 2))])
    assert cluster.sent == [("_rows", None)]


def wait(cluster, fed):
    """Wait until rows are on worker b."""
    blocks, (part,) = {}, fed
    rows_of(fed, blocks)
    arrive(cluster, [*blocks.values()], part.holders, {"b": (0,)})


def test_who_is_gone_is_waited_for_no_more():
    cluster = Cluster(part=["a"])
    cluster.ended = lambda blocks, seconds: False
    cluster.missing = lambda homes, what, holders=(): {"b": "has left the cluster"}
    fed = fed_to(cluster, [("b", held(Block("part", ROWS, "pending")))])
    with pytest.raises(WorkerLostError, match=r"worker b has left the cluster, .*fed rows") as lost:
        wait(cluster, fed)
    assert lost.value.lost == {"b": "has left the cluster"}


def test_holders_that_are_not_reached_are_found():
    cluster = Cluster(part=["a"])
    apart = cluster.reachability.apart
    cluster.ended, cluster.missing = (
        (lambda blocks, seconds: False),
        (lambda homes, what, holders=(): {}),
    )
    cluster.check = lambda near, what: apart.update({frozenset("ab"): "b does not reach a"})
    cluster.reachability.among = lambda near: apart
    fed = fed_to(cluster, [("b", held(Block("part", ROWS, "pending")))])
    with pytest.raises(WorkerLostError, match="b does not reach a, awaited to bring fed rows"):
        wait(cluster, fed)


def test_steps_take_rows_in_turn():
    """Also those that lie in several blocks, and no rows at all."""
    blocks = [{"y": np.arange(10)}, {"y": np.arange(10, 20)}]
    rows = StepRows({"z": "y"}, [1, 2, 1], [(0, 6, 8), (0, 8, 10), (1, 0, 1), (1, 4, 4)])
    found = [batch["z"] for batch in rows.batches(blocks)]
    assert [batch.tolist() for batch in found] == [[6, 7], [8, 9, 10], []]
    assert np.shares_memory(found[0], blocks[0]["y"])


@pytest.mark.parametrize("size", [1, 3, 4, 7])
def test_any_ranges_of_any_blocks(size):
    """On two workers, of which each holds some of the blocks."""
    lengths, total = (4, 0, 1, 9, 6), 20
    names = [f"part{number}" for number in range(len(lengths))]
    numbers = np.split(np.arange(total), np.cumsum(lengths)[:-1])
    cluster = Cluster(**{name: ["ab"[n % 2]] for n, name in enumerate(names)})
    parts = []
    for name, own in zip(names, numbers, strict=True):
        rows = HeldBlocks([BlockRows(lasting(Block(name, {"y": own})), len(own), 0, len(own))])
        parts.append({"y": HeldRows(rows, 0, own.shape, own.dtype, "y")})
    rows = HeldRows.joined(parts)
    assert len(rows["y"]) == total
    firsts = range(0, total - size + 1, size)
    shares = [("ab"[n % 2], cut(rows, f, f + size)) for n, f in enumerate(firsts)]
    fed = fed_to(cluster, shares, stay=True)
    for worker in (0, 1):
        blocks = {}
        (own,) = rows_of(fed[worker::2], blocks)
        found = own.batches([block.value for block in blocks.values()])
        for first, batch in zip(firsts[worker::2], found, strict=True):
            assert batch["y"].tolist() == list(range(first, first + size))


def test_orders_name_what_lies_on_the_worker():
    first = GangStep(0, (), 7, {}, {0: Shard(run=3)}, frozenset())
    rows = {0: [StepRows({"y": "y"}, [1, 1], [(0, 1, 3), (0, 3, 5)])]}
    order = Order(0, [AlikeSteps(first, [{0: {}}, {0: {"z": 1}}], rows, [8, 9])], blocks=["part"])
    assert (order.first, order.last) == (7, 8)
    one, other = order.with_blocks({"part": ROWS}).each()
    assert one.values[0]["y"].tolist() == [1, 2] and other.values[0]["y"].tolist() == [3, 4]
    assert (other.number, other.values[0]["z"]) == (8, 1)
    assert [(step.shards[0].run, step.shards[0].entropy) for step in (one, other)] == [
        (3, 8),
        (4, 9),
    ]
    with pytest.raises(GangError, match="fed rows 'part' have left the worker"):
        order.with_blocks({})
