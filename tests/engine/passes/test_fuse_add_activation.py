"""The pass that fuses an addition with its activation."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph
from dpexec.engine.graph.operators import Operators
from dpexec.engine.passes import FuseAddActivation, PassManager
from tests.engine.run.nets import AllReduce, Reduce, assert_same_bits, batches, classifier, train

ON = {"fuse_elewise_add_act_ops": True}


def rewritten(program, kept=()):
    manager = PassManager([], [FuseAddActivation()])
    return manager.rewrite(Operators(program, kept)), manager.records[0]


def types(operators):
    return [op.type for op in operators.ops]


def test_both_directions_are_fused():
    operators, record = rewritten(classifier(sizes=(4, 5, 6, 3)).main)
    assert record.modified and record.ops_before - record.ops_after == 4
    assert types(operators).count("fused_elemwise_activation") == 2
    assert types(operators).count("fused_elemwise_activation_grad") == 2
    assert not {"relu", "relu_grad"} & set(types(operators))
    assert {"fc_0.tmp_1", "fc_0.tmp_1@GRAD", "fc_1.tmp_1"} <= operators.removed
    forward, *_, backward = (op for op in operators.ops if op.type.startswith("fused"))
    assert forward.attr("functor_list") == ["relu", "elementwise_add"]
    assert backward.attr("functor_list") == ["relu_grad", "elementwise_add_grad"]
    assert backward.role_var == ["fc_0.b_0", "fc_0.b_0@GRAD"]


def test_program_stays_as_it_is():
    net = classifier()
    before = str(net.main)
    rewritten(net.main)
    assert str(net.main) == before


def test_sum_that_others_read_stays():
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        total = fluid.data("x", [None, 3]) + fluid.data("y", [None, 3])
        fluid.layers.elementwise_mul(fluid.layers.relu(total), total)
    operators, record = rewritten(main)
    assert not record.modified and "relu" in types(operators)


def test_variable_that_is_kept_stays():
    net = classifier(sizes=(4, 5, 6, 3))
    operators, _ = rewritten(net.main, kept=["fc_0.tmp_1"])
    assert types(operators).count("fused_elemwise_activation") == 1
    assert "fc_0.tmp_1" not in operators.removed


def test_graph_counts_before_and_after(replicated):
    net = classifier()
    before = replicated(net.main)
    operators, _ = rewritten(net.main)
    after = build_ssa_graph(net.main, before.places, ReplicationOptions(), operators)
    assert len(before.ops) - len(after.ops) == 4
    assert len(before.vars) - len(after.vars) == 4


def test_fetch_of_a_variable_that_was_fused_away():
    net, (feed,) = classifier(), batches(1)
    values = []
    for options in ({}, ON):
        run = train(net, [feed], 2, **options)
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(run.scope):
            fetched = ["fc_0.tmp_1", "fc_0.tmp_1@GRAD", net.loss]
            values.append(exe.run(run.compiled, feed=feed, fetch_list=fetched))
    for plain, fused in zip(*values, strict=True):
        assert np.array_equal(plain, fused)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_bits_stay(mode, devices):
    def net():
        return classifier(fluid.optimizer.Adam(0.01), sizes=(8, 7, 6, 3), dropout=0.2)

    plain, fused = (train(net(), batches(3), devices, mode, **on) for on in ({}, ON))
    assert_same_bits(plain, fused)
    assert "fused_elemwise_activation" in fused.compiled._engine.graph.counts()["ops"]
