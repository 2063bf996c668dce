"""Dropout on GPUs draws the numbers of :class:`RandomStream` in one launch."""

import numpy as np
import pytest

from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir import opdef
from dpexec.engine.kernels.implementations import kernel_of
from tests.fakes.cupy import install


@pytest.mark.parametrize("implementation", ["downgrade_in_infer", "upscale_in_train"])
@pytest.mark.parametrize("shape", [(6, 5), (5,), (3, 2, 2)])
def test_same_bits(monkeypatch, implementation, shape):
    cupy, general = install(monkeypatch, 1), opdef.get("dropout").kernel
    x = np.random.default_rng(0).standard_normal(shape).astype("f4")
    rng = RandomStream(3, 5, 7, (4, 3))
    attrs = {"rng": rng, "dropout_prob": 0.3, "dropout_implementation": implementation}
    expected = general(np, x, None, **attrs)
    given = cupy.asarray(x)
    cupy.machine.log.clear()
    found = kernel_of("dropout", general, "gpu")(cupy, given, None, **attrs)
    assert [name for *_, name in cupy.machine.log] == ["asarray", "dp_dropout"]
    for a, b in zip(expected, found, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(b.get(), a)


def test_what_it_does_not_take_is_computed_as_declared(monkeypatch):
    cupy, general = install(monkeypatch, 1), opdef.get("dropout").kernel
    x, kernel = np.ones((4, 3)), kernel_of("dropout", general, "gpu")
    for attrs in ({"dropout_prob": 1.0}, {"is_test": True}, {"dropout_prob": 0.4}):
        attrs = {"rng": RandomStream(3, 5, 7), **attrs}
        found, _ = kernel(cupy, cupy.asarray(x), None, **attrs)
        np.testing.assert_array_equal(found.get(), general(np, x, None, **attrs)[0])
