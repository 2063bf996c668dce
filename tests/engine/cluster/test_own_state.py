"""Which variables differ from replica to replica, and which are equal on all of them."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.cluster.worker.own_state import own_names
from tests.engine.run.nets import AllReduce, Reduce, batches, classifier, strategies, train


def own(net, mode, devices=2):
    build, execution = strategies(mode)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=[fluid.CPUPlace()] * devices
    )
    with fluid.scope_guard(fluid.Scope()):
        fluid.Executor(fluid.CPUPlace()).run(net.startup)
        engine = compiled._compile(fluid.global_scope(), fluid.CPUPlace())
        spec = engine.compilation.of(engine.program, engine.places, build, True, True)
    return own_names(spec.graph()[0])


def test_replicas_that_update_all_have_all_in_common():
    assert own(classifier(fluid.optimizer.Adam(0.1), dropout=0.5), AllReduce) == [set(), set()]


def test_owner_alone_has_the_moments():
    first, second = own(classifier(fluid.optimizer.Adam(0.1)), Reduce)
    moments = [name for name in first | second if "moment" in name]
    assert len(moments) == 2 * 4
    assert first.intersection(moments) and second.intersection(moments)
    assert not first & second & set(moments)
    assert not any(name.endswith((".w_0", ".b_0")) for name in first | second)


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_statistics_are_of_single_replicas(mode):
    net = classifier(fluid.optimizer.SGD(0.1), batch_norm=True)
    statistics = {"batch_norm_0.w_1", "batch_norm_0.w_2"}
    assert all(statistics <= names for names in own(net, mode))


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: fluid.optimizer.Adam(0.1),
        lambda: fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, rampup_begin_step=1),
        lambda: fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), k=2),
    ],
    ids=["adam", "dgc", "lookahead"],
)
def test_what_is_in_common_is_equal_after_training(optimizer):
    """Also when a replica had no samples for a step."""
    net = classifier(optimizer(), dropout=0.3, batch_norm=True)
    feeds = [*batches(2, rows=11), *batches(1, rows=2), *batches(2, rows=12)]
    engine = train(net, feeds, 3).compiled._engine
    names = own_names(engine.graph)
    compared = 0
    for name in set(engine.graph.versions[0]) - set().union(*names):
        values = [engine.replicas.tensor(device, name) for device in range(3)]
        if values[0] is not None:
            compared += 1
            for value in values[1:]:
                np.testing.assert_array_equal(value.array, values[0].array, err_msg=name)
    assert compared >= 4  # parameters at least
