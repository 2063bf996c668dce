"""Every optimizer in Reduce mode has the numbers of AllReduce mode, dense and sparse.

The original fails in Reduce mode with clips by global norm, with moving averages and with sparse
gradients that are clipped, and is wrong with Lookahead.
"""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.run import shards
from tests.engine.run.nets import AllReduce, Net, Reduce, assert_same_bits, persistables, train

STEPS = 3
ROWS = 10

OPTIMIZERS = {
    "SGD": lambda **o: fluid.optimizer.SGD(0.2, **o),
    "Momentum": lambda **o: fluid.optimizer.Momentum(0.1, 0.9, **o),
    "Nesterov": lambda **o: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True, **o),
    "Adagrad": lambda **o: fluid.optimizer.Adagrad(0.1, **o),
    "Adam": lambda **o: fluid.optimizer.Adam(0.05, **o),
    "LazyAdam": lambda **o: fluid.optimizer.Adam(0.05, lazy_mode=True, **o),
    "RMSProp": lambda **o: fluid.optimizer.RMSProp(0.02, **o),
    "CenteredRMSProp": lambda **o: fluid.optimizer.RMSProp(0.02, 0.9, 1e-6, 0.5, True, **o),
    "Lamb": lambda **o: fluid.optimizer.Lamb(0.05, **o),
    "LarsMomentum": lambda **o: fluid.optimizer.LarsMomentum(0.5, 0.9, **o),
    "Ftrl": lambda **o: fluid.optimizer.Ftrl(0.1, 0.01, 0.02, **o),
    "Adamax": lambda **o: fluid.optimizer.Adamax(0.1, **o),
    "Adadelta": lambda **o: fluid.optimizer.Adadelta(0.1, 1e-3, **o),
    "DecayedAdagrad": lambda **o: fluid.optimizer.DecayedAdagrad(0.05, **o),
    "Dpsgd": lambda: fluid.optimizer.Dpsgd(0.1, clip=0.5, batch_size=16.0, sigma=0.0),
}
SPARSE = [*OPTIMIZERS][:9]
L1 = {"regularization": fluid.regularizer.L1Decay(0.01)}
L2 = {"regularization": fluid.regularizer.L2Decay(0.05)}
OPTIONS = {
    "global_norm": {"grad_clip": fluid.clip.GradientClipByGlobalNorm(0.05)},
    "norm": {"grad_clip": fluid.clip.GradientClipByNorm(0.05)},
    "norm_l1": {"grad_clip": fluid.clip.GradientClipByNorm(0.05), **L1},
    "value_l2": {"grad_clip": fluid.clip.GradientClipByValue(0.01), **L2},
}
DENSE_EXTRAS = ["plain", "global_norm", "norm_l1", "value_l2", "averages"]
SPARSE_EXTRAS = ["plain", "global_norm", "norm", "value_l2", "averages"]


def network(name, is_sparse, extra):
    """A classifier of pairs of words, with its optimizer and what goes on top."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 9
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        words = fluid.data("words", [None, 2], "int64")
        table = fluid.embedding(words, [8, 4], is_sparse=is_sparse)
        hidden = fluid.layers.tanh(fluid.layers.reshape(table, [-1, 8]))
        logits = fluid.layers.fc(hidden, 3)
        label = fluid.data("label", [None, 1], "int64")
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))
        optimizer = OPTIMIZERS[name](**OPTIONS.get(extra, {}))
        if extra == "averages":
            optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
            optimizer._set_checkpoints([hidden])
            optimizer = fluid.optimizer.LookaheadOptimizer(optimizer, k=2)
        optimizer.minimize(loss)
        if extra == "averages":
            fluid.optimizer.ExponentialMovingAverage(0.9).update()
            fluid.optimizer.ModelAverage(0.5, 2, 3)
    return Net(main, startup, loss, None, None)


def batches(rows=ROWS):
    rng = np.random.RandomState(7)
    return [
        {
            "words": rng.randint(0, 8, (rows, 2)),
            "label": rng.randint(0, 3, (rows, 1)),
        }
        for _ in range(STEPS)
    ]


def train_alone(net, feeds):
    """Losses and stored variables of the plain Executor."""
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(net.startup)
        losses = [executor.run(net.main, feed, [net.loss])[0] for feed in feeds]
        return losses, persistables(net.main, scope)


CASES = [
    (name, False, extra)
    for name in OPTIMIZERS
    for extra in DENSE_EXTRAS
    if name != "Dpsgd" or extra not in OPTIONS  # it takes neither clips nor regularizers
]
CASES += [(name, True, extra) for name in SPARSE for extra in SPARSE_EXTRAS]


@pytest.mark.parametrize(("name", "is_sparse", "extra"), CASES)
def test_reduce_is_all_reduce_and_both_are_the_executor(name, is_sparse, extra):
    """10 rows, so that 4 devices get 3, 3, 2 and 2."""
    net, feeds = network(name, is_sparse, extra), batches()
    losses, state = train_alone(net, feeds)
    splits = {2: [5, 5], 4: [3, 3, 2, 2]}
    for devices in (2, 4) if extra in ("plain", "averages") else (4,):
        run = train(net, feeds, devices, AllReduce)
        assert_same_bits(run, train(net, feeds, devices, Reduce))
        means = [[np.average(loss, weights=splits[devices])] for loss in run.losses]
        np.testing.assert_allclose(means, losses, rtol=1e-5)
        for variable, value in state.items():
            np.testing.assert_allclose(
                run.state[variable], value, rtol=1e-4, atol=1e-6, err_msg=variable
            )


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_gradient_of_one_sample_reaches_idle_devices(name):
    net, feeds = network(name, True, "plain"), batches(rows=1)
    losses, state = train_alone(net, feeds)
    run = train(net, feeds, 4, AllReduce)
    assert_same_bits(run, train(net, feeds, 4, Reduce))
    np.testing.assert_allclose(run.losses, losses, rtol=1e-6)
    for variable, value in state.items():
        np.testing.assert_allclose(run.state[variable], value, rtol=1e-5, atol=1e-7)


def test_noise_of_dpsgd_is_the_same_on_all_devices(monkeypatch):
    monkeypatch.setattr(shards.secrets, "randbits", lambda bits: 1234)
    monkeypatch.setitem(
        OPTIMIZERS, "Dpsgd", lambda: fluid.optimizer.Dpsgd(0.1, clip=0.5, batch_size=1.0, sigma=1.0)
    )
    net, feeds = network("Dpsgd", False, "plain"), batches()
    _, state = train_alone(net, feeds)
    run = train(net, feeds, 4, AllReduce)
    assert_same_bits(run, train(net, feeds, 4, Reduce))
    for variable, value in state.items():
        np.testing.assert_allclose(run.state[variable], value, rtol=1e-4, atol=1e-6)
