"""Users' own passes: ``BuildStrategy.append_pass``."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import viz
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.passes import fused, pairs
from tests.engine.run.nets import Net


class MergeScales:
    """Two scales in a row are one."""

    name = "merge_scales"

    def rewrite(self, operators):
        changes = {}
        for first, second in pairs(operators.uses(), "scale", "Out", ("scale",)):
            factor, shift = second.attrs["scale"], second.attrs.get("bias", 0.0)
            attrs = {
                "scale": first.attrs["scale"] * factor,
                "bias": first.attrs.get("bias", 0.0) * factor + shift,
            }
            changes[first] = None
            changes[second] = fused(first, second, "scale", first.inputs, second.outputs, attrs)
        return operators.replace(changes)


class Count:
    """Counts the operators of the replicas."""

    name = "count"

    def __init__(self):
        self.seen = []

    def apply(self, graph):
        self.seen.append(len(graph.ops))
        return False


def scaled():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        hidden = fluid.layers.fc(fluid.data("x", [None, 6]), 4)
        out = fluid.layers.scale(fluid.layers.scale(hidden, 0.5, 1.0), 4.0, -2.0)
        loss = fluid.layers.mean(fluid.layers.square(out))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return Net(main, startup, loss, None, hidden)


def feeds():
    rng = np.random.RandomState(2)
    return [{"x": rng.randn(8, 6).astype("float32")} for _ in range(3)]


def losses(net, fetch=(), **strategies):
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(net.startup)
        replicas = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, places=fluid.cpu_places(2), **strategies
        )
        return [exe.run(replicas, feed, [net.loss, *fetch]) for feed in feeds()]


def test_own_pass_rewrites_forward_and_backward_and_keeps_results():
    net = scaled()
    strategy = fluid.BuildStrategy()
    strategy.append_pass(MergeScales())
    np.testing.assert_allclose(losses(net, build_strategy=strategy), losses(net), rtol=1e-6)
    shown = viz.passes(net.main, strategy=strategy, devices=2)
    assert shown.counts()[0][0] == "merge_scales"
    before, after = shown.counts()[0][1:]
    assert before - after == 2


def test_own_graph_pass_runs_behind_the_built_in_ones():
    net, strategy, count = scaled(), fluid.BuildStrategy(), Count()
    strategy.fuse_all_optimizer_ops = True
    strategy.append_pass(count)
    names = [name for name, *_ in viz.passes(net.main, strategy=strategy, devices=2).counts()]
    assert names[-1] == "count" and "fuse_all_optimizer_ops" in names
    assert len(count.seen) == 1


def test_what_a_pass_removed_can_be_fetched():
    net, strategy = scaled(), fluid.BuildStrategy()
    strategy.append_pass(MergeScales())
    inner = next(op.output("Out")[0] for op in net.main.global_block().ops if op.type == "scale")
    _, hidden, scale = losses(net, [net.prediction, inner], build_strategy=strategy)[0]
    np.testing.assert_array_equal(scale, hidden * np.float32(0.5) + np.float32(1))


def with_name(name):
    made = Count()
    made.name = name
    return made


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (object(), TypeError, "a name and either rewrite"),
        (Count, TypeError, "a name and either rewrite"),
        (with_name(3), TypeError, "a name and either rewrite"),
        (with_name("fuse_all_reduce_ops"), ValueError, "already"),
    ],
)
def test_what_is_no_pass_is_refused(step, error, message):
    with pytest.raises(error, match=message):
        fluid.BuildStrategy().append_pass(step)


def test_a_name_is_given_once():
    strategy = fluid.BuildStrategy()
    strategy.append_pass(Count())
    with pytest.raises(ValueError, match="'count' already"):
        strategy.append_pass(Count())


def run_with(step):
    strategy = fluid.BuildStrategy()
    strategy.append_pass(step)
    losses(scaled(), build_strategy=strategy)
    return strategy


def test_a_strategy_that_was_compiled_takes_no_pass():
    strategy = run_with(Count())
    with pytest.raises(EnforceNotMet, match="append_pass cannot be configured again"):
        strategy.append_pass(with_name("another"))


def test_a_pass_that_does_not_say_whether_it_changed_anything_is_refused():
    class Silent:
        name = "silent"

        def apply(self, graph):
            pass

    with pytest.raises(RuntimeError, match="pass silent failed; passes before it: fuse") as caught:
        run_with(Silent())
    assert "whether anything changed, not None" in str(caught.value.__cause__)
