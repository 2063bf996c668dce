"""Recurrent operators in machine code compute what they compute on arrays."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.core.lod import Lod
from dpexec.ir import opdef
from dpexec.kernels import host
from tests.ops.calls import SampleCall, samples

pytest.importorskip("numba")
TYPES = ["lstm", "gru", "lstmp"]
COLUMNS = {"lstm": 4, "gru": 3, "lstmp": 4}
STATES = {"lstm": ("H0", "C0"), "gru": ("H0",), "lstmp": ("H0", "C0")}


def results(type, sample, choose):
    """Outputs and gradients of a sample."""
    call = SampleCall(type, sample, np.float32)
    call.choose = choose
    call.protect()
    values = call.forward()
    wanted = call.wanted_inputs(sample)
    rng = np.random.default_rng(1)
    weights = {
        name: rng.standard_normal(values[name].shape).astype("float32")
        for name in call.read_output_grads(wanted)
    }
    grads, _ = call.backward(values, weights, wanted)
    return {**{name: values[name] for names in call.outputs.values() for name in names}, **grads}


def in_general(type, kernel):
    return kernel


@pytest.mark.parametrize("type", TYPES)
def test_samples_give_the_same(type):
    for sample in samples(type):
        expected = results(type, sample, in_general)
        for name, value in results(type, sample, host.host_kernel_of).items():
            np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("initial", [False, True])
def test_many_sequences_give_the_same(type, initial):
    rng = np.random.default_rng(2)
    lod, size = Lod.of_lengths([rng.integers(0, 12, 40)]), 19
    columns, projected = COLUMNS[type], 7 if type == "lstmp" else size
    widths = {"H0": projected, "C0": size}
    inputs = {
        "Input": rng.normal(0, 0.5, (lod.rows, columns * size)),
        "Input@LOD": lod,
        **{
            slot: rng.normal(0, 0.5, (lod.sequences, widths[slot]))
            for slot in (STATES[type] if initial else ())
        },
        "Weight": rng.normal(0, 0.1, (projected, columns * size)),
        "Bias": rng.normal(0, 0.1, (1, (3 if type == "gru" else 7) * size)),
    }
    if type == "lstmp":
        inputs["ProjWeight"] = rng.normal(0, 0.3, (size, projected))
    sample = opdef.Sample(inputs, {"is_reverse": initial})
    expected = results(type, sample, in_general)
    for name, value in results(type, sample, host.host_kernel_of).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


def losses(native):
    """Of a net with both, trained for some steps; and whether machine code was used."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        rows = fluid.data("rows", [None, 5], lod_level=1)
        hidden, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(rows, 12), 12)
        hidden, _ = fluid.layers.dynamic_lstmp(fluid.layers.fc(hidden, 12), 12, 2)
        states = fluid.layers.dynamic_gru(fluid.layers.fc(hidden, 12), 4)
        loss = fluid.layers.mean(fluid.layers.square(states))
        fluid.optimizer.SGD(0.5).minimize(loss)
    strategy = fluid.BuildStrategy()
    strategy.native_kernels = native
    program = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, build_strategy=strategy, places=[fluid.CPUPlace()] * 2
    )
    values = np.random.default_rng(4).normal(0, 1, (14, 5)).astype("float32")
    feed = {"rows": fluid.create_lod_tensor(values, [[3, 5, 2, 4]], fluid.CPUPlace())}
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        return [executor.run(program, feed, [loss])[0].mean() for _ in range(4)]


def test_programs_use_them_unless_they_are_switched_off(monkeypatch):
    used = []
    of = host.host_kernel_of
    monkeypatch.setattr(
        "dpexec.runtime.steps.host_kernel_of", lambda *a: (used.append(a[0]), of(*a))[1]
    )
    on_arrays = losses(False)
    assert "lstm" not in used
    np.testing.assert_allclose(losses(True), on_arrays, rtol=1e-5)
    assert {"lstm", "lstm_grad", "gru", "gru_grad", "lstmp", "lstmp_grad"} <= set(used)
