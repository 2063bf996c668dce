"""Products that round their operands: right for every layout, and close to those that do not."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.kernels.gpu.products import PRECISIONS, PRODUCTS, RoundingProducts
from tests.fakes.cupy import install
from tests.ops.test_contract_on_gpus import compared
from tests.runtime.gpu.programs import assert_same_bits, feeds_of, regression, trained

HALF = {"bfloat16": 2.0**-9, "tf32": 2.0**-11}  # what rounding changes a number by at most


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("type", sorted(type for type in PRODUCTS if "grad" not in type))
def test_products_are_those_of_rounded_operands(monkeypatch, type, precision):
    cupy = install(monkeypatch, 1)

    def rounding(type, kernel):
        return lambda xp, *values, **attrs: kernel(
            RoundingProducts(xp, precision), *values, **attrs
        )

    compared(type, cupy, 20 * HALF[precision], rounding)
    assert {name for *_, name in cupy.machine.log} >= {"gemm"}


@pytest.mark.parametrize("step", [1, 2])
def test_operands_may_be_turned_and_have_gaps(monkeypatch, step):
    cupy = install(monkeypatch, 1)
    rng, products = np.random.default_rng(0), RoundingProducts(cupy, "tf32")
    a = rng.integers(-4, 5, (3, 5 * step, 4)).astype("f4")
    b = rng.integers(-4, 5, (6, 4 * step)).astype("f4")
    left, right = cupy.asarray(a)[:, ::step], cupy.asarray(b).T[::step]
    found = products.matmul(left, right)  # whole numbers lose nothing
    np.testing.assert_array_equal(found.get(), a[:, ::step] @ b.T[::step])
    assert products.matmul(left[:0], left[:0].swapaxes(1, 2)).shape == (0, 5, 5)


@pytest.mark.parametrize("precision", PRECISIONS)
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
