"""Training with parameter servers, compared with Paddle and with one process."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.certificates import requiring_encryption
from tests.engine.parameter_server.runs import train, train_alone
from tests.engine.run.nets import AllReduce, Reduce
from tests.fixtures import pserver_cases as cases

RECORDED = json.loads((Path(cases.__file__).parent / "pservers.json").read_text())


def assert_same_bits(one, other):
    assert [member.losses for member in one] == [member.losses for member in other]
    for mine, theirs in zip(one, other, strict=True):
        for name, value in mine.parameters.items():
            np.testing.assert_array_equal(value, theirs.parameters[name])


@pytest.mark.parametrize("name", [n for n in cases.CASES if "trained" in RECORDED[n]])
def test_losses_and_parameters_are_those_of_paddle(name):
    team, recorded = train(name), RECORDED[name]["trained"]
    np.testing.assert_allclose([member.losses for member in team], recorded["losses"], rtol=2e-6)
    for member in team:
        for parameter, value in recorded["parameters"].items():
            np.testing.assert_allclose(member.parameters[parameter], value, atol=1e-7)


def test_where_dask_requires_encryption_servers_do(tmp_path):
    plain = train("one_trainer", trainers=1)
    with requiring_encryption(tmp_path):
        assert_same_bits(train("one_trainer", trainers=1), plain)


@pytest.mark.parametrize("name", ["adam", "sparse"])
def test_runs_give_the_same_bits_again(name):
    assert_same_bits(train(name), train(name))


@pytest.mark.parametrize("name", ["sgd", "decayed", "sparse", "whole"])
def test_two_trainers_are_one_with_both_batches(name):
    losses, parameters = train_alone(name)
    team = train(name)
    np.testing.assert_allclose(np.mean([m.losses for m in team], axis=0), losses, rtol=1e-5)
    for member in team:
        for parameter, value in parameters.items():
            np.testing.assert_allclose(member.parameters[parameter], value, rtol=1e-5, atol=1e-7)


def test_completely_not_async_is_synchronous():
    assert_same_bits(train("not_async"), train("sgd"))


def test_one_trainer_has_the_bits_of_training_without_servers():
    (member,) = train("one_trainer", trainers=1)
    losses, parameters = train_alone("one_trainer", trainers=1)
    assert member.losses == losses
    for name, value in parameters.items():
        np.testing.assert_array_equal(member.parameters[name], value)


@pytest.mark.parametrize("name", ["adam", "sparse"])
def test_trainers_with_several_devices(name):
    one, two = train(name), train(name, devices=2)
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_allclose(mine.losses, theirs.losses, rtol=1e-5)
        for parameter, value in mine.parameters.items():
            np.testing.assert_allclose(value, theirs.parameters[parameter], rtol=1e-5, atol=1e-7)


def clipped(fluid, loss):
    clip = fluid.clip.GradientClipByGlobalNorm(0.1)
    fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(loss)


@pytest.mark.parametrize("network", [cases.dense, cases.sparse])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_trainers_with_several_devices_clip_what_all_of_them_have(monkeypatch, network, mode):
    monkeypatch.setitem(cases.CASES, "clipped", (network, clipped, 2, {}, True))
    one, two = train("clipped"), train("clipped", devices=2, mode=mode)
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_allclose(mine.losses, theirs.losses, rtol=1e-5)


def normalized(fluid):
    """A layer whose backward operator gives the gradients of two parameters."""
    x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
    out = fluid.layers.batch_norm(fluid.layers.fc(x, 1, bias_attr=False))
    return fluid.layers.mean(fluid.layers.square_error_cost(out, y))


def test_an_operator_may_give_several_gradients(monkeypatch):
    monkeypatch.setitem(cases.CASES, "two", (normalized, cases.minimize_sgd, 2, {}, True))
    one, other = train("two", devices=2)
    for name in ("batch_norm_0.w_0", "batch_norm_0.b_0"):
        np.testing.assert_array_equal(one.parameters[name], other.parameters[name])
        assert one.parameters[name] not in (0, 1)


@pytest.mark.parametrize("name", ["sgd", "sparse"])
def test_mode_reduce_gives_the_bits_of_all_reduce(name):
    assert_same_bits(train(name, devices=2), train(name, devices=2, mode=Reduce))


@pytest.mark.filterwarnings("ignore:The current program is empty")
def test_servers_without_parameters_are_no_hindrance():
    few, many = train("sgd"), train("whole", servers=6)
    for mine, theirs in zip(few, many, strict=True):
        np.testing.assert_allclose(mine.losses, theirs.losses, rtol=1e-6)


@pytest.mark.parametrize("name", ["async", "async_split_in_runtime", "half_async"])
def test_asynchronous_trainers_learn_what_all_of_them_see(name):
    team = train(name, steps=150, batches=1)
    assert np.mean([m.losses[-1] for m in team]) < 0.5 * np.mean([m.losses[0] for m in team])


def test_an_asynchronous_trainer_alone_has_the_bits_of_training_without_servers(monkeypatch):
    network, minimize, _, options, synchronous = cases.CASES["async"]
    monkeypatch.setitem(cases.CASES, "async", (network, minimize, 1, options, synchronous))
    (member,) = train("async", trainers=1)
    losses, parameters = train_alone("async", trainers=1)
    assert member.losses == losses
    for name, value in parameters.items():
        np.testing.assert_array_equal(member.parameters[name], value)


def stepwise(fluid, loss):
    rate = fluid.layers.piecewise_decay([1, 3], [0.1, 0.05, 0.01])
    fluid.optimizer.Momentum(rate, 0.9).minimize(loss)


def warmed_up(fluid, loss):
    rate = fluid.layers.linear_lr_warmup(fluid.layers.cosine_decay(0.1, 1, 5), 3, 0.0, 0.1)
    fluid.optimizer.Adam(rate).minimize(loss)


def decaying(fluid, loss):
    fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.1)).minimize(loss)


def lazy(fluid, loss):
    fluid.optimizer.Adam(0.1, lazy_mode=True).minimize(loss)


def momentum(fluid, loss):
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)


@pytest.mark.parametrize(
    ("network", "minimize"),
    [
        (cases.dense, stepwise),
        (cases.dense, warmed_up),
        (cases.sparse, decaying),
        (cases.sparse, lazy),
        (cases.sparse, momentum),
    ],
)
@pytest.mark.parametrize("synchronous", [True, False])
def test_servers_compute_what_one_process_does(monkeypatch, network, minimize, synchronous):
    trainers = 2 if synchronous else 1
    monkeypatch.setitem(cases.CASES, "one", (network, minimize, trainers, {}, synchronous))
    losses, parameters = train_alone("one", trainers=trainers)
    team = train("one", trainers=trainers)
    np.testing.assert_allclose(np.mean([m.losses for m in team], axis=0), losses, rtol=1e-5)
    for parameter, value in parameters.items():
        np.testing.assert_allclose(team[0].parameters[parameter], value, rtol=1e-5, atol=1e-6)
