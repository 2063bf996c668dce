"""Randomly drawn programs give the same results in every way to run them.

The same bits: in AllReduce and Reduce mode, with sizes of batches left open or bound one by one,
task by task or operator by operator. To ``NEAR``: on one device and on several, with and without
passes, as machine code and on NumPy, for these add up in other orders.
"""

from __future__ import annotations

import os

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
CASES = int(os.environ.get("DPEXEC_CASES", "0"))  # so many drawn anew, not the same few
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


def assert_same_losses(run, other):
    for a, b in zip(run.losses, other.losses, strict=True):
        assert np.array_equal(a, b), f"losses {a} and {b}"


def compare(net, fetched, devices, mode, passes, whole):
    """Run a program in all ways.

    Args:
        net: the program.
        fetched: variables that are fetched beside the loss.
        devices: how many replicas.
        mode: with passes.
        passes: names of fields of the BuildStrategy.
        whole: whether devices together compute what one does.
    """
    batches = feeds(SIZES)

    def run(mode=AllReduce, **options):
        return train(net, batches, devices, mode, fetched=fetched, **options)

    found = run()
    assert_same_bits(run(Reduce), found)
    assert_same_bits(run(task_granularity="op"), found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Binder, "_opened", lambda *arguments: None)
        assert_same_bits(run(), found)
    assert_same_losses(train(net, batches, devices), found)  # nothing is kept for fetches
    expected = total(found.losses, devices)
    if whole:
        assert_near(alone(net), expected)
    for other in (run(native_kernels=False), run(mode, **dict.fromkeys(passes, True))):
        assert_near(total(other.losses, devices), expected)
        for values, wanted in zip(other.fetched, found.fetched, strict=True):
            for value, right in zip(values, wanted, strict=True):
                assert_near(value, right)


@settings(
    max_examples=CASES or 8,
    derandomize=not CASES,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_drawn_programs_give_the_same_in_every_way(data):
    examine(lambda options: data.draw(st.sampled_from(options)))


def examine(choose):
    """Draw a program and compare.

    Args:
        choose: takes a list and gives one of its elements.
    """
    drawn = Drawn(choose)
    net = drawn.build()
    devices, mode = choose([1, 2, 3]), choose([AllReduce, Reduce])
    passes = [name for name in PASSES if choose([False, True])]
    compare(net, drawn.fetched, devices, mode, passes, drawn.whole or devices == 1)


def test_operators_are_drawn_from_their_declarations():
    types = {type for type, _, _ in of_rows()}
    assert {"softmax", "gelu", "reduce_sum", "log", "top_k", "norm", "reshape2"} <= types
