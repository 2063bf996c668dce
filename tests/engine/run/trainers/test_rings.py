"""Operators such as ``c_allreduce_sum``, which exchange values between trainers."""

import threading

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.exchange.wire import GangError
from dpexec.layers import collective as layers
from dpexec.transpiler.collective import Collective, GradAllReduce, LocalSGD

ROWS = np.arange(12, dtype="float32").reshape(4, 3)


class Rings(Collective):
    """Sets up rings, and leaves the main program alone."""

    def _transpile_main_program(self):
        pass


class Trainer(threading.Thread):
    """A trainer with a scope of its own."""

    def __init__(self, build, kind, rank, endpoints, seed=3):
        super().__init__()
        self.rank, self.scope, self.found, self.error = rank, fluid.Scope(), [], None
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.startup.random_seed = seed
        with fluid.unique_name.guard(), fluid.program_guard(self.main, self.startup):
            self.fetch = build()
        names = [str(endpoint) for endpoint in endpoints]
        if kind is not None:
            kind(2).transpile(self.startup, self.main, rank, names, names[rank], False)

    def feed(self, *feeds):
        self.feeds = feeds
        return self

    def run(self):
        try:
            if self.startup.global_block().ops:
                self.exe.run(self.startup, scope=self.scope)
            for feed in self.feeds:
                self.found.append(self.exe.run(self.main, feed, self.fetch, scope=self.scope))
        except Exception as error:
            self.error = error

    def value(self, name):
        return np.array(self.scope.find_var(name).get_tensor())


def together(*trainers):
    for trainer in trainers:
        trainer.start()
    for trainer in trainers:
        trainer.join()
    return trainers


def every_layer():
    x = fluid.data("x", [4, 3])
    reductions = [layers._c_allreduce(x, reduce_type=kind) for kind in ("sum", "max", "min")]
    product = layers._c_allreduce(x, reduce_type="prod", ring_id=1)
    older = [layers._allreduce(x, reduce_type=kind) for kind in ("sum", "prod", "max", "min")]
    rows = [layers._c_allgather(x, 2), layers._c_reducescatter(x, 2, ring_id=1)]
    spread = layers._c_broadcast(fluid.layers.scale(x, 10.0), root=1)
    layers._c_sync_comm_stream(layers._c_sync_calc_stream(spread), 0)
    return [*reductions, product, *older, *rows, spread, layers._broadcast(x, 0)]


def test_values_of_all_trainers_are_put_together(endpoints):
    pair = together(
        *(
            Trainer(every_layer, Rings, rank, endpoints).feed({"x": ROWS + 5 * rank})
            for rank in range(2)
        )
    )
    first, second = ROWS, ROWS + 5
    total = first + second
    expected = [total, second, first, first * second, total, first * second, second, first]
    for rank, trainer in enumerate(pair):
        assert trainer.error is None
        part = total[2 * rank : 2 * rank + 2]
        wanted = [*expected, np.concatenate([first, second]), part, 10 * second, first]
        for value, right in zip(trainer.found[0], wanted, strict=True):
            np.testing.assert_array_equal(value, right)


def test_gradients_go_the_way_back(endpoints):
    def build():
        x = fluid.data("x", [4, 3])
        x.stop_gradient = False
        weights = fluid.data("weights", [8, 3])
        every = fluid.layers.reduce_sum(layers._c_allgather(x, 2) * weights)
        total = fluid.layers.reduce_sum(layers._c_allreduce(x) * 7.0)
        return fluid.gradients([every + total], [x])

    weights = [np.random.default_rng(r).random((8, 3), "float32") for r in range(2)]
    pair = together(
        *(
            Trainer(build, Rings, r, endpoints).feed({"x": ROWS, "weights": weights[r]})
            for r in range(2)
        )
    )
    for rank, trainer in enumerate(pair):
        right = sum(w[4 * rank : 4 * rank + 4] for w in weights) + 14.0
        np.testing.assert_allclose(trainer.found[0][0], right, rtol=1e-6)


def net():
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
    hidden = fluid.layers.fc(x, 4, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss]


def batches(count):
    rng = np.random.default_rng(0)
    return [
        {"x": rng.random((8, 3), "float32"), "y": rng.random((8, 1), "float32")}
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", [GradAllReduce, LocalSGD])
def test_trainers_compute_what_one_does(endpoints, kind):
    feeds = batches(3)
    (alone,) = together(Trainer(net, None, 0, []).feed(*feeds))
    trainers = [Trainer(net, kind, r, endpoints, seed=3 + r) for r in range(2)]  # 0 gives values
    for rank, trainer in enumerate(trainers):
        trainer.feed(*({name: rows[4 * rank : 4 * rank + 4] for name, rows in feed.items()}
                       for feed in feeds))  # fmt: skip
    together(*trainers)
    losses = np.mean([trainer.found for trainer in trainers], axis=0)
    np.testing.assert_allclose(losses, alone.found, rtol=1e-5)
    for param in alone.main.all_parameters():
        first, second = (trainer.value(param.name) for trainer in trainers)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(first, alone.value(param.name), rtol=1e-5, atol=1e-6)


def test_one_trainer_needs_no_rings(monkeypatch):
    monkeypatch.delenv("PADDLE_TRAINERS_NUM", raising=False)

    def build():
        x = fluid.data("x", [4, 3])
        return [layers._c_allreduce(x), layers._c_allgather(x, 1), layers._c_broadcast(x)]

    (alone,) = together(Trainer(build, None, 0, []).feed({"x": ROWS}))
    for value in alone.found[0]:
        np.testing.assert_array_equal(value, ROWS)


def refused(build, message, places=None):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        found = build(fluid.data("x", [None, 3]))
    if places is not None:
        main = fluid.CompiledProgram(main).with_data_parallel(places=places)
    with pytest.raises(EnforceNotMet, match=message):
        fluid.Executor(fluid.CPUPlace()).run(main, {"x": ROWS}, [found], scope=fluid.Scope())


def test_what_cannot_be_is_refused(monkeypatch):
    monkeypatch.delenv("PADDLE_TRAINERS_NUM", raising=False)
    refused(lambda x: layers._c_allgather(x, 2), r"for 2 trainers \(nranks\), but there are 1")
    refused(lambda x: layers._c_broadcast(x, 1), r"there is no trainer 1 \(root\), only 1")
    refused(layers._c_allreduce, "share a batch", [fluid.CPUPlace()] * 2)
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    refused(layers._c_allreduce, "nobody set up ring 0: run the startup program")
    with pytest.raises(TypeError, match=r"reduce type can only be sum\|prod"):
        layers._c_allreduce(None, reduce_type="mean")


def test_values_of_other_sizes_are_an_error_for_both(endpoints):
    def build():
        return [layers._c_allreduce(fluid.data("x", [None, 3]))]

    pair = together(
        *(Trainer(build, Rings, r, endpoints).feed({"x": ROWS[: 2 + r]}) for r in range(2))
    )
    for trainer in pair:
        assert isinstance(trainer.error.__cause__, GangError)
        assert "operator c_allreduce_sum" in str(trainer.error)
        assert "bytes at step 1, the collective of x.c_allreduce_sum_0" in str(trainer.error)


@pytest.mark.parametrize(
    ("rank", "endpoints_", "message"),
    [(0, ["127.0.0.1:1"], "must > 1"), (1, ["127.0.0.1:1", "127.0.0.1:2"], "is not number 1")],
)
def test_trainers_must_be_several_and_one_of_them(rank, endpoints_, message):
    with pytest.raises(ValueError, match=message):
        GradAllReduce().transpile(
            fluid.Program(), fluid.Program(), rank, endpoints_, endpoints_[0], False
        )
