"""Nets on sequences of different lengths, as fluid programs; for Python 3.7 and newer.

Texts are classified. All start from the parameters that the seed gives, which dpexec draws as
Paddle does. Hidden states are no multiples of 8: there the gradient of Paddle's ``lstm`` is wrong.
"""

from __future__ import annotations

import numpy as np

COMMON = {"batch": 64, "words": 5000, "width": 128, "lengths": [20, 80], "rate": 1e-3}
SMALL = dict(COMMON, batch=32, lengths=[5, 40], optimizer="adam")
WORKLOADS = {
    "bag": dict(COMMON, net="bag of words", optimizer="adam"),
    "conv": dict(COMMON, net="sequence_conv_pool", optimizer="adam"),
    "lstm": dict(COMMON, net="dynamic_lstm", hidden=124, optimizer="adam"),
    "gru": dict(COMMON, net="dynamic_gru", hidden=124, optimizer="adam"),
    "steps": dict(COMMON, net="StaticRNN", hidden=124, steps=20, optimizer="adam"),
    "dynamic": dict(COMMON, net="DynamicRNN", hidden=124, optimizer="adam"),
    "small-bow": dict(SMALL, net="bag of tanh words", hidden=128),
    "small-cnn": dict(SMALL, net="greatest of sequence_conv", hidden=128),
    "small-textcnn": dict(SMALL, net="three sequence_convs", hidden=128),
    "small-gru": dict(SMALL, net="greatest of dynamic_gru", hidden=128),
    "small-bilstm": dict(SMALL, net="dynamic_lstm both ways", hidden=124),
    "small-relu": dict(SMALL, net="dynamic_lstm with relu", hidden=124),
    "small-joined": dict(SMALL, net="sequence_concat", hidden=64),
}
TITLES = {
    "bag": "words, fc, sums of sequences; batch 64, 20 to 80 words, Adam",
    "conv": "words, two sequence_conv_pool",
    "lstm": "words, fc, dynamic_lstm of 124, greatest of every sequence",
    "gru": "words, fc, dynamic_gru of 124, last of every sequence",
    "steps": "20 words, a tanh layer of 124 in a StaticRNN",
    "dynamic": "words, a tanh layer of 124 in a DynamicRNN",
    "small-bow": "batch 32, 5 to 40 words: tanh of sums, two layers",
    "small-cnn": "greatest of one sequence_conv_pool, a layer",
    "small-textcnn": "greatest of sequence_convs over 1, 2 and 3 words, a layer",
    "small-gru": "fc, dynamic_gru of 128, greatest of every sequence, a layer",
    "small-bilstm": "fc, dynamic_lstm of 124 in both directions, greatest, a layer",
    "small-relu": "fc, dynamic_lstm of 124 with relu and sigmoid for tanh, greatest",
    "small-joined": "sequence_concat of texts and their means (sequence_expand_as), row_conv, sums",
}
BATCHES = 24


def batches(fluid, spec):
    """Batches of texts, and their classes."""
    rng = np.random.RandomState(0)
    made = []
    for _ in range(BATCHES):
        lengths = rng.randint(spec["lengths"][0], spec["lengths"][1] + 1, spec["batch"])
        if "steps" in spec:
            lengths[:] = spec["steps"]
        words = rng.randint(0, spec["words"], (lengths.sum(), 1)).astype("int64")
        label = words[np.cumsum(lengths) - 1] % 2
        if "steps" in spec:
            x = words.reshape(spec["batch"], spec["steps"])
        else:
            x = fluid.create_lod_tensor(words, [lengths.tolist()], fluid.CPUPlace())
        made.append({"x": x, "y": label})
    return made


def loss(fluid, spec):
    """The mean loss of a batch."""
    layers = fluid.layers
    level = 0 if "steps" in spec else 1
    x = fluid.data("x", [None, spec.get("steps", 1)], "int64", lod_level=level)
    look_up = fluid.embedding if "steps" in spec else layers.embedding
    texts = NETS[spec["net"]](fluid, spec, look_up(x, [spec["words"], spec["width"]]))
    found = layers.fc(texts, 2, act="softmax")
    label = fluid.data("y", [None, 1], "int64")
    return layers.mean(layers.cross_entropy(found, label))


def _bag(fluid, spec, words):
    hidden = fluid.layers.fc(words, spec["width"], act="tanh")
    return fluid.layers.fc(fluid.layers.sequence_pool(hidden, "sum"), 96, act="tanh")


def _conv(fluid, spec, words):
    return [
        fluid.nets.sequence_conv_pool(words, 32, size, act="tanh", pool_type="sqrt")
        for size in (3, 4)
    ]


def _lstm(fluid, spec, words):
    gates = fluid.layers.fc(words, 4 * spec["hidden"])
    hidden, _ = fluid.layers.dynamic_lstm(gates, 4 * spec["hidden"])
    return fluid.layers.sequence_pool(hidden, "max")


def _gru(fluid, spec, words):
    gates = fluid.layers.fc(words, 3 * spec["hidden"])
    return fluid.layers.sequence_last_step(fluid.layers.dynamic_gru(gates, spec["hidden"]))


def _steps(fluid, spec, words):
    columns = fluid.layers.transpose(words, [1, 0, 2])
    network = fluid.layers.StaticRNN()
    with network.step():
        word = network.step_input(columns)
        before = network.memory(shape=[-1, spec["hidden"]], batch_ref=word)
        hidden = fluid.layers.fc([word, before], spec["hidden"], act="tanh")
        network.update_memory(before, hidden)
        network.step_output(hidden)
    return fluid.layers.reduce_mean(network(), dim=0)


def _dynamic(fluid, spec, words):
    network = fluid.layers.DynamicRNN()
    with network.block():
        word = network.step_input(words)
        before = network.memory(shape=[spec["hidden"]], value=0.0)
        hidden = fluid.layers.fc([word, before], spec["hidden"], act="tanh")
        network.update_memory(before, hidden)
        network.output(hidden)
    return fluid.layers.sequence_last_step(network())


def _small_bow(fluid, spec, words):
    texts = fluid.layers.tanh(fluid.layers.sequence_pool(words, "sum"))
    return fluid.layers.fc(fluid.layers.fc(texts, spec["hidden"], act="tanh"), 96, act="tanh")


def _small_cnn(fluid, spec, words, sizes=(3,)):
    found = [
        fluid.nets.sequence_conv_pool(words, spec["hidden"], size, act="tanh", pool_type="max")
        for size in sizes
    ]
    return fluid.layers.fc(found, 96, act="tanh")


def _small_textcnn(fluid, spec, words):
    return _small_cnn(fluid, spec, words, (1, 2, 3))


def _small_gru(fluid, spec, words):
    gates = fluid.layers.fc(words, 3 * spec["hidden"])
    hidden = fluid.layers.dynamic_gru(gates, spec["hidden"])
    texts = fluid.layers.tanh(fluid.layers.sequence_pool(hidden, "max"))
    return fluid.layers.fc(texts, 96, act="tanh")


def _small_bilstm(fluid, spec, words):
    found = []
    for back in (False, True):
        gates = fluid.layers.fc(words, 4 * spec["hidden"])
        hidden, _ = fluid.layers.dynamic_lstm(gates, 4 * spec["hidden"], is_reverse=back)
        found.append(fluid.layers.sequence_pool(fluid.layers.tanh(hidden), "max"))
    return fluid.layers.fc(fluid.layers.concat(found, axis=1), 96, act="tanh")


def _small_relu(fluid, spec, words):
    size = spec["hidden"]
    states, _ = fluid.layers.dynamic_lstm(
        fluid.layers.fc(words, 4 * size),
        4 * size,
        candidate_activation="relu",
        cell_activation="sigmoid",
    )
    return fluid.layers.sequence_pool(states, "max")


def _small_joined(fluid, spec, words):
    layers = fluid.layers
    rows = layers.fc(words, spec["hidden"], act="tanh")
    means = layers.sequence_expand_as(layers.sequence_pool(rows, "average"), rows)
    return layers.sequence_pool(layers.row_conv(layers.sequence_concat([rows, means]), 2), "sum")


NETS = {
    "bag of words": _bag,
    "sequence_conv_pool": _conv,
    "dynamic_lstm": _lstm,
    "dynamic_gru": _gru,
    "StaticRNN": _steps,
    "DynamicRNN": _dynamic,
    "bag of tanh words": _small_bow,
    "greatest of sequence_conv": _small_cnn,
    "three sequence_convs": _small_textcnn,
    "greatest of dynamic_gru": _small_gru,
    "dynamic_lstm both ways": _small_bilstm,
    "dynamic_lstm with relu": _small_relu,
    "sequence_concat": _small_joined,
}
