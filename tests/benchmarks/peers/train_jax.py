"""The workloads in JAX: one jitted step that is given its own results again.

Modes: ``jit`` (one device) and ``devices`` (the batch split over devices that XLA_FLAGS made of the
processor, by shard_map). Images and filters are channels-last, which XLA prefers on CPUs.
"""

from __future__ import annotations

import functools
import platform

import harness
import jax
import jax.numpy as jnp
import numpy as np
import workloads
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

request = harness.Request()
SPARSE = request.spec["net"] in workloads.SPARSE
_FILTERS = ("NHWC", "HWIO", "NHWC")


class Layers:
    """A workload's layers, given its parameters.

    Args:
        named: parameters by name.
        rows: rows of the tables for this batch, where tables have sparse gradients.
    """

    def __init__(self, named, rows):
        self.named = named
        self.rows = rows

    def linear(self, x, name, act=None):
        y = x @ self.named[name + ".w"]
        if name + ".b" in self.named:
            y = y + self.named[name + ".b"]
        return _activate(y, act)

    def conv(self, x, name, stride=1, padding=0, act=None):
        weight, sides = self.named[name + ".w"], [(padding, padding)] * 2
        y = lax.conv_general_dilated(x, weight, (stride, stride), sides, dimension_numbers=_FILTERS)
        if name + ".b" in self.named:
            y = y + self.named[name + ".b"]
        return _activate(y, act)

    def batch_norm(self, x, name, act=None):
        mean = x.mean((0, 1, 2))
        variance = (x * x).mean((0, 1, 2)) - mean * mean
        scale = self.named[name + ".g"] * lax.rsqrt(variance + workloads.EPSILON)
        return _activate(x * scale + (self.named[name + ".b"] - mean * scale), act)

    def layer_norm(self, x, name):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        normal = (x - mean) * lax.rsqrt(variance + workloads.EPSILON)
        return normal * self.named[name + ".g"] + self.named[name + ".b"]

    def max_pool(self, x):
        window = (1, 2, 2, 1)
        return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")

    def global_mean(self, x):
        return x.mean((1, 2))

    def flatten(self, x):
        return x.reshape(x.shape[0], -1)

    def add(self, x, y, act=None):
        return _activate(x + y, act)

    def add_rows(self, x, name):
        return x + self.named[name]

    def scale(self, x, factor):
        return x * factor

    def join(self, x, y):
        return jnp.concatenate([x, y], 1)

    def words(self, ids, name):
        return self.rows[name] if name in self.rows else self.named[name][ids]

    def sum_of_words(self, ids, name):
        return self.words(ids, name).sum(1)

    def side_by_side(self, ids, name):
        return self.words(ids, name).reshape(ids.shape[0], -1)

    def attention(self, q, k, v, heads):
        size, length, width = q.shape

        def split(x):
            return x.reshape(size, length, heads, width // heads).transpose(0, 2, 1, 3)

        scores = split(q) @ split(k).transpose(0, 1, 3, 2) * (width // heads) ** -0.5
        mixed = jax.nn.softmax(scores) @ split(v)
        return mixed.transpose(0, 2, 1, 3).reshape(size, length, width)

    def class_loss(self, x, name, label):
        chances = jax.nn.log_softmax(self.linear(x, name))
        return -jnp.take_along_axis(chances, label[..., None], -1).mean()

    word_loss = class_loss

    def click_loss(self, logits, label):
        return (
            jnp.maximum(logits, 0) - logits * label + jnp.log1p(jnp.exp(-jnp.abs(logits)))
        ).mean()


def _activate(x, act):
    return {None: lambda x: x, "relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid}[act](x)


def train(named, moments, running, steps, batch, axis=None):
    """One step; tables of sparse nets get the gradients of their rows alone."""
    tables = [name for name in ("emb", "wide") if SPARSE and name in named]
    rows = {name: named[name][batch["x"]] for name in tables}
    dense = {name: value for name, value in named.items() if name not in tables}

    def loss_of(dense, rows):
        layers = Statistics(dense, rows, running)
        return workloads.loss(layers, request.spec, batch), layers.updated

    both = jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True)
    (loss, running), (slopes, row_slopes) = both(dense, rows)
    ids = batch["x"]
    if axis:
        slopes, loss, running = lax.pmean((slopes, loss, running), axis)
        row_slopes = {
            name: lax.all_gather(slope, axis, tiled=True) / request.replicas
            for name, slope in row_slopes.items()
        }
        ids = lax.all_gather(ids, axis, tiled=True)
    steps = steps + 1
    named, moments = dict(named), dict(moments)
    for name in tables:
        named[name] = named[name].at[ids].add(-request.spec["rate"] * row_slopes[name])
    for name, slope in slopes.items():
        named[name], moments[name] = update(named[name], slope, moments[name], steps)
    return named, moments, running, steps, loss


class Statistics(Layers):
    """Layers whose batch norms keep running means and variances, as training does."""

    def __init__(self, named, rows, running):
        super().__init__(named, rows)
        self.running = running
        self.updated = {}

    def batch_norm(self, x, name, act=None):
        mean, variance = self.running[name]
        now = x.mean((0, 1, 2))
        spread = (x * x).mean((0, 1, 2)) - now * now
        self.updated[name] = (mean * 0.9 + now * 0.1, variance * 0.9 + spread * 0.1)
        return super().batch_norm(x, name, act)


def update(value, slope, moments, steps):
    """A parameter and its moments after a step of the optimizer."""
    rate = request.spec["rate"]
    if request.spec["optimizer"] == "adam":
        first = 0.9 * moments[0] + 0.1 * slope
        second = 0.999 * moments[1] + 0.001 * slope * slope
        rate = rate * jnp.sqrt(1 - 0.999**steps) / (1 - 0.9**steps)
        return value - rate * first / (jnp.sqrt(second) + 1e-8), (first, second)
    if request.spec["optimizer"] == "momentum":
        speed = workloads.MOMENTUM * moments[0] + slope
        return value - rate * speed, (speed,)
    return value - rate * slope, ()


def main():
    if request.on_gpu:
        names = {"tf32": "tensorfloat32", "bfloat16": "BF16_BF16_F32"}  # "bfloat16" is TF32 there
        precision = names.get(request.precision, request.precision)
        jax.config.update("jax_default_matmul_precision", precision)
    net = request.spec["net"]
    named = workloads.channels_last(net, workloads.parameters(request.spec))
    count = {"adam": 2, "momentum": 1, "sgd": 0}[request.spec["optimizer"]]
    moments = {name: (np.zeros_like(value),) * count for name, value in named.items()}
    gains = [name[:-2] for name in named if net == "resnet" and name.endswith(".g")]
    running = {name: (np.zeros_like(named[name + ".g"]), named[name + ".g"]) for name in gains}
    state = (named, moments, running, np.float32(0))
    one = train
    if request.mode == "devices":
        mesh = jax.make_mesh((request.replicas,), ("replicas",))
        whole, split = PartitionSpec(), PartitionSpec("replicas")
        state = jax.device_put(state, NamedSharding(mesh, whole))
        one = jax.shard_map(
            functools.partial(train, axis="replicas"),
            mesh=mesh,
            in_specs=(whole, whole, whole, whole, split),
            out_specs=whole,
            check_vma=False,
        )
    one = jax.jit(one, donate_argnums=(0, 1, 2, 3))

    def step(batch):
        nonlocal state
        if request.mode == "devices":
            batch = jax.device_put(batch, NamedSharding(mesh, split))
        *state, loss = one(*state, batch)
        return float(loss)

    def describe():
        versions = {"python": platform.python_version(), "jax": jax.__version__}
        return {"versions": versions}

    data = [
        {
            name: value.astype("int32") if value.dtype == np.int64 else value
            for name, value in workloads.channels_last(net, batch).items()
        }
        for batch in workloads.batches(request.spec)
    ]
    harness.serve(request, step, data, lambda: jax.block_until_ready(state), describe)


if __name__ == "__main__":
    main()
