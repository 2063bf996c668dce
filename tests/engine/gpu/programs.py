"""Programs that train on GPUs, real ones or not, and how they are trained."""

from __future__ import annotations

import numpy as np

import dpexec as fluid
from dpexec import layers
from tests.engine.run.nets import (
    AllReduce,
    Net,
    batches,
    classifier,
    sequence_batches,
    sequences,
    word_batches,
    words,
)


def regression():
    """A net that never makes the host look at a value."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 8], "float32")
        hidden = fluid.layers.batch_norm(fluid.layers.fc(x, 16, act="relu"))
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 3) - 1.0))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return Net(main, startup, loss, main, None)


def reshaping():
    """A net with sizes that are computed, of batches of any size."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 8], "float32")
        hidden = layers.fc(x, 12, act="relu")
        rows = layers.slice(layers.shape(hidden), [0], [0], [1])
        parts = layers.fill_constant([1], "int32", 3)
        width = layers.cast(layers.reduce_prod(layers.concat([parts, parts])), "int32") - 5
        split = layers.reshape(hidden, [rows, parts, width])
        places = layers.cast(layers.range(0, parts * 2, 2, "int32"), "float32")
        split = layers.elementwise_add(split, layers.reshape(places, [-1]), axis=1)
        wide = layers.expand(layers.reduce_sum(split, dim=2), [1, parts])
        loss = layers.mean(layers.square(wide - 1.0))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return Net(main, startup, loss, main, None)


def without_labels(steps):
    return [{"x": feed["x"]} for feed in batches(steps)]


FEEDS = {
    "sparse": word_batches,
    "sparse adam": word_batches,
    "computed sizes": without_labels,
    "regression": without_labels,
    "sequences": lambda steps: (sequence_batches([9, 9]) * steps)[:steps],
}
NETS = {
    "regression": regression,
    "momentum": lambda: classifier(fluid.optimizer.Momentum(0.1, 0.9)),
    "computed sizes": reshaping,
    "adam and batch norm": lambda: classifier(fluid.optimizer.Adam(0.01), batch_norm=True),
    "dropout": lambda: classifier(dropout=0.5),
    "sequences": sequences,
    "sparse": words,
    "sparse adam": lambda: words(fluid.optimizer.Adam(0.01, lazy_mode=True)),
}


def feeds_of(name, steps=4):
    """Batches for one of the nets."""
    return FEEDS.get(name, batches)(steps)


def trained(net, places, mode=AllReduce, feeds=None, fetch=True, **options):
    """Losses of some steps, and the parameters after them.

    Args:
        net: what is trained.
        places: of the replicas.
        mode: AllReduce or Reduce.
        feeds: a batch for every step.
        fetch: whether losses are fetched.
        options: of the BuildStrategy.
    """
    scope, build = fluid.Scope(), fluid.BuildStrategy()
    build.reduce_strategy = mode
    build.native_kernels = False  # GPUs that do not exist compute with NumPy
    for name, value in options.items():
        setattr(build, name, value)
    run_as = fluid.ExecutionStrategy()
    run_as.scheduler = "threads"  # also while a test has a client
    with fluid.scope_guard(scope):
        exe = fluid.Executor(places[0])
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            loss_name=net.loss.name, build_strategy=build, exec_strategy=run_as, places=places
        )
        losses = [
            exe.run(program, feed, [net.loss.name] if fetch else []) for feed in feeds or batches(4)
        ]
        names = [p.name for p in net.main.all_parameters()]
        return losses, {name: np.array(scope.find_var(name).get_tensor()) for name in names}


def assert_same_bits(found, expected):
    for a, b in zip(found[0], expected[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert found[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        np.testing.assert_array_equal(found[1][name], value, err_msg=name)
