"""The pass that updates many parameters in one operator."""

import pytest

import dpexec as fluid
from dpexec.engine.passes import FuseOptimizer, PassManager
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    assert_same_bits,
    batches,
    classifier,
    train,
    word_batches,
    words,
)

OPTIMIZERS = {
    "adam": lambda: fluid.optimizer.Adam(0.01),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "sgd": lambda: fluid.optimizer.SGD(0.1),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_updates_of_a_device_become_one(replicated, kind):
    graph = replicated(classifier(OPTIMIZERS[kind]()).main)
    before = graph.counts()["ops"]
    manager = PassManager([FuseOptimizer()])
    after = manager.run(graph).counts()["ops"]
    assert before[kind] == 8 and kind not in after
    assert after[f"fused_{kind}"] == 2
    (record,) = manager.records
    assert (record.name, record.modified) == ("fuse_all_optimizer_ops", True)
    assert record.ops_before - record.ops_after == 6
    node = next(node for node in graph.ops if node.name == f"fused_{kind}")
    assert len(node.op.inputs["Param"]) == 4
    assert node.op.role_var[::2] == node.op.inputs["Param"]
    assert node.op.role_var[1::2] == node.op.inputs["Grad"]


def test_every_owner_updates_its_parameters(replicated):
    graph = replicated(classifier(sizes=(8, 16, 16, 3)).main, mode="reduce")
    owners = dict(graph.owners)
    FuseOptimizer().apply(graph)
    nodes = [node for node in graph.ops if node.name == "fused_sgd"]
    assert sorted(node.device for node in nodes) == [0, 1]
    for node in nodes:
        assert {owners[name] for name in node.op.inputs["Param"]} == {node.device}


def test_other_hyperparameters_stay_apart(replicated):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4])
        slow = fluid.ParamAttr(learning_rate=0.5)
        hidden = fluid.layers.fc(x, 3, param_attr=slow, bias_attr=slow)
        loss = fluid.layers.mean(fluid.layers.fc(hidden, 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
    graph = replicated(main, 1)
    FuseOptimizer().apply(graph)
    groups = [node.op.inputs["Param"] for node in graph.ops if node.name == "fused_sgd"]
    assert sorted(map(sorted, groups)) == [["fc_1.b_0", "fc_1.w_0"]]  # slow ones: a rate each


def test_update_that_something_waits_for_stays_before_it(replicated):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4])
        loss = fluid.layers.mean(fluid.layers.fc(x, 3))
        optimizer = fluid.optimizer.SGD(0.1)
        weight, bias = optimizer.backward(loss)
        optimizer.apply_gradients([weight])
        fluid.layers.scale(weight[0], 2.0)
        optimizer.apply_gradients([bias])
    assert not FuseOptimizer().apply(replicated(main, 1))


def test_sparse_updates_stay_apart(replicated):
    graph = replicated(words().main)
    FuseOptimizer().apply(graph)
    assert graph.counts()["ops"]["sgd"] == 2


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_bits_stay(kind, mode, devices):
    made = OPTIMIZERS[kind]
    runs = [
        train(classifier(made()), batches(3), devices, mode, fuse_all_optimizer_ops=fused)
        for fused in (False, True)
    ]
    assert_same_bits(*runs)
    runs = [
        train(words(made()), word_batches(3), devices, mode, fuse_all_optimizer_ops=fused)
        for fused in (False, True)
    ]
    assert_same_bits(*runs)
