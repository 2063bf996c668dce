"""cuDNN's convolutions (simulated), compared with products of matrices."""

from functools import partial

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.kernels.gpu import convolutions
from dpexec.engine.kernels.gpu.bfloat16 import rounded
from dpexec.engine.kernels.gpu.products import products
from dpexec.engine.kernels.implementations import kernel_of
from tests.engine.gpu.programs import trained
from tests.engine.ops.calls import samples
from tests.engine.ops.test_contract_on_gpus import compared
from tests.engine.run.nets import AllReduce, Net
from tests.fakes.cublas import rounded as ndarray_rounded
from tests.fakes.cudnn import Cudnn
from tests.fakes.cupy import install

TYPES = ["conv2d", "depthwise_conv2d"]
HALF = {"bfloat16": 2.0**-9, "tf32": 2.0**-11}  # what rounding changes a number by at most


@pytest.fixture
def cudnn(monkeypatch):
    cupy = install(monkeypatch, 2)
    found = Cudnn(cupy.machine)
    found.cupy = cupy
    monkeypatch.setattr(convolutions, "library", lambda: found)
    return found


@pytest.mark.parametrize("type", TYPES)
def test_results_and_gradients_are_those_of_products(cudnn, type):
    compared(type, cudnn.cupy, 1e-4, partial(kernel_of, backend="gpu"))
    assert len(cudnn.plans) >= 6
    assert all("tensor cores" in plan.barred for plan in cudnn.plans)
    assert not any("other bits" in plan.barred for plan in cudnn.plans)


def test_sizes_without_a_plan_are_products(cudnn):
    cudnn.declines = lambda *types: True
    compared("conv2d", cudnn.cupy, 1e-4, partial(kernel_of, backend="gpu"))
    assert not cudnn.plans


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("precision", HALF)
@pytest.mark.parametrize("plans", ["all", "of one type", "none"])
def test_operands_are_rounded_where_that_is_asked_for(cudnn, type, precision, plans):
    cudnn.declines = {
        "all": lambda *types: False,
        "of one type": lambda *types: len(set(types)) > 1,
        "none": lambda *types: True,
    }[plans]

    def choose(type, general):
        kernel = kernel_of(type, general, "gpu")
        return lambda xp, *values, **attrs: kernel(products(xp, precision), *values, **attrs)

    compared(type, cudnn.cupy, 40 * HALF[precision], choose)
    assert bool(cudnn.plans) == (plans != "none")
    assert all("tensor cores" not in plan.barred for plan in cudnn.plans)
    log = {name for *_, name in cudnn.cupy.machine.log}
    assert ("dp_round" in log) == (precision == "bfloat16")
    assert ("dp_widen" in log) == (precision == "bfloat16" and plans == "of one type")
    crops = any(min(sample.attrs.get("paddings", [0])) < 0 for sample in samples(type))
    assert ("gemm" in log) == (plans == "none" or crops)  # which rounds, too


def test_programs_ask_for_rounded_operands(cudnn):
    rng, net = np.random.default_rng(0), images()
    feeds = [{"x": rng.standard_normal((4, 2, 6, 6), "f4")} for _ in range(3)]
    exact, found = (
        trained(net, [fluid.CUDAPlace(0)], feeds=feeds, product_precision=precision)[1]
        for precision in ("float32", "bfloat16")
    )
    for name, value in exact.items():
        np.testing.assert_allclose(found[name], value, 0.05, 0.05, err_msg=name)
    assert any(not np.array_equal(found[name], value) for name, value in exact.items())


@pytest.mark.parametrize("bits", [0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F800001, 0xFF800000, 1])
def test_numbers_are_rounded_to_the_nearest(cudnn, bits):
    x = np.array([bits], np.uint32)
    found = rounded(cudnn.cupy, cudnn.cupy.asarray(x.view(np.float32)))
    kept = (found.get().astype(np.uint32) << 16).view(np.float32)
    expected = ndarray_rounded(x.view(np.float32), 16)
    np.testing.assert_array_equal(kept, np.nan if np.isnan(x.view(np.float32)) else expected)


def images():
    """A net of two convolutions."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2, 6, 6], "float32")
        hidden = fluid.layers.conv2d(x, 4, 3, stride=2, padding=1, act="relu")
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.conv2d(hidden, 3, 2)))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return Net(main, startup, loss, main, None)


@pytest.mark.parametrize("graphs", [False, True])
def test_replicas_train_and_keep_their_plans(cudnn, graphs, monkeypatch):
    monkeypatch.setenv("FLAGS_cudnn_deterministic", "1")
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((4, 2, 6, 6), "f4")} for _ in range(4)]
    net = images()
    expected = trained(net, [fluid.CPUPlace()] * 2, AllReduce, feeds)
    gpus = [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    found = trained(net, gpus, AllReduce, feeds, allow_cuda_graph_capture=graphs)
    for name, value in expected[1].items():
        np.testing.assert_allclose(found[1][name], value, 1e-4, 1e-6, err_msg=name)
    # two results and three gradients (none of the batch), on either GPU, once
    assert len(cudnn.plans) == 5 * 2
    assert all("other bits" in plan.barred for plan in cudnn.plans)
