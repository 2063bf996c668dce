"""Runs of a part of a program: ``use_prune``, and fetched updates."""

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.run.nets import persistables


@pytest.fixture
def two_losses():
    """Two regressions on one input, each with its own optimizer."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4], "float32")
        y = fluid.data("y", [None, 1], "float32")
        losses, results = [], []
        for name in "ab":
            guess = fluid.layers.fc(x, 1, name=name)
            losses.append(fluid.layers.mean(fluid.layers.square_error_cost(guess, y)))
            results.append(fluid.optimizer.SGD(0.1).minimize(losses[-1]))
    scope = fluid.Scope()
    fluid.Executor().run(startup, scope=scope)
    rng = np.random.RandomState(0)
    feed = {"x": rng.randn(5, 4).astype("f4"), "y": rng.randn(5, 1).astype("f4")}
    return main, scope, losses, results, feed


def changed(main, scope, run):
    before = persistables(main, scope)
    run()
    after = persistables(main, scope)
    return {name for name in before if not np.array_equal(before[name], after[name])}


@pytest.mark.parametrize("whole", [True, False])
def test_fetched_optimizer_operators_are_the_only_updates(two_losses, whole):
    main, scope, losses, results, feed = two_losses
    wanted = [results[0]] if whole else results[0][0]
    fetched = []

    def run():
        fetch_list = [losses[0], *wanted]
        fetched.extend(fluid.Executor().run(main, feed, fetch_list, scope=scope))

    assert changed(main, scope, run) == {"a.w_0", "a.b_0"}
    assert len(fetched) == 1


def test_use_prune_keeps_all_updates(two_losses):
    main, scope, losses, _, feed = two_losses

    def run():
        fluid.Executor().run(main, feed, [losses[0]], scope=scope, use_prune=True)

    assert changed(main, scope, run) == {"a.w_0", "a.b_0", "b.w_0", "b.b_0"}


def test_other_operators_cannot_be_fetched(two_losses):
    main, scope, _, _, feed = two_losses
    with pytest.raises(TypeError, match="operator mul in fetch_list is no optimizer operator"):
        fluid.Executor().run(main, feed, [main.global_block().ops[0]], scope=scope)


def test_fetched_lists_are_flat():
    x = fluid.data("x", [3, 2], "float32")
    x.stop_gradient = False
    slopes = fluid.gradients([x * x], [x])
    rows = np.arange(6, dtype="f4").reshape(3, 2)
    found = fluid.Executor().run(feed={"x": rows}, fetch_list=[slopes, [x, slopes[0]]])
    for array, expected in zip(found, [2 * rows, rows, 2 * rows], strict=True):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_fed_is_not_computed(compiled):
    hidden = fluid.layers.scale(fluid.data("x", [None, 2], "float32"), 2.0)
    out = fluid.layers.scale(hidden, 10.0)
    program = fluid.default_main_program()
    if compiled:
        program = fluid.CompiledProgram(program).with_data_parallel(places=fluid.cpu_places(2))
    feed = {hidden.name: np.ones((4, 2), "f4"), "x": np.zeros((4, 2), "f4")}
    (found,) = fluid.Executor().run(program, feed, [out], use_prune=True)
    np.testing.assert_array_equal(found, np.full((4, 2), 10.0))


@pytest.mark.parametrize("mode", ["AllReduce", "Reduce"])
def test_replicas_make_one_update_or_the_other(two_losses, mode):
    main, scope, losses, results, feed = two_losses
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = getattr(fluid.BuildStrategy.ReduceStrategy, mode)
    replicas = fluid.CompiledProgram(main).with_data_parallel(
        losses[0].name, strategy, places=fluid.cpu_places(2)
    )
    exe, found = fluid.Executor(), []
    for which, names in [(0, {"a.w_0", "a.b_0"}), (1, {"b.w_0", "b.b_0"}), (0, {"a.w_0", "a.b_0"})]:

        def run(which=which):
            fetch_list = [losses[which], results[which]]
            found.append(exe.run(replicas, feed, fetch_list, scope=scope)[0].mean())

        assert changed(main, scope, run) == names
    assert found[2] < found[0]
