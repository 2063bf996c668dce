"""The workloads in TensorFlow: one ``tf.function`` with the fused optimizers of version 1.

Modes: ``function`` (one device) and ``mirrored`` (MirroredStrategy over logical devices). Images
and filters are channels-last.
"""

from __future__ import annotations

import platform

import harness
import tensorflow as tf
import workloads

request = harness.Request()
v1 = tf.compat.v1


class Layers:
    """A workload's layers, given its variables by name."""

    def __init__(self, named):
        self.named = named

    def linear(self, x, name, act=None):
        weight = self.named[name + ".w"]
        rows = tf.reshape(x, [-1, x.shape[-1]]) if x.shape.rank == 3 else x
        y = tf.matmul(rows, weight)
        if name + ".b" in self.named:
            y = y + self.named[name + ".b"]
        y = _activate(y, act)
        return tf.reshape(y, [-1, x.shape[1], weight.shape[1]]) if x.shape.rank == 3 else y

    def conv(self, x, name, stride=1, padding=0, act=None):
        side = [padding, padding]
        y = tf.nn.conv2d(x, self.named[name + ".w"], stride, [[0, 0], side, side, [0, 0]])
        if name + ".b" in self.named:
            y = y + self.named[name + ".b"]
        return _activate(y, act)

    def batch_norm(self, x, name, act=None):
        scale, shift = self.named[name + ".g"], self.named[name + ".b"]
        y = v1.nn.fused_batch_norm(x, scale, shift, epsilon=workloads.EPSILON, is_training=True)[0]
        return _activate(y, act)

    def layer_norm(self, x, name):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        scale, shift = self.named[name + ".g"], self.named[name + ".b"]
        return tf.nn.batch_normalization(x, mean, variance, shift, scale, workloads.EPSILON)

    def max_pool(self, x):
        return tf.nn.max_pool2d(x, 2, 2, "VALID")

    def global_mean(self, x):
        return tf.reduce_mean(x, [1, 2])

    def flatten(self, x):
        return tf.reshape(x, [-1, x.shape[1] * x.shape[2] * x.shape[3]])

    def add(self, x, y, act=None):
        return _activate(x + y, act)

    def add_rows(self, x, name):
        return x + self.named[name]

    def scale(self, x, factor):
        return x * factor

    def join(self, x, y):
        return tf.concat([x, y], 1)

    def words(self, ids, name):
        return tf.nn.embedding_lookup(self.named[name], ids)

    def sum_of_words(self, ids, name):
        return tf.reduce_sum(self.words(ids, name), 1)

    def side_by_side(self, ids, name):
        return tf.reshape(self.words(ids, name), [-1, ids.shape[1] * self.named[name].shape[1]])

    def attention(self, q, k, v, heads):
        length, width = q.shape[1:]

        def split(x):
            x = tf.reshape(x, [-1, length, heads, width // heads])
            return tf.transpose(x, [0, 2, 1, 3])

        scores = tf.matmul(split(q), split(k), transpose_b=True) * (width // heads) ** -0.5
        mixed = tf.matmul(tf.nn.softmax(scores), split(v))
        return tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, length, width])

    def class_loss(self, x, name, label):
        logits = self.linear(x, name)
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        )

    word_loss = class_loss

    def click_loss(self, logits, label):
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits))


def _activate(x, act):
    return {None: lambda x: x, "relu": tf.nn.relu, "sigmoid": tf.sigmoid}[act](x)


def optimizer():
    rate = request.spec["rate"]
    if request.spec["optimizer"] == "adam":
        return v1.train.AdamOptimizer(rate)
    if request.spec["optimizer"] == "momentum":
        return v1.train.MomentumOptimizer(rate, workloads.MOMENTUM)
    return v1.train.GradientDescentOptimizer(rate)


def strategy():
    """How the replicas share the work; a strategy with one device does nothing."""
    if request.mode == "function":
        return tf.distribute.get_strategy()
    (cpu,) = tf.config.list_physical_devices("CPU")
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(request.replicas)]
    tf.config.set_logical_device_configuration(cpu, logical)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(request.replicas)])


def main():
    net, replicas = request.spec["net"], request.replicas
    shared = strategy()
    initial = workloads.channels_last(net, workloads.parameters(request.spec))
    with shared.scope():
        named = {
            name: tf.Variable(value, name=name.replace(".", "_")) for name, value in initial.items()
        }
        rule = optimizer()
    layers, variables = Layers(named), list(named.values())
    share = request.spec["batch"] // replicas

    def train(batch):
        if replicas > 1:
            rank = tf.distribute.get_replica_context().replica_id_in_sync_group
            batch = {
                name: tf.slice(
                    value,
                    [rank * share] + [0] * (value.shape.rank - 1),
                    [share, *value.shape[1:]],
                )
                for name, value in batch.items()
            }
        with tf.GradientTape() as tape:
            loss = workloads.loss(layers, request.spec, batch)
            part = loss / replicas
        rule.apply_gradients(zip(tape.gradient(part, variables), variables, strict=True))
        return loss

    @tf.function
    def everywhere(batch):
        if replicas == 1:
            return train(batch)
        return shared.reduce("MEAN", shared.run(train, args=(batch,)), axis=None)

    def step(batch):
        return float(everywhere({name: tf.constant(value) for name, value in batch.items()}))

    def describe():
        return {"versions": {"python": platform.python_version(), "tensorflow": tf.__version__}}

    data = [workloads.channels_last(net, batch) for batch in workloads.batches(request.spec)]
    harness.serve(request, step, data, about=describe)


if __name__ == "__main__":
    main()
