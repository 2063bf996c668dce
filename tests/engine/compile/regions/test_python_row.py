"""Operators without machine code are rows of a whole step of code that call Python."""

import gc
import weakref

import numpy as np
import pytest

import dpexec as fluid
from dpexec import extend, layers
from dpexec.engine import kernels
from dpexec.engine.compile.regions.python_row import KernelCall, PythonRow
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir import opdef
from tests.engine.run.nets import AllReduce, Reduce, strategies

if not kernels.available():
    pytest.skip("needs numba", allow_module_level=True)

CPU = fluid.CPUPlace()


def plain(x):
    """Values of several types, one of them an image in another layout than its shape's."""
    hidden = layers.fc(x, 12, act="relu")
    image = layers.conv2d(layers.reshape(hidden, [-1, 3, 2, 2]), 4, 1)
    padded = layers.pad2d(image, [0, 1, 1, 0])
    best = layers.cast(layers.argmax(padded, axis=1), "float32")
    return layers.erf(layers.concat([hidden, layers.flatten(best)], axis=1))


def random(x):
    noise = layers.gaussian_random_batch_size_like(x, [-1, 6], std=0.1, seed=5)
    return layers.elementwise_add(layers.fc(x, 6), noise)


def branches(x):
    """Branches of the net, of which one has an operator without machine code.

    Each net has others, which choose the learning rate.
    """
    scale = layers.create_global_var([1], 1.0, "float32", persistable=True)
    zero = layers.fill_constant([1], "float32", 0)
    switch = layers.Switch()
    with switch:
        with switch.case(layers.less_than(layers.mean(x), zero)):
            layers.assign(
                layers.scale(layers.reduce_max(layers.softmax(x), dim=[0, 1]), 0.5), scale
            )
        with switch.default():
            layers.assign(layers.erf(layers.reduce_max(x, dim=[0, 1])), scale)
    return layers.elementwise_mul(layers.fc(x, 5), scale)


def decayed(ids):
    """Sparse gradients, to which decay adds dense ones."""
    ids = layers.cast(layers.abs(layers.scale(ids, 3.0)), "int64")
    return fluid.embedding(ids, [20, 3], is_sparse=True)


NETS = {"plain": plain, "random": random, "branches": branches, "decayed": decayed}


class Trained:
    """A net whose loss is minimized, on some devices, in a scope of its own."""

    def __init__(self, net, devices=2, mode=AllReduce, whole=True):
        self.main, startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        self.main.random_seed = startup.random_seed = 7
        with fluid.unique_name.guard(), fluid.program_guard(self.main, startup):
            x = fluid.data("x", [None, 4])
            self.loss = layers.mean(layers.square(NETS.get(net, net)(x)))
            rate = layers.piecewise_decay([2, 4], [0.1, 0.05, 0.01])
            decay = fluid.regularizer.L2Decay(0.01)
            fluid.optimizer.Momentum(rate, 0.9, regularization=decay).minimize(self.loss)
        self.rate = rate.name
        self.exe = fluid.Executor(CPU)
        self.exe.run(startup, scope=self.scope)
        build, execution = strategies(mode, use_experimental_executor=whole)
        self.program = fluid.CompiledProgram(self.main).with_data_parallel(
            self.loss.name, build, execution, places=[CPU] * devices
        )

    def step(self, rows=8, seed=0, fetch=(), x=None):
        drawn = np.random.default_rng(seed).standard_normal((rows, 4), np.float32)
        feed = {"x": drawn if x is None else x}
        return self.exe.run(self.program, feed, [self.loss, *fetch], scope=self.scope)

    @property
    def whole_steps(self):
        code = self.program._engine.runner.code
        return (
            [] if code is None else [made for made in code.by_binding.values() if made is not None]
        )

    def state(self):
        variables = [v.name for v in self.main.list_vars() if v.persistable]
        tensors = {name: self.scope.find_var(name) for name in variables}
        return {name: np.array(v.get_tensor()) for name, v in tensors.items() if v is not None}


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("net", NETS)
def test_rows_have_the_bits_of_tasks(net, mode):
    runs = [Trained(net, 2, mode, whole) for whole in (True, False)]
    for seed in range(6):
        losses = [run.step(seed=seed)[0].tobytes() for run in runs]
        assert losses[0] == losses[1]
    states = [run.state() for run in runs]
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)
    assert [len(run.whole_steps) for run in runs] == [1, 0]


def test_rows_work_on_batches_of_any_size():
    runs = [Trained("plain", 2, AllReduce, whole) for whole in (True, False)]
    for rows in (12, 8, 12, 8, 5, 12, 6, 5):
        losses = [run.step(rows)[0].tobytes() for run in runs]
        assert losses[0] == losses[1]
    assert len(runs[0].whole_steps) < 4  # sizes share code


def test_branches_choose_anew_in_every_step():
    run = Trained("plain", 1)
    rates = [run.step(fetch=[run.rate])[1][0] for _ in range(6)]
    np.testing.assert_array_equal(rates, np.float32([0.1, 0.1, 0.05, 0.05, 0.01, 0.01]))
    assert run.whole_steps


def test_the_user_sees_the_kernels_error_and_parameters_stay():
    def net(x):
        label = layers.cast(layers.slice(x, [1], [0], [1]), "int64")
        return layers.bpr_loss(layers.softmax(layers.fc(x, 3)), label)

    run, good = Trained(net), np.full((8, 4), 0.5, np.float32)
    for _ in range(3):
        run.step(x=good)
    before, bad = run.state(), good.copy()
    assert run.whole_steps
    bad[6, 0] = 5.0
    with pytest.raises(EnforceNotMet, match=r"bpr_loss on device 1.*\b5\b"):
        run.step(x=bad)
    assert all(np.array_equal(value, before[name]) for name, value in run.state().items())
    twin = Trained(net, whole=False)
    losses = [[run.step(x=good)[0]], [twin.step(x=good)[0] for _ in range(4)]]
    assert losses[0][-1].tobytes() == losses[1][-1].tobytes()


@pytest.fixture
def halved(monkeypatch):
    """An operator of a user that is wrong about the shape of its result."""
    monkeypatch.setattr(opdef, "_registry", {**opdef.registered()})  # other tests list operators
    op = extend.op("halved_rows", inputs="X", infer=extend.same_as("X"), no_grad=True)
    return op(lambda xp, x: x[::2])


def test_rules_of_shapes_that_do_not_hold_are_an_error(halved):
    main = fluid.Program()
    with fluid.program_guard(main):
        x = fluid.data("x", [8, 4])
        out = main.current_block().create_var(name="half", dtype="float32")
        main.current_block().append_op("halved_rows", {"X": x}, {"Out": out})
        total = layers.reduce_sum(out)
    feed = {"x": np.ones((8, 4), np.float32)}
    with pytest.raises(EnforceNotMet, match=r"halved_rows.*half has shape \[4, 4\].*\[8, 4\]"):
        fluid.Executor(CPU).run(main, feed, [total], scope=fluid.Scope())


def test_a_row_is_freed_with_its_last_user():
    row = PythonRow(KernelCall(lambda env: None, {}, {}, random=False))
    gone = weakref.ref(row)
    gc.disable()
    try:
        del row
        assert gone() is None
    finally:
        gc.enable()
