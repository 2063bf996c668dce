"""Programs that are drawn give the same in every way to run them.

The same bits: in AllReduce and Reduce mode, with sizes of batches left open or bound one by one,
task by task or operator by operator. To ``NEAR``: on one device and on several, with and without
passes, as machine code and on NumPy, for these add up in other orders.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dpexec as fluid
from dpexec.engine import kernels
from dpexec.engine.dispatch.binder import Binder
from tests.engine.run.nets import AllReduce, Reduce, assert_same_bits, train
from tests.engine.run.random_programs import Drawn, feeds, of_rows

pytestmark = pytest.mark.skipif(not kernels.available(), reason="compares with machine code")

SIZES = (6, 5, 9, 6)
NEAR = 2e-4
PASSES = (
    "fuse_elewise_add_act_ops",
    "fuse_all_optimizer_ops",
    "fuse_bn_act_ops",
    "enable_auto_fusion",
    "enable_inplace",
    "memory_optimize",
)


def alone(net):
    """Losses of an Executor, without replicas."""
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup)
        return [exe.run(net.main, feed, [net.loss])[0] for feed in feeds(SIZES)]


def total(losses, devices):
    """The loss of every batch, from those of its devices."""
    shares = ([len(p) for p in np.array_split(np.arange(size), devices)] for size in SIZES)
    return [np.average(loss, weights=share) for loss, share in zip(losses, shares, strict=True)]


def assert_near(found, expected):
    np.testing.assert_allclose(np.ravel(found), np.ravel(expected), rtol=NEAR, atol=NEAR)


def compare(net, devices, mode, passes, whole):
    """Run a program in all ways.

    Args:
        net: the program.
        devices: how many replicas.
        mode: with passes.
        passes: names of fields of the BuildStrategy.
        whole: whether devices together compute what one does.
    """
    batches = feeds(SIZES)
    found = train(net, batches, devices)
    assert_same_bits(train(net, batches, devices, Reduce), found)
    assert_same_bits(train(net, batches, devices, task_granularity="op"), found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Binder, "_opened", lambda *arguments: None)
        assert_same_bits(train(net, batches, devices), found)
    expected = total(found.losses, devices)
    if whole:
        assert_near(alone(net), expected)
    plain = train(net, batches, devices, native_kernels=False)
    assert_near(total(plain.losses, devices), expected)
    passed = train(net, batches, devices, mode, **dict.fromkeys(passes, True))
    assert_near(total(passed.losses, devices), expected)


# A seed says all of a program, so there is nothing to make smaller.
@settings(max_examples=8, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_drawn_programs_give_the_same_in_every_way(seed):
    rng = random.Random(seed)
    drawn = Drawn(rng.choice)
    net = drawn.build()
    devices, mode = rng.choice([1, 2, 3]), rng.choice([AllReduce, Reduce])
    passes = rng.sample(PASSES, 3)
    compare(net, devices, mode, passes, drawn.whole or devices == 1)


def test_operators_are_drawn_from_their_declarations():
    types = {type for type, _, _ in of_rows()}
    assert {"softmax", "gelu", "reduce_sum", "log", "top_k", "norm", "reshape2"} <= types
