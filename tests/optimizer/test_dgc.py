"""``DGCMomentumOptimizer``: Momentum before the ramp, then few elements, none lost."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.compile.plans import collectives
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from tests.engine.run.nets import AllReduce, Reduce, assert_same_bits, batches, classifier, train

SIZES = (128, 160, 3)  # the first weight is large enough to be compressed, the others are not
WEIGHT = "fc_0.w_0"


def dgc(begin, **options):
    return fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, begin, **options)


def network(optimizer):
    return classifier(optimizer, sizes=SIZES)


def feeds(steps, rows=12):
    return batches(steps, rows, *SIZES[::2])


def op_types(net, role):
    return [op.type for op in net.main.global_block().ops if op.role == role]


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_before_the_ramp_it_is_momentum(devices, nesterov):
    momentum = fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=nesterov)
    plain = train(network(momentum), feeds(4), devices)
    found = train(network(dgc(4, use_nesterov=nesterov)), feeds(4), devices)
    for one, other in zip(plain.losses, found.losses, strict=True):
        np.testing.assert_array_equal(one, other)
    for name in (WEIGHT, "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"):
        np.testing.assert_array_equal(plain.state[name], found.state[name])


@pytest.mark.parametrize("decay", [fluid.regularizer.L1Decay(0.01), fluid.regularizer.L2Decay(0.1)])
def test_before_the_ramp_decay_is_that_of_momentum(decay):
    momentum = fluid.optimizer.Momentum(0.1, 0.9, regularization=decay)
    plain = train(network(momentum), feeds(4, 7), 3)
    found = train(network(dgc(4, regularization=decay)), feeds(4, 7), 3)
    np.testing.assert_allclose(plain.state[WEIGHT], found.state[WEIGHT], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_training_converges_with_one_element_in_a_hundred(devices):
    options = {"rampup_step": 4, "sparsity": [0.75, 0.9375, 0.99]}
    run = train(network(dgc(2, **options)), feeds(6) * 10, devices)
    assert np.mean(run.losses[0]) > 1
    assert np.mean(run.losses[-1]) < 0.05
    assert run.state[WEIGHT + "__dgc_k__"] == [int(128 * 160 * (1 - 0.99))]


def test_idle_devices_take_part_in_updates():
    run = train(network(dgc(1, sparsity=[0.999])), [*feeds(1, 12), *feeds(2, 1)], 3)
    first, *others = (
        np.array(scope.find_var(WEIGHT).get_tensor())
        for scope in run.compiled._engine.replicas.scopes
    )
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize("rows", [1, 7, 12])
def test_devices_exchange_few_elements_and_stay_equal(rows, monkeypatch):
    seen = []
    combined = collectives.combined

    def watched(how, values, *args):
        seen.extend(value for value in values if isinstance(value, SelectedRows))
        return combined(how, values, *args)

    monkeypatch.setattr(collectives, "combined", watched)
    devices = min(rows, 3)
    run = train(network(dgc(1, sparsity=[0.999])), feeds(4, rows), 3)
    assert [value.numel() for value in seen] == [20] * (3 * devices)
    scopes = run.compiled._engine.replicas.scopes
    weights = [np.array(scope.find_var(WEIGHT).get_tensor()) for scope in scopes]
    np.testing.assert_array_equal(weights[0], weights[1])
    np.testing.assert_array_equal(weights[0], weights[2])
    kept = [np.array(s.find_var(WEIGHT + "__dgc_v__0").get_tensor()) for s in scopes[:devices]]
    assert all(np.count_nonzero(values) for values in kept)
    assert devices == 1 or (kept[0] != kept[1]).any()


def test_fetched_gradient_is_the_sum_of_what_devices_exchanged():
    net, scope = network(dgc(0, sparsity=[0.999])), fluid.Scope()
    with fluid.scope_guard(scope):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(net.startup)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, places=[fluid.CPUPlace()] * 2
        )
        (merged,) = executor.run(compiled, feeds(1)[0], [WEIGHT + "@GRAD"])
    first, second = np.split(merged, 2)
    assert first.shape == (128, 160)
    assert 20 <= np.count_nonzero(first) <= 40
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("collectives", ["gang", "tasks"])
@pytest.mark.parametrize("begin", [1, 3])
def test_same_bits_on_a_cluster(begin, collectives):
    from distributed import Client

    with Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as client:
        net = network(dgc(begin, sparsity=[0.99]))
        found = train(net, feeds(5), 2, scheduler=client, collectives=collectives)
        assert_same_bits(train(net, feeds(5), 2), found)


def kernel(u, v, grad, step=5.0, share=1.0, **attrs):
    given = {"m": 0.5, "use_nesterov": False, "sparsity": [0.5], "rampup_begin_step": 2.0, **attrs}
    numbers = np.array([step], np.float32), np.array([1.0], np.float32)
    param = np.ones_like(grad)
    u, v, _, out, count, _ = opdef.get("dgc")(np, u, v, grad, param, *numbers, share=share, **given)
    return u, v, out, count


def test_largest_sums_go_out_and_are_forgotten():
    u, v = np.array([1.0, 0.0, 2.0, 0.0]), np.array([0.0, 4.0, 0.0, 0.0])
    u, v, out, count = kernel(u, v, np.array([1.0, 0.5, -2.0, 3.0]))
    assert (out.rows(), out.value.tolist(), count) == ([1, 3], [4.5, 3.0], [2])
    assert (u.tolist(), v.tolist()) == ([1.5, 0, -1, 0], [1.5, 0, -1, 0])


def test_nesterov_adds_the_gradient_once_more():
    grad = np.array([1.0, 8.0])
    u, v, out, _ = kernel(np.array([2.0, 0]), np.zeros(2), grad, use_nesterov=True)
    assert (u.tolist(), v.tolist()) == ([1.5, 0], [2.5, 0])
    assert out.value.tolist() == [12.0]


def test_nothing_is_lost():
    rng = np.random.RandomState(3)
    u, v, total, sent = np.zeros(64), np.zeros(64), np.zeros(64), np.zeros(64)
    for _ in range(20):
        grad = rng.standard_normal(64)
        u, v, out, _ = kernel(u, v, grad * 0.25, m=0.0, share=0.25, sparsity=[0.9])
        total += grad * 0.25
        sent += out.to_dense()
    np.testing.assert_allclose(sent + v * 0.25, total)


@pytest.mark.parametrize(("step", "count"), [(2, 50), (4, 50), (5, 25), (7, 25), (8, 1), (99, 1)])
def test_sparsity_grows_along_the_ramp(step, count):
    zeros = np.zeros(100)
    attrs = {"sparsity": [0.5, 0.75, 0.99], "rampup_step": 9.0}
    assert kernel(zeros, zeros, np.arange(100.0), step=float(step), **attrs)[3] == [count]


def test_only_large_dense_gradients_are_compressed():
    net = network(dgc(0, num_trainers=2, grad_clip=fluid.clip.GradientClipByNorm(1.0)))
    assert op_types(net, 1)[-2:] == ["dgc_clip_by_norm", "dgc"]
    assert [kind for kind in op_types(net, 2) if "momentum" in kind] == [
        *("momentum", "dgc_momentum"),
        *("momentum", "momentum"),
    ]
    (clip,) = [op for op in net.main.global_block().ops if op.type == "dgc_clip_by_norm"]
    assert clip.attr("max_norm") == pytest.approx(0.5**0.5)
    run = train(net, feeds(2), 2)
    assert np.isfinite(run.losses).all()


def test_with_recomputation():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        hidden = fluid.layers.fc(fluid.data("x", [None, 128]), 160, act="tanh")
        optimizer = fluid.optimizer.RecomputeOptimizer(dgc(1))
        optimizer._set_checkpoints([hidden])
        optimizer.minimize(fluid.layers.mean(fluid.layers.fc(hidden, 1)))
    types = [op.type for op in main.global_block().ops]
    assert "dgc" in types and "dgc_momentum" in types


def test_clone_for_testing_does_not_count():
    test = network(dgc(1)).main.clone(for_test=True)
    assert not {"increment", "dgc", "dgc_momentum"}.intersection(
        op.type for op in test.global_block().ops
    )


def test_reduce_mode_is_refused():
    with pytest.raises(fluid.core.EnforceNotMet, match="compressed in AllReduce mode only"):
        train(network(dgc(1)), feeds(1), 2, Reduce)
    train(network(dgc(1)), feeds(1), 1, Reduce)
    train(network(dgc(1)), feeds(1), 2, AllReduce)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"begin": -1}, AssertionError, "rampup_begin_step must >= 0"),
        ({"begin": 0, "grad_clip": fluid.clip.GradientClipByValue(1.0)}, TypeError, "ByNorm"),
        ({"begin": 0, "grad_clip": fluid.clip.GradientClipByNorm(1.0)}, AssertionError, "trainers"),
        ({"begin": 0, "sparsity": [1.0]}, fluid.core.EnforceNotMet, "attribute sparsity"),
    ],
)
def test_wrong_arguments_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        network(dgc(**options))
