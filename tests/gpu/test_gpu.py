"""What needs a GPU: kernels and training there give what they give on processors.

Tolerances are for float32: GPUs add up in another order, and round products and exponentials
otherwise.
"""

import os

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.places import array_module, is_compiled_with_cuda, why_no_gpu
from dpexec.engine.core.runs import add_at
from dpexec.engine.gpu.nccl import library
from dpexec.engine.kernels.gpu.products import products
from dpexec.engine.kernels.implementations import kernel_of
from tests.engine.gpu.programs import (
    NETS,
    assert_same_bits,
    feeds_of,
    regression,
    trained,
    without_labels,
)
from tests.engine.ops.calls import samples
from tests.engine.ops.test_contract import TYPES
from tests.engine.ops.test_contract_on_gpus import compared
from tests.engine.run.nets import AllReduce, Reduce, batches, classifier
from tests.gpu.places import replicas

if not is_compiled_with_cuda():
    pytest.skip(f"nothing was tested on a GPU: {why_no_gpu()}", allow_module_level=True)

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # equal runs of two replicas on a GPU

KERNEL, STEPS = 1e-4, 1e-3
"""Relative tolerances of one kernel, and of some steps of training."""


@pytest.mark.parametrize("type", [t for t in TYPES if samples(t)])
def test_kernel_gives_what_it_gives_on_processors(type):
    def choose(type, general):
        kernel = kernel_of(type, general, "gpu")
        return lambda xp, *values, **attrs: kernel(products(xp), *values, **attrs)

    compared(type, array_module(fluid.CUDAPlace(0)), KERNEL, choose)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("name", NETS)
def test_training_gives_what_it_gives_on_processors(name, mode, count):
    net, feeds = NETS[name](), feeds_of(name)
    expected = trained(net, [fluid.CPUPlace()] * count, mode, feeds)
    found = trained(net, replicas(count), mode, feeds)
    for a, b in zip(found[0], expected[0], strict=True):
        np.testing.assert_allclose(a, b, STEPS)
    for parameter, value in expected[1].items():
        np.testing.assert_allclose(found[1][parameter], value, STEPS, 1e-5, err_msg=parameter)


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("name", NETS)
def test_same_run_gives_the_same_bits(name, mode, monkeypatch):
    monkeypatch.setenv("FLAGS_cudnn_deterministic", "1")
    net, feeds = NETS[name](), feeds_of(name)
    assert_same_bits(*(trained(net, replicas(2), mode, feeds) for _ in range(2)))


@pytest.mark.parametrize("name", NETS)
def test_steps_that_nobody_waits_for_are_in_order(name):
    net, feeds = NETS[name](), feeds_of(name, 8)
    waited = trained(net, replicas(2), AllReduce, feeds)
    enqueued = trained(net, replicas(2), AllReduce, feeds, fetch=False, task_granularity="op")
    for parameter, value in waited[1].items():
        np.testing.assert_allclose(enqueued[1][parameter], value, KERNEL, 1e-6, err_msg=parameter)


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("name", NETS)
def test_graphs_give_what_single_launches_give(name, mode):
    net, feeds = NETS[name](), feeds_of(name, 6)
    expected = trained(net, replicas(2), mode, feeds)
    found = trained(net, replicas(2), mode, feeds, allow_cuda_graph_capture=True)
    for parameter, value in expected[1].items():
        np.testing.assert_allclose(found[1][parameter], value, KERNEL, 1e-6, err_msg=parameter)


@pytest.mark.parametrize("name", ["adam and batch norm", "computed sizes"])
def test_graphs_for_batches_of_several_sizes_share_memory(name):
    net, feeds = NETS[name](), feeds_of(name, 12)
    feeds[1::3] = [{name: array[:8] for name, array in feed.items()} for feed in feeds[1::3]]
    expected = trained(net, replicas(2), AllReduce, feeds)
    found = trained(net, replicas(2), AllReduce, feeds, allow_cuda_graph_capture=True)
    for parameter, value in expected[1].items():
        np.testing.assert_allclose(found[1][parameter], value, KERNEL, 1e-6, err_msg=parameter)


def test_what_is_added_to_one_place_is_added_in_order():
    xp, rng = array_module(fluid.CUDAPlace(0)), np.random.default_rng(0)
    places, value = rng.integers(0, 50, 100_000), rng.standard_normal((100_000, 3)).astype("f")
    found = [xp.zeros((50, 3), np.float32) for _ in range(3)]
    for out in found:
        add_at(xp, out, xp.asarray(places), xp.asarray(value))
    expected = np.zeros((50, 3))
    np.add.at(expected, places, value)
    np.testing.assert_allclose(found[0].get(), expected, 1e-3, 1e-2)
    for other in found[1:]:
        np.testing.assert_array_equal(other.get(), found[0].get())


@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 0.01), ("bfloat16", 0.05)])
def test_rounded_products_are_close(precision, tolerance):
    net = regression()
    expected = trained(net, replicas(1), feeds=without_labels(4))
    found = trained(net, replicas(1), feeds=without_labels(4), product_precision=precision)
    for parameter, value in expected[1].items():
        np.testing.assert_allclose(found[1][parameter], value, tolerance, tolerance)


@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 0.02), ("bfloat16", 0.08)])
@pytest.mark.parametrize("type", ["conv2d", "depthwise_conv2d", "matmul", "mul"])
def test_rounded_operands_are_close(type, precision, tolerance):
    def choose(type, general):
        kernel = kernel_of(type, general, "gpu")
        return lambda xp, *values, **attrs: kernel(products(xp, precision), *values, **attrs)

    compared(type, array_module(fluid.CUDAPlace(0)), tolerance, choose)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("name", ["momentum", "adam and batch norm", "regression"])
@pytest.mark.parametrize(
    "switch", ["enable_auto_fusion", "fuse_bn_act_ops", "fuse_gemm_epilogue", "sync_batch_norm"]
)
def test_fused_operators_give_what_their_parts_give(switch, name, graphs):
    net, feeds = NETS[name](), feeds_of(name)
    options = {"sync_batch_norm": switch == "sync_batch_norm"}  # which changes the numbers
    expected = trained(net, [fluid.CPUPlace()] * 2, AllReduce, feeds, **options)
    options |= {switch: True, "allow_cuda_graph_capture": graphs}
    found = trained(net, replicas(2), AllReduce, feeds, **options)
    for parameter, value in expected[1].items():
        np.testing.assert_allclose(found[1][parameter], value, STEPS, 1e-5, err_msg=parameter)


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("name", NETS)
def test_nccl_gives_what_copies_give(name, mode, monkeypatch):
    if len(fluid.cuda_places()) < 2:
        pytest.skip("NCCL needs two GPUs")
    if not library(array_module(fluid.CUDAPlace(0))).available:
        pytest.skip("NCCL is not installed: pip install nvidia-nccl-cu13")
    net, feeds, places = NETS[name](), feeds_of(name), fluid.cuda_places()
    found = trained(net, places, mode, feeds, fetch=False)
    monkeypatch.setenv("FLAGS_cudnn_deterministic", "1")
    expected = trained(net, places, mode, feeds)
    for parameter, value in expected[1].items():
        np.testing.assert_allclose(found[1][parameter], value, KERNEL, 1e-6, err_msg=parameter)


def test_tensors_come_before_their_values():
    net, feeds = classifier(), batches(8)
    expected, _ = trained(net, replicas(2), feeds=feeds)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(replicas(1)[0])
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, places=replicas(2)
        )
        later = [exe.run(program, feed, [net.loss], return_numpy=False) for feed in feeds]
        for (loss,), (other,) in zip(later, expected, strict=True):
            np.testing.assert_allclose(np.array(loss), other, KERNEL)


def test_refused_label_is_named():
    wrong = [{**feed, "y": feed["y"] + 3} for feed in batches(1)]
    with pytest.raises(fluid.core.EnforceNotMet, match="Label value >= 0 and < 3 expected"):
        trained(classifier(), replicas(2), feeds=wrong)


def test_trace_times_are_in_order():
    run_as = fluid.ExecutionStrategy()
    run_as.trace = True
    net = classifier()
    exe = fluid.Executor(fluid.CUDAPlace(0))
    with fluid.scope_guard(fluid.Scope()):
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, exec_strategy=run_as, places=replicas(2)
        )
        for feed in batches(3):
            exe.run(program, feed, [net.loss])
    events = [event for event in program.trace.events if event.kind == "op"]
    assert events
    for step in range(3):
        for device in (0, 1):
            mine = [e for e in events if (e.step, e.device) == (step, device)]
            starts = [event.start for event in mine]
            assert mine and starts == sorted(starts)
