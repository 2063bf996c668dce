"""Sampled classes in machine code, compared with those that NumPy draws."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels in machine code need numba")

import dpexec as fluid
from dpexec import layers


def trained(sampler, native):
    program, startup = fluid.Program(), fluid.Program()
    program.random_seed = startup.random_seed = 3
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 6])
        label = fluid.data("label", [None, 1], "int64")
        cost = layers.nce(x, label, 50, num_neg_samples=4, sampler=sampler)
        loss = layers.mean(cost)
        fluid.optimizer.SGD(0.5).minimize(loss)
    (drawn,) = (op for op in program.global_block().ops if op.type == "nce")
    strategy = fluid.BuildStrategy()
    strategy.native_kernels = native
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    rng = np.random.default_rng(0)
    with fluid.scope_guard(scope):
        exe.run(startup)
        compiled = fluid.CompiledProgram(program).with_data_parallel(
            loss_name=loss.name, build_strategy=strategy, places=fluid.cpu_places(2)
        )
        found = []
        for rows in (8, 8, 6):
            data = rng.normal(size=(rows, 6)).astype("float32")
            feed = {"x": data, "label": rng.integers(0, 50, (rows, 1))}
            found += exe.run(
                compiled, feed=feed, fetch_list=[loss, cost, *drawn.outputs["SampleLabels"]]
            )
    return found


@pytest.mark.parametrize("sampler", ["uniform", "log_uniform"])
def test_code_draws_the_classes_of_numpy(sampler, monkeypatch):
    monkeypatch.setattr("dpexec.engine.run.shards.secrets.randbits", lambda bits: 12345)
    for code, numpy in zip(trained(sampler, True), trained(sampler, False), strict=True):
        assert code.dtype == numpy.dtype
        np.testing.assert_allclose(code, numpy, rtol=1e-4, atol=1e-5)
