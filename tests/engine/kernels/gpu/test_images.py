"""Kernels of pooling, norms and softmax, compiled as C++, compared with the operators."""

from functools import partial

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.kernels.implementations import kernel_of
from dpexec.engine.ops.batch_norm import batch_norm, batch_norm_grad
from dpexec.engine.ops.softmax import softmax
from dpexec.engine.ops.softmax_with_cross_entropy import (
    softmax_with_cross_entropy,
    softmax_with_cross_entropy_grad,
)
from tests.engine.gpu.programs import trained
from tests.engine.ops.test_contract_on_gpus import compared
from tests.engine.run.nets import AllReduce, Net
from tests.fakes.cupy import install


@pytest.mark.parametrize(
    ("type", "kernels"),
    [
        ("pool2d", {"dp_pool_max", "dp_pool_avg", "dp_pool_max_grad", "dp_pool_avg_grad"}),
        ("max_pool2d_with_index", {"dp_pool_index", "dp_pool_index_grad"}),
        (
            "batch_norm",
            {
                "dp_batch_norm",
                "dp_batch_norm_grad",
                "dp_batch_norm_sums",
                "dp_batch_norm_grad_sums",
            },
        ),
        ("layer_norm", {"dp_layer_norm", "dp_layer_norm_grad", "dp_layer_norm_columns"}),
        ("fused_batch_norm_act", {"dp_batch_norm_relu", "dp_batch_norm_relu_grad"}),
        ("sync_batch_norm_sums", {"dp_batch_norm_sums", "dp_sync_batch_norm_totals"}),
        ("sync_batch_norm", {"dp_sync_batch_norm_statistics", "dp_batch_norm"}),
        ("sync_batch_norm_grad_sums", {"dp_sync_batch_norm_grad_totals"}),
        ("sync_batch_norm_grad", {"dp_batch_norm_grad"}),
        (
            "softmax",
            {"dp_softmax", "dp_softmax_grad", "dp_softmax_columns", "dp_softmax_columns_grad"},
        ),
        ("softmax_with_cross_entropy", {"dp_softmax_loss", "dp_softmax_loss_grad"}),
    ],
)
def test_launches_compute_what_operators_do(monkeypatch, type, kernels):
    cupy = install(monkeypatch, 1)
    compared(type, cupy, 1e-5, partial(kernel_of, backend="gpu"))
    assert kernels <= {name for *_, name in cupy.machine.log}


@pytest.mark.parametrize("width", [1, 3, 9, 33])
def test_softmax_of_many_rows(monkeypatch, width):
    cupy = install(monkeypatch, 1)
    x = 30 * np.random.default_rng(0).standard_normal((7, width)).astype("f")
    x[3, 0] = np.nan
    found = kernel_of("softmax", softmax.kernel, "gpu")(cupy, cupy.asarray(x)).get()
    expected = softmax.kernel(np, x)
    np.testing.assert_allclose(found, expected, 1e-5)
    assert np.isnan(found[3]).all()


@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (50, 5), (7, 3, 2, 3)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_statistics_of_many_elements(monkeypatch, shape, layout):
    cupy = install(monkeypatch, 1)
    rng = np.random.default_rng(0)
    channels = shape[-1] if layout == "NHWC" else shape[1]
    x, d_y = (rng.standard_normal(shape, "f4") + 2 for _ in range(2))
    vectors = [rng.random(channels, "f4") + 0.5 for _ in range(4)]
    expected = batch_norm.kernel(np, x, *vectors, data_layout=layout)[:5]
    on = [cupy.asarray(array) for array in (x, *vectors)]
    kernel = kernel_of("batch_norm", batch_norm.kernel, "gpu")
    found = kernel(cupy, *on, data_layout=layout)[:5]
    given = x, *vectors[:2], *expected[3:], None, None, d_y
    expected += batch_norm_grad.kernel(np, *given, data_layout=layout)
    given = *on[:3], *found[3:], None, None, cupy.asarray(d_y)
    kernel = kernel_of("batch_norm_grad", batch_norm_grad.kernel, "gpu")
    found += kernel(cupy, *given, data_layout=layout)
    for value, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(value.get(), other, 1e-4, 1e-5)
    assert "dp_batch_norm_grad" in {name for *_, name in cupy.machine.log}


@pytest.mark.parametrize(("dtype", "label_of_none"), [("int32", -1), ("int64", 3)])
def test_rows_that_do_not_count_have_no_loss(monkeypatch, dtype, label_of_none):
    cupy, rng = install(monkeypatch, 1), np.random.default_rng(0)
    x, label = rng.standard_normal((6, 9), "f4"), rng.integers(0, 9, (6, 1)).astype(dtype)
    label[2], d_loss = label_of_none, rng.standard_normal((6, 1), "f4")
    on = [cupy.asarray(array) for array in (x, label, d_loss)]
    ignored = {"ignore_index": label_of_none}
    kernels = [
        kernel_of(op.type, op.kernel, "gpu")
        for op in (softmax_with_cross_entropy, softmax_with_cross_entropy_grad)
    ]
    found = kernels[0](cupy, *on[:2], **ignored)
    expected = softmax_with_cross_entropy.kernel(np, x, label, **ignored)
    slopes = kernels[1](cupy, found[0], *on[1:], **ignored).get()
    exact = softmax_with_cross_entropy_grad.kernel(np, expected[0], label, d_loss, **ignored)
    for made, value in zip(
        (found[0].get(), found[1].get(), slopes), (*expected, exact), strict=True
    ):
        np.testing.assert_allclose(made, value, 1e-5, 1e-6)
    assert found[1].get()[2] == 0 and not slopes[2].any()
    with pytest.raises(ValueError, match="Label value >= 0 and < 9 expected, but got 9"):
        kernels[0](cupy, on[0], cupy.asarray(np.full((6, 1), 9, dtype)), **ignored)


def test_small_variance_beside_a_large_mean(monkeypatch):
    cupy = install(monkeypatch, 1)
    x = (1000 + 0.5 * np.random.default_rng(0).standard_normal((4, 2, 5, 7))).astype("f")
    weights = [np.ones(2, "f") for _ in range(4)]
    kernel = kernel_of("batch_norm", batch_norm.kernel, "gpu")
    found = [value.get() for value in kernel(cupy, *map(cupy.asarray, [x, *weights]))[:5]]
    exact = x.astype("f8")
    np.testing.assert_allclose(found[3], exact.mean((0, 2, 3)), 1e-6)
    np.testing.assert_allclose(found[4], exact.var((0, 2, 3)) ** -0.5, 1e-4)


def images():
    """A net with pooling of both kinds, batch norm and softmax."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2, 8, 8], "float32")
        hidden = fluid.layers.batch_norm(fluid.layers.pool2d(x, 3, "max", 2, 1), act="relu")
        hidden = fluid.layers.pool2d(fluid.layers.conv2d(hidden, 3, 3), 2, "avg")
        found = fluid.layers.fc(hidden, 4, act="softmax")
        loss = fluid.layers.mean(fluid.layers.square(found - 0.25))
        fluid.optimizer.SGD(0.5).minimize(loss)
    return Net(main, startup, loss, main, None)


@pytest.mark.parametrize("graphs", [False, True])
def test_replicas_train(monkeypatch, graphs):
    cupy, net, rng = install(monkeypatch, 2), images(), np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((4, 2, 8, 8), "f4")} for _ in range(4)]
    expected = trained(net, [fluid.CPUPlace()] * 2, AllReduce, feeds)
    gpus = [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    found = trained(net, gpus, AllReduce, feeds, allow_cuda_graph_capture=graphs)
    for name, value in expected[1].items():
        np.testing.assert_allclose(found[1][name], value, 1e-4, 1e-6, err_msg=name)
    launched = {name for *_, name in cupy.machine.log}
    assert {"dp_pool_max", "dp_batch_norm_grad", "dp_softmax_grad"} <= launched
    assert ("graph" in launched) == graphs
