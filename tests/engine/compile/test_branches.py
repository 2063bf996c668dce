"""Expensive branches of a net run on several cores with the bits of a single task."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.compile.plans import compilation
from dpexec.engine.compile.plans import partition as partitioning
from dpexec.engine.compile.plans.branches import multiplications, stages_of
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.graph.kinds import COMPUTE
from dpexec.engine.graph.ssa import OpNode, VarNode
from tests.engine.run.nets import Net, assert_same_bits, batches, classifier, persistables, train

WIDTH = 256  # of a layer


def towers(forks=1):
    """Two branches of a layer, which meet, several times; a classifier, which counts its hits."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 8], "float32")
        y = fluid.data("y", [None, 1], "int64")
        stem = fluid.layers.fc(x, WIDTH, act="relu")
        for _ in range(forks):
            parts = [fluid.layers.dropout(fluid.layers.fc(stem, WIDTH), 0.2) for _ in range(2)]
            stem = fluid.layers.elementwise_add(*parts)
        prediction = fluid.layers.fc(stem, 3, act="softmax")
        fluid.layers.accuracy(prediction, y)
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        fluid.optimizer.Adam(0.01).minimize(loss)
    return Net(main, startup, loss, None, prediction)


@pytest.fixture
def cores(monkeypatch):
    """Sets how many cores there are; a layer of ``WIDTH`` makes a branch expensive."""
    monkeypatch.setattr(partitioning, "stages_of", partial(stages_of, least=WIDTH * WIDTH))
    return lambda count: monkeypatch.setattr(compilation, "available_cpus", lambda: count)


def siblings(plan):
    """Numbers of nodes of the tasks that wait for the same task at last."""
    found = {}
    for task in plan.tasks:
        found.setdefault(max(task.after, default=-1), []).append(len(task.nodes))
    return [counts for counts in found.values() if len(counts) > 1]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("devices", [1, 2])
def test_branches_give_the_bits_of_one_task(native, devices, cores):
    runs = []
    for count in (1, 8):
        cores(count)
        runs.append(train(towers(2), batches(5), devices, native_kernels=native, num_threads=4))
    assert_same_bits(*runs)
    serial, parallel = (run.compiled.plan for run in runs)
    assert (serial.width, parallel.width) == (devices, 2 * devices)


def test_both_passes_of_both_branches_are_tasks(cores):
    cores(2)
    plan = train(towers(), batches(1)).compiled.plan
    forward, backward = siblings(plan)
    assert len(forward) == len(backward) == 2
    last = plan.tasks[-1]
    assert last.id in plan.updates
    assert set(last.after) >= {t.id for t in plan.tasks[:-1] if "backward" in t.key[0]}


def test_branches_take_little_more_memory(cores):
    taken = []
    for count in (1, 2):
        cores(count)
        compiled = train(towers(forks=4), batches(1, rows=32)).compiled
        sizes = compiled._engine.bindings.memory.sizes
        taken.append(sum(nbytes for (use, *_), nbytes in sizes.items() if use == "arena"))
    assert 0 < taken[1] < 1.15 * taken[0]


def test_nothing_is_divided_without_free_cores_or_expensive_branches(cores):
    cores(2)
    assert train(towers(), batches(1), 2).compiled.plan.width == 2
    cores(8)
    assert train(classifier(), batches(1)).compiled.plan.width == 1
    in_order = train(towers(), batches(1), enable_sequential_execution=True)
    assert in_order.compiled.plan.width == 1


def test_a_branch_that_fails_changes_nothing(cores):
    cores(2)
    net = towers()
    good, bad = batches(2)
    bad["y"][0] = 7
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, places=[fluid.CPUPlace()]
        )
        exe.run(compiled, feed=good)
        before = persistables(net.main, fluid.global_scope())
        with pytest.raises(EnforceNotMet, match="cross_entropy"):
            exe.run(compiled, feed=bad)
        after = persistables(net.main, fluid.global_scope())
    assert all(np.array_equal(before[name], after[name]) for name in before)


def graph(edges, count):
    """Nodes with an edge from each number to each that needs it."""
    nodes = [OpNode(i, COMPUTE, str(i), 0, "forward") for i in range(count)]
    for number, (source, target) in enumerate(edges):
        var = VarNode(number, str(number), 0, 0, writer=nodes[source])
        nodes[target].inputs.append(var)
    return nodes


def names(stages):
    return [[[int(node.name) for node in part] for part in stage] for stage in stages]


def test_a_fork_with_cheap_neighbours():
    #    0 -> 1 -> 2 -> 5 -> 6, 0 -> 3 -> 4 -> 5; 7 is needed by 5; 8 reads 2; 9 hangs at 0
    edges = [(0, 1), (1, 2), (0, 3), (3, 4), (2, 5), (4, 5), (5, 6), (7, 5), (2, 8), (0, 9), (9, 5)]
    order = [7, 0, 1, 3, 9, 2, 8, 4, 5, 6]
    nodes = graph(edges, 10)
    costs = {0: 1, 1: 5, 2: 1, 3: 4, 4: 4, 6: 1}
    stages = stages_of([nodes[i] for i in order], lambda node: costs.get(node.id, 0), least=6)
    assert names(stages) == [[[7, 0]], [[9, 1, 2], [3, 4]], [[5, 6, 8]]]
    assert names(stages_of(nodes, lambda node: costs.get(node.id, 0), least=9)) == [
        [list(range(10))]
    ]


def test_stages_keep_all_nodes_and_their_order():
    rng = np.random.default_rng(0)
    forks = 0
    for _ in range(300):
        count = int(rng.integers(1, 14))
        pairs = [(a, b) for b in range(count) for a in range(b)]
        edges = [pair for pair in pairs if rng.random() < 1.5 / count]
        costs = rng.integers(0, 3, count)
        nodes = graph(edges, count)
        stages = names(stages_of(nodes, lambda node: int(costs[node.id]), least=2))  # noqa: B023
        place = {n: (s, p) for s, stage in enumerate(stages) for p, part in enumerate(stage)
                 for n in part}  # fmt: skip
        order = [n for stage in stages for part in stage for n in part]
        assert sorted(order) == list(range(count))
        for a, b in edges:
            assert order.index(a) < order.index(b)
            assert place[a][0] < place[b][0] or place[a] == place[b]
        forks += any(len(stage) > 1 for stage in stages)
    assert forks > 30


def test_products_count():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        image = fluid.data("x", [None, 4, 8, 8], "float32")
        made = fluid.layers.conv2d(image, 16, 3, padding=1, bias_attr=False)
        made = fluid.layers.fc(made, 10, bias_attr=False)
        fluid.layers.matmul(made, made, transpose_y=True)
    found = {op.type: multiplications(OpNode(0, COMPUTE, op.type, 0, "forward", op))
             for op in main.global_block().ops}  # fmt: skip
    assert found == {"conv2d": 16 * 64 * 4 * 9, "mul": 16 * 64 * 10, "matmul": 10}
