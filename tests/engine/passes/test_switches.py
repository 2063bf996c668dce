"""Each pass on and off, over nets, modes and numbers of devices: the same bits."""

import functools

import pytest

import dpexec as fluid
from dpexec.engine import passes
from tests.engine.passes.test_fuse_images import feeds, images
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

OTHER_BITS = {"fuse_softmax_with_cross_entropy", "sync_batch_norm"}
ON_GPUS = {"fuse_gemm_epilogue"}
NAMES = {step.name for step in (*passes.REWRITES, *passes.PASSES)}
PASSES = ("skip_dead_ops", *sorted(NAMES - OTHER_BITS - ON_GPUS))


def regularized():
    decay = fluid.regularizer.L2Decay(1e-3)
    clip = fluid.clip.GradientClipByGlobalNorm(0.5)
    optimizer = fluid.optimizer.Adam(0.01, regularization=decay, grad_clip=clip)
    return classifier(optimizer, dropout=0.2, batch_norm=True)


NETS = {
    "dense": (regularized, lambda: batches(2)),
    "images": (lambda: images(True), feeds),
    "words": (lambda: words(fluid.optimizer.Adam(0.01)), lambda: word_batches(2)),
}


def run(net, mode, devices, options):
    build, samples = NETS[net]
    return train(build(), samples(), devices, mode, **options)


@functools.cache
def plain(net, mode, devices):
    return run(net, mode, devices, dict.fromkeys(PASSES, False))


@pytest.mark.parametrize(("mode", "devices"), [(AllReduce, 1), (AllReduce, 2), (Reduce, 2)])
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("switch", [*PASSES, "all"])
def test_bits_stay(switch, net, mode, devices):
    options = dict.fromkeys(PASSES, switch == "all")
    if switch != "all":
        options[switch] = True
    assert_same_bits(run(net, mode, devices, options), plain(net, mode, devices))


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("option", ["memory_optimize", "enable_inplace"])
def test_bits_stay_where_memory_is_not_reused(option, mode, devices):
    on_numpy = {"native_kernels": False}  # code updates in place alone
    found = run("words", mode, devices, {option: False, **on_numpy})
    assert_same_bits(found, run("words", mode, devices, on_numpy))
    plan = found.compiled._engine.plan
    dropped = [name for steps in plan.steps for step in steps for name in step.drops]
    assert bool(dropped) == (option != "memory_optimize")
    assert bool(plan.overwritten) == (option != "enable_inplace")


def test_every_pass_that_is_on_is_recorded():
    found = run("dense", AllReduce, 2, dict.fromkeys(PASSES, True))
    records = [record.name for record in found.compiled._engine.pass_records]
    assert {*records, "skip_dead_ops"} == set(PASSES)  # dead is what a plan finds to be so
