"""Gradient accumulation: contributions are added as soon as they are computed."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.graph.operators import Operators
from dpexec.engine.passes import AddTo, PassManager
from tests.engine.run.nets import AllReduce, Net, Reduce, assert_same_bits, train

ON = {"enable_addto": True}
WIDTH, STEPS = 16, 5


def recurrent():
    """Steps that share their weights, so that these have a gradient per step."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, WIDTH])
        weights = fluid.ParamAttr("shared")
        hidden = x
        for _ in range(STEPS):
            hidden = fluid.layers.fc(hidden, WIDTH, param_attr=weights, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square(hidden))
        fluid.optimizer.Adam(0.01).minimize(loss)
    return Net(main, startup, loss, None, hidden)


def feeds():
    rng = np.random.RandomState(2)
    return [{"x": rng.randn(6, WIDTH).astype("float32")} for _ in range(3)]


def test_every_contribution_is_added_right_after_it():
    net = recurrent()
    manager = PassManager([], [AddTo()])
    operators = manager.rewrite(Operators(net.main))
    (record,) = manager.records
    additions = [i for i, op in enumerate(operators.ops) if op.type == "sum"]
    assert len(additions) == STEPS - 1 and record.ops_after - record.ops_before == STEPS - 2
    assert all(len(operators.ops[i].input("X")) == 2 for i in additions)
    assert all(operators.ops[i - 1].type == "mul_grad" for i in additions)
    assert [text for text in record.added if "@ADDTO_1" in text] == ["sum -> shared@GRAD@ADDTO_1"]
    assert record.changed == ("sum -> shared@GRAD",)
    last = operators.ops[additions[-1]]
    assert last.output("Out") == ["shared@GRAD"] and last.role_var == ["shared", "shared@GRAD"]


def test_sums_of_two_and_sums_of_the_forward_pass_stay():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4])
        hidden = fluid.layers.fc(x, 4)
        total = fluid.layers.sums([hidden, hidden * 2.0, x])
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(total))
    manager = PassManager([], [AddTo()])
    manager.rewrite(Operators(main))
    assert not manager.records[0].modified


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("mode", "devices"), [(AllReduce, 1), (AllReduce, 2), (Reduce, 2)])
def test_bits_stay(mode, devices, native):
    options = {"native_kernels": native}
    found = [train(recurrent(), feeds(), devices, mode, **options, **on) for on in ({}, ON)]
    assert_same_bits(*found)


def test_contributions_do_not_wait_for_each_other_in_memory():
    pytest.importorskip("numba", reason="kernels in machine code need numba")
    sizes = []
    for on in ({}, ON):
        engine = train(recurrent(), feeds()[:1], **on).compiled._engine
        sizes.append(sum(binding.memory.nbytes for binding in engine.bindings.kept))
    assert sizes[0] - sizes[1] >= 2 * WIDTH * WIDTH * 4
