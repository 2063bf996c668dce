"""Products with rounded operands, for all layouts, compared with unrounded ones."""

from functools import partial

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.kernels.gpu.products import products
from dpexec.engine.kernels.implementations import kernel_of
from dpexec.engine.ops.matmul import matmul
from tests.engine.gpu.programs import assert_same_bits, feeds_of, regression, trained
from tests.engine.ops.test_contract_on_gpus import compared
from tests.fakes.cupy import install

HALF = {"bfloat16": 2.0**-9, "tf32": 2.0**-11}  # what rounding changes a number by at most


@pytest.mark.parametrize("precision", HALF)
@pytest.mark.parametrize("type", ["matmul", "mul"])
def test_products_are_those_of_rounded_operands(monkeypatch, type, precision):
    cupy = install(monkeypatch, 1)

    def rounding(type, kernel):
        return lambda xp, *values, **attrs: kernel(products(xp, precision), *values, **attrs)

    compared(type, cupy, 20 * HALF[precision], rounding)
    assert {name for *_, name in cupy.machine.log} >= {"gemm"}


def test_factors_are_part_of_products(monkeypatch):
    cupy = install(monkeypatch, 1)
    compared("matmul", cupy, 1e-5, partial(kernel_of, backend="gpu"))
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((2, 3, 3), "f4") for _ in range(2))
    cupy.machine.log.clear()
    kernel = kernel_of("matmul", matmul.kernel, "gpu")
    found = kernel(cupy, cupy.asarray(x), cupy.asarray(y), transpose_Y=True, alpha=0.5)
    np.testing.assert_allclose(found.get(), 0.5 * (x @ y.swapaxes(1, 2)), 1e-5, 1e-6)
    assert [name for *_, name in cupy.machine.log][-2:] == ["gemm", "get"]


@pytest.mark.parametrize("step", [1, 2])
def test_operands_may_be_turned_and_have_gaps(monkeypatch, step):
    cupy = install(monkeypatch, 1)
    rng, tf32 = np.random.default_rng(0), products(cupy, "tf32")
    a = rng.integers(-4, 5, (3, 5 * step, 4)).astype("f4")
    b = rng.integers(-4, 5, (6, 4 * step)).astype("f4")
    left, right = cupy.asarray(a)[:, ::step], cupy.asarray(b).T[::step]
    found = tf32.matmul(left, right)  # whole numbers lose nothing
    np.testing.assert_array_equal(found.get(), a[:, ::step] @ b.T[::step])
    assert tf32.matmul(left[:0], left[:0].swapaxes(1, 2)).shape == (0, 5, 5)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_graphs_have_products_of_all_types(monkeypatch, kind):
    cupy = install(monkeypatch, 1)
    rng = np.random.default_rng(0)
    a, b = (cupy.asarray(rng.integers(-4, 5, (2, 3, 3)).astype(kind)) for _ in range(2))
    cupy.cuda.Device(0).synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream, cupy.cuda.using_allocator(cupy.cuda.MemoryPool().malloc):
        stream.begin_capture()
        made = products(cupy, factor=0.5).matmul(a, b)
        with pytest.raises(NotImplementedError, match="cuBLAS API during stream capture"):
            cupy.matmul(a, b)  # CuPy's own product
        stream.end_capture().launch()
        stream.synchronize()
    assert made.dtype == kind
    np.testing.assert_array_equal(made.get(), 0.5 * (a.get() @ b.get()))


def test_what_cublas_refuses_is_an_error(monkeypatch):
    cupy = install(monkeypatch, 1)
    functions = cupy.cuda.cublas.functions
    monkeypatch.setattr(functions, "cublasSetStream_v2", functions.refuse)
    x = cupy.ones((2, 2), np.float32)
    with pytest.raises(RuntimeError, match="refuse failed with status 7"):
        products(cupy).matmul(x, x)


@pytest.mark.parametrize("precision", HALF)
def test_programs_ask_for_them(monkeypatch, precision):
    cupy = install(monkeypatch, 1)
    net, feeds = regression(), feeds_of("regression")
    expected = trained(net, [fluid.CUDAPlace(0)], feeds=feeds)
    cupy.machine.log.clear()
    found = trained(net, [fluid.CUDAPlace(0)], feeds=feeds, product_precision=precision)
    assert [name for *_, name in cupy.machine.log].count("gemm") == 4 * 5
    for name, value in expected[1].items():
        np.testing.assert_allclose(found[1][name], value, 0.05, 0.05, err_msg=name)
    assert any(not np.array_equal(found[1][name], value) for name, value in expected[1].items())
    options = {"product_precision": precision, "allow_cuda_graph_capture": True}
    assert_same_bits(trained(net, [fluid.CUDAPlace(0)], feeds=feeds, **options), found)


def test_devices_without_them_are_named(monkeypatch):
    cupy = install(monkeypatch, 1)
    with pytest.raises(RuntimeError, match="'tf32' is for GPUs"):
        trained(regression(), [fluid.CPUPlace()], product_precision="tf32")
    cupy.machine.capability = "75"
    with pytest.raises(RuntimeError, match=r"compute capability 8.0, but CUDAPlace\(0\) has 7.5"):
        trained(regression(), [fluid.CUDAPlace(0)], product_precision="bfloat16")
