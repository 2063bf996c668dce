"""Inputs that ``ParallelDo`` pre-fetches are divided by the loader or before the run."""

import threading

import pytest

import dpexec as fluid
from dpexec.engine.compile.plans import parallel_do as running
from dpexec.engine.core.errors import EnforceNotMet
from tests.engine.run.parallel_do_programs import (
    CPU,
    assert_close,
    built,
    graph_of,
    normal,
    parallel_do,
    train,
)

layers = fluid.layers


def fed_straight(pre_fetch):
    def build(places):
        x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1])
        pd = parallel_do(places)
        with pd.do():
            x_ = pd.pre_fetch(x) if pre_fetch else pd.read_input(x)
            pd.write_output(layers.fc(layers.dropout(x_, 0.2, seed=1), 1))
        return layers.mean(layers.square_error_cost(pd(), label)), []

    return build


@pytest.mark.parametrize("rows", [7, 2])
def test_pre_fetched_input_is_split_without_a_node(rows):
    feed = {"x": normal(rows, 4), "label": normal(rows, 1)}
    first, second = (train(fed_straight(ahead), feed, 3) for ahead in (False, True))
    assert_close(second, first, 0)
    main, *_ = built(fed_straight(True), 3)
    kinds = [node.kind for node in graph_of(main).ops]
    assert kinds.count("split") == 1  # of the gradient


def test_loader_splits_pre_fetched_input_in_its_thread(monkeypatch):
    batches = [(normal(rows, 4), normal(rows, 1)) for rows in (7, 2, 5)]
    threads = set()
    original = running._split

    def split(*arguments):
        threads.add(threading.current_thread().name)
        return original(*arguments)

    monkeypatch.setattr(running, "_split", split)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        loss, _ = fed_straight(True)(3)
        fluid.optimizer.SGD(0.1).minimize(loss)
        block = main.global_block()
        loader = fluid.io.DataLoader.from_generator(
            [block.var("x"), block.var("label")], capacity=4, iterable=False
        )
    loader.set_batch_generator(lambda: iter(batches))
    exe, losses = fluid.Executor(CPU), []
    for by_loader in (True, False):
        scope = fluid.Scope()
        exe.run(startup, scope=scope)
        if by_loader:
            loader.start()
        for x, label in batches:
            feed = None if by_loader else {"x": x, "label": label}
            losses.append(exe.run(main, feed, [loss], scope=scope)[0])
        if by_loader:
            assert threads == {"dpexec-prefetch"}
            with pytest.raises(fluid.core.EOFException):
                exe.run(main, fetch_list=[loss], scope=scope)
            loader.reset()
    assert losses[:3] == losses[3:]


def test_pre_fetched_inputs_of_different_lengths_are_named():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 4])
        for others in (True, False):
            pd = parallel_do(2)
            with pd.do():
                y_ = pd.pre_fetch(y) if others else pd.read_input(y)
                pd.write_output(layers.elementwise_add(pd.pre_fetch(x), y_))
            feed = {"x": normal(4, 4), "y": normal(6, 4)}
            with pytest.raises(EnforceNotMet, match=r"x has 4 and y has 6|y has 6 and x has 4"):
                fluid.Executor(CPU).run(main, feed, [pd()])
