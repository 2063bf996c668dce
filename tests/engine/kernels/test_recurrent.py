"""Recurrent operators in machine code, compared with NumPy and with Paddle's gates."""

from functools import partial

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir import opdef
from dpexec.engine.kernels import implementations, onednn
from dpexec.engine.kernels.implementations import kernel_of
from tests.engine.ops.calls import SampleCall, samples

pytest.importorskip("numba")

from dpexec.engine.kernels import gru, lstm, lstm_code

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


ON_HOST = partial(kernel_of, backend="host")


def in_general(type, kernel):
    return kernel


@pytest.mark.parametrize("type", TYPES)
def test_samples_give_the_same(type):
    for sample in samples(type):
        expected = results(type, sample, in_general)
        for name, value in results(type, sample, ON_HOST).items():
            np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("initial", "size"), [(False, 19), (True, 19), (True, 512)])
def test_many_sequences_give_the_same(type, initial, size):
    rng = np.random.default_rng(2)
    lod = Lod.of_lengths([rng.integers(0, 12, 40 if size < 512 else 8)])
    columns, projected = COLUMNS[type], 7 if (type, size) == ("lstmp", 19) else size
    widths = {"H0": projected, "C0": size}
    inputs = {
        "Input": rng.normal(0, 0.5, (lod.rows, columns * size)),
        "Input@LOD": lod,
        **{
            slot: rng.normal(0, 0.5, (lod.sequences, widths[slot]))
            for slot in (STATES[type] if initial else ())
        },
        "Weight": rng.normal(0, 0.45 / size**0.5, (projected, columns * size)),
        "Bias": rng.normal(0, 0.1, (1, (3 if type == "gru" else 7) * size)),
    }
    if type == "lstmp":
        inputs["ProjWeight"] = rng.normal(0, 1.3 / size**0.5, (size, projected))
    sample = opdef.Sample(inputs, {"is_reverse": initial})
    expected = results(type, sample, in_general)
    for name, value in results(type, sample, ON_HOST).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


def losses(native, cells=(3, 3, 2, 4)):
    """Of a net with all three, trained for some steps."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        rows = fluid.data("rows", [None, 5], lod_level=1)
        one, other, projected, last = cells
        hidden, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(rows, 4 * one), 4 * one)
        gates = fluid.layers.fc(hidden, 4 * other)
        hidden, _ = fluid.layers.dynamic_lstmp(gates, 4 * other, projected)
        states = fluid.layers.dynamic_gru(fluid.layers.fc(hidden, 3 * last), last)
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
    used, find = [], implementations.find
    monkeypatch.setattr(
        implementations, "find", lambda type, *how: (used.append(type), find(type, *how))[1]
    )
    on_arrays = losses(False)
    assert "lstm" not in used
    np.testing.assert_allclose(losses(True), on_arrays, rtol=1e-5)
    assert {"lstm", "lstm_grad", "gru", "gru_grad", "lstmp", "lstmp_grad"} <= set(used)


@pytest.fixture
def forget():
    """Forgets the loops that were made, now and at the end."""

    def forget():
        for loop in (lstm.forward_loop, lstm.backward_loop, lstm_code.state_loop):
            loop.cache_clear()
        for loop in (gru._forward_loop, gru._backward_loop):
            loop.cache_clear()

    yield forget
    forget()


@pytest.mark.skipif(not onednn.available(), reason="oneDNN is not installed")
def test_weights_whose_rows_push_each_other_out_of_caches_give_the_same_bits(forget, monkeypatch):
    found = []
    for copies in (True, False):
        monkeypatch.setattr(onednn, "copies_operands", lambda copies=copies: copies)
        forget()
        found.append(losses(True, (128, 128, 512, 512)))
    assert found[0] == found[1]


ARGUMENTS = np.array([-np.inf, -1e30, -90, -41, -39.5, -20, -7, -1e-3, 0, 1e-3, 7, 12.5, 14, 90])
"""What gates are activations of, from shut to open."""


def shut(x):
    """Where a gate of ``lstm``, ``lstmp`` and ``gru`` is, in double precision; as in Paddle."""
    return 1 / (1 + np.exp(-np.clip(x, -40, 13)))


@pytest.mark.parametrize("choose", [in_general, ON_HOST])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("type", TYPES)
def test_gates_are_shut_and_open_as_far_as_those_of_paddle(type, dtype, choose):
    rows, columns = len(ARGUMENTS), COLUMNS[type]
    inputs = {
        "Input": np.repeat(ARGUMENTS[:, None], columns, 1),
        "Input@LOD": Lod([range(rows + 1)]),
        "Weight": np.zeros((1, columns)),
        **({"ProjWeight": np.ones((1, 1))} if type == "lstmp" else {}),
        "Bias": np.zeros((1, columns)),
    }
    attrs = {} if type == "gru" else {"use_peepholes": False}
    call = SampleCall(type, opdef.Sample(inputs, attrs), dtype)
    call.choose = choose
    gates = call.forward()["out_BatchGate_0"]
    chosen = gates[:, :2] if type == "gru" else gates[:, 1:]
    expected = np.repeat(shut(ARGUMENTS)[:, None], chosen.shape[1], 1)
    np.testing.assert_allclose(chosen, expected, rtol=8 * np.finfo(dtype).eps)
    assert chosen.min() > 4.248e-18 and chosen.max() < 0.9999978


@pytest.mark.parametrize("code", [True, False])
def test_gates_of_single_steps_are_exact_far_from_zero(code):
    """``gru_unit`` and ``lstm_unit`` do not saturate; what is below 1e-38 need not be right."""
    x = np.array([-80, -60, -40, -20, -13, -7, 0.5, 14, 90], "float32")
    main = fluid.Program()
    with fluid.program_guard(main):
        three, four = fluid.data("three", [None, 3]), fluid.data("four", [None, 4])
        state = fluid.data("state", [None, 1])
        block = main.global_block()
        weight = fluid.layers.fill_constant([1, 3], "float32", 0.0)
        names = ("Gate", "ResetHiddenPrev", "Hidden", "C", "H")
        made = {name: block.create_var(name=name, dtype="float32") for name in names}
        inputs = {"Input": three, "HiddenPrev": state, "Weight": weight}
        block.append_op("gru_unit", inputs, {name: made[name] for name in names[:3]})
        step = {name: made[name] for name in names[3:]}
        block.append_op("lstm_unit", {"X": four, "C_prev": state}, step)
    if not code:
        fluid.set_flags({"FLAGS_check_nan_inf": True})
    try:
        feed = {name: np.repeat(x[:, None], n, 1) for name, n in (("three", 3), ("four", 4))}
        feed["state"] = np.zeros((len(x), 1), "float32")
        feed["four"][:, 3] = 0.5
        gate, cell = fluid.Executor().run(main, feed=feed, fetch_list=["Gate", "C"])
    finally:
        fluid.set_flags({"FLAGS_check_nan_inf": False})
    expected = 1 / (1 + np.exp(-x.astype("float64")))
    np.testing.assert_allclose(gate[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(cell[:, 0], expected * np.tanh(0.5), rtol=1e-6)
