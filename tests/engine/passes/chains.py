"""Small programs with chains of operators on single elements, for the tests of passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dpexec as fluid
from tests.engine.run.nets import Net

WIDTH = 32
layers = fluid.layers


def _parameter(size: int, value: float) -> Any:
    start = fluid.initializer.Constant(value)
    return layers.create_parameter([size], "float32", default_initializer=start)


def gelu(x: Any) -> Any:
    """The activation by its formula."""
    h = layers.fc(x, WIDTH)
    return h * 0.5 * (1.0 + layers.tanh((h + h * h * h * 0.044715) * 0.79788456))


def norm(x: Any) -> Any:
    """Layer normalization by hand."""
    h = layers.fc(x, WIDTH)
    above = h - layers.reduce_mean(h, dim=-1, keep_dim=True)
    variance = layers.reduce_mean(above * above, dim=-1, keep_dim=True)
    return above / layers.sqrt(variance + 1e-5) * _parameter(WIDTH, 1.0) + _parameter(WIDTH, 0.0)


def attention(x: Any) -> Any:
    """Scaled scores with a mask, their softmax, and a weighted sum."""
    scores = layers.reshape(layers.fc(x, WIDTH), [-1, 4, WIDTH // 4])
    shares = layers.softmax(layers.scale(scores, 0.25) + _parameter(WIDTH // 4, -1.0))
    return layers.reduce_sum(shares * scores, dim=-1)


def gates(x: Any) -> Any:
    """Two steps of an LSTM."""
    cell = layers.fc(x, WIDTH // 4)
    for _ in range(2):
        forget, take, new, give = layers.split(layers.fc([x, cell], WIDTH), 4, dim=-1)
        cell = layers.sigmoid(forget) * cell + layers.sigmoid(take) * layers.tanh(new)
        hidden = layers.sigmoid(give) * layers.tanh(cell)
    return hidden


def images(x: Any) -> Any:
    """Numbers per channel, and sums over what is beside them."""
    h = layers.reshape(layers.fc(x, WIDTH), [-1, 2, 4, WIDTH // 8])
    h = layers.elementwise_mul(h, _parameter(2, 0.5), axis=1)
    h = layers.leaky_relu(layers.elementwise_add(h, _parameter(2, 0.1), axis=1))
    return layers.reduce_mean(layers.square(h), dim=[2, 3])


CHAINS: dict[str, Callable[[Any], Any]] = {
    function.__name__: function for function in (attention, gates, gelu, images, norm)
}


def chain(name: str, optimizer: Any = None) -> Net:
    """A program that trains what is before one of the chains."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, WIDTH], "float32")
        result = CHAINS[name](x)
        loss = layers.mean(layers.square(layers.fc(result, 3)))
        test = main.clone(for_test=True)
        (optimizer or fluid.optimizer.SGD(0.05)).minimize(loss)
    return Net(main, startup, loss, test, result)


def chain_batches(steps: int, rows: int = 6) -> list[Any]:
    """Deterministic batches for the chains."""
    rng = np.random.RandomState(3)
    return [{"x": rng.randn(rows, WIDTH).astype("float32")} for _ in range(steps)]
