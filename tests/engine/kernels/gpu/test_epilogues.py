"""Products of cuBLASLt with a bias (simulated), compared with separate operators."""

from functools import partial

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.kernels.gpu import cublaslt
from dpexec.engine.kernels.gpu.cublaslt import Library, LibraryError
from dpexec.engine.kernels.gpu.products import products
from dpexec.engine.kernels.implementations import kernel_of
from tests.engine.gpu.programs import NETS, assert_same_bits, feeds_of, trained
from tests.engine.ops.test_contract_on_gpus import compared
from tests.engine.run.nets import AllReduce, Net, Reduce
from tests.fakes.cublaslt import Cublaslt
from tests.fakes.cupy import install

TYPES = ["fused_gemm_epilogue", "fused_gemm_epilogue_grad"]
HALF = {"bfloat16": 2.0**-9, "tf32": 2.0**-11}  # what rounding changes a number by at most


@pytest.fixture
def functions(monkeypatch):
    cupy = install(monkeypatch, 2)
    found = Cublaslt(cupy.machine)
    found.cupy = cupy
    library = Library(found)
    monkeypatch.setattr(cublaslt, "library", lambda: library)
    return found


@pytest.mark.parametrize("declines", [False, True])
@pytest.mark.parametrize("type", TYPES)
def test_one_launch_does_what_operators_do(functions, type, declines):
    functions.declines = declines
    compared(type, functions.cupy, 1e-5, partial(kernel_of, backend="gpu"))
    expected = {TYPES[0]: {"bias", "bias and relu"}, TYPES[1]: {"bias gradient"}}[type]
    assert set(functions.plans) == (set() if declines else expected)
    launched = [name for *_, name in functions.cupy.machine.log if name.startswith("matmul with")]
    assert len(launched) == (0 if declines else 3)


@pytest.mark.parametrize("precision", HALF)
@pytest.mark.parametrize("type", TYPES)
def test_operands_are_rounded_where_that_is_asked_for(functions, type, precision):
    def choose(type, general):
        kernel = kernel_of(type, general, "gpu")
        return lambda xp, *values, **attrs: kernel(products(xp, precision), *values, **attrs)

    compared(type, functions.cupy, 40 * HALF[precision], choose)
    assert functions.plans


def test_halves_are_added_up_in_single_precision(functions):
    xp, rng = functions.cupy, np.random.default_rng(0)
    x, y, bias = (rng.random(shape).astype("f2") for shape in ((5, 400), (400, 3), (3,)))
    d_out, on = rng.random((5, 3)).astype("f2"), [xp.asarray(a) for a in (x, y, bias)]
    out = kernel_of(TYPES[0], None, "gpu")(products(xp, "tf32"), *on, activation="relu")
    found = kernel_of(TYPES[1], None, "gpu")(xp, *on, xp.asarray(d_out))
    x, y, bias, d_out = (array.astype("f8") for array in (x, y, bias, d_out))
    expected = [x @ y + bias, d_out @ y.T, x.T @ d_out, d_out.sum(axis=0)]
    for made, value in zip((out, *found), expected, strict=True):
        assert made.dtype == "float16"
        np.testing.assert_allclose(made.get(), value, 1e-3)
    assert functions.plans == ["bias and relu", "bias gradient"]


def test_addresses_may_be_those_of_parts(functions):
    xp, rng = functions.cupy, np.random.default_rng(0)
    x, y, both = rng.random((5, 4), "f4"), rng.random((4, 3), "f4"), rng.random(4, "f4")
    bias = xp.asarray(both)[1:]  # 4 bytes behind where memory begins
    kernel = kernel_of(TYPES[0], None, "gpu")
    found = kernel(xp, xp.asarray(x), xp.asarray(y), bias)
    np.testing.assert_allclose(found.get(), x @ y + both[1:], 1e-6)


def test_calls_that_fail_are_named(functions):
    with pytest.raises(LibraryError, match="cublasLtMatrixLayoutCreate failed with status 7"):
        Library(functions).made("MatrixLayout", 0, 4, 2, 3)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("name", ["momentum", "adam and batch norm"])
def test_replicas_train_as_without(functions, name, mode, graphs):
    net, feeds = NETS[name](), feeds_of(name)
    gpus = [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    expected = trained(net, gpus, mode, feeds)
    options = {"fuse_gemm_epilogue": True, "allow_cuda_graph_capture": graphs}
    found = trained(net, gpus, mode, feeds, **options)
    for parameter, value in expected[1].items():
        np.testing.assert_allclose(found[1][parameter], value, 1e-4, 1e-6, err_msg=parameter)
    assert {"bias", "bias and relu", "bias gradient"} == set(functions.plans)
    assert_same_bits(trained(net, gpus, mode, feeds, **options), found)
    launched = {name for *_, name in functions.cupy.machine.log}
    assert ("graph" in launched) == graphs


def test_mixed_precision_has_epilogues_of_halves(functions):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 8], "float32")
        hidden = fluid.layers.fc(fluid.layers.fc(x, 16, act="relu"), 3)
        loss = fluid.layers.mean(fluid.layers.square(hidden - 1.0))
        fluid.contrib.mixed_precision.decorate(fluid.optimizer.SGD(0.1)).minimize(loss)
    net, feeds = Net(main, startup, loss, main, None), feeds_of("regression")
    expected = trained(net, [fluid.CUDAPlace(0)], feeds=feeds)
    found = trained(net, [fluid.CUDAPlace(0)], feeds=feeds, fuse_gemm_epilogue=True)
    for parameter, value in expected[1].items():
        np.testing.assert_allclose(found[1][parameter], value, 0.01, 0.01, err_msg=parameter)
    assert {"bias", "bias and relu", "bias gradient"} == set(functions.plans)


def test_fields_of_gpus_say_so_elsewhere():
    net = NETS["regression"]()
    with pytest.warns(UserWarning, match="fuse_gemm_epilogue has no effect: no replica is on a"):
        trained(net, [fluid.CPUPlace()], feeds=feeds_of("regression", 1), fuse_gemm_epilogue=True)
