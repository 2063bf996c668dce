"""Programs with and without ParallelDo, and how their tests train them."""

import contextlib

import numpy as np

import dpexec as fluid
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.ir.verify import verify

layers = fluid.layers
CPU = fluid.CPUPlace()


class Around:
    """Stands for ParallelDo in the serial program."""

    def do(self):
        return contextlib.nullcontext()

    def read_input(self, var):
        return var

    pre_fetch = read_input

    def write_output(self, var):
        self.outputs = [*getattr(self, "outputs", []), var]

    def __call__(self):
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs


def parallel_do(places, kind=None, **options):
    """``places`` devices, or none: the serial program."""
    return layers.ParallelDo(layers.get_places(places, kind), **options) if places else Around()


def dense(rows, **options):
    """The example of the design document: a feature outside, a net inside, a loss outside."""

    def build(places):
        x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1])
        feature = layers.fc(x, size=8, act="relu")
        pd = parallel_do(places, **options)
        with pd.do():
            hidden = layers.fc(pd.read_input(feature), size=6, act="tanh")
            pd.write_output(layers.fc(hidden, size=1))
        return layers.mean(layers.square_error_cost(pd(), label)), [feature]

    return build, {"x": normal(rows, 4), "label": normal(rows, 1)}


def normal(*shape):
    return np.random.default_rng(len(shape) + shape[0]).normal(size=shape).astype("float32")


def built(build, places, optimizer=None):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        loss, watched = build(places)
        (optimizer() if optimizer else fluid.optimizer.SGD(0.1)).minimize(loss)
    verify(main)
    return main, startup, loss, watched


def train(build, feed, places, steps=3, optimizer=None):
    """Losses and gradients of all steps, and the variables afterwards, by name."""
    main, startup, loss, watched = built(build, places, optimizer)
    scope, exe = fluid.Scope(), fluid.Executor(CPU)
    exe.run(startup, scope=scope)
    block = main.global_block()
    trainable = [p for p in main.all_parameters() if p.trainable]
    grads = [g for g in (f"{v.name}@GRAD" for v in [*trainable, *watched]) if g in block.vars]
    dense_grads = [g for g in grads if block.var(g).type == fluid.core.VarDesc.VarType.LOD_TENSOR]
    assert grads
    runs = [exe.run(main, feed, [loss, *dense_grads], scope=scope) for _ in range(steps)]
    stored = {
        var.name: np.array(scope.find_var(var.name).get_tensor())
        for var in main.list_vars()
        if var.persistable and scope.find_var(var.name)
    }
    return runs, stored


def assert_close(found, expected, tolerance=1e-6):
    for run, other in zip(found[0], expected[0], strict=True):
        for a, b in zip(run, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert found[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        np.testing.assert_allclose(
            found[1][name], value, rtol=tolerance, atol=tolerance, err_msg=name
        )


def graph_of(main, scope=None):
    """The graph of a program that the plain executor runs."""
    return Engine(main, [CPU], scope or fluid.Scope()).graph
