"""Nets that are loops in their programs, as fluid programs; for Python 3.7 and newer.

They are small, as loops of users are: what a round costs is what is compared.
"""

from __future__ import annotations

import numpy as np

COMMON = {
    "batch": 16,
    "words": 2000,
    "width": 64,
    "hidden": 60,
    "lengths": [5, 15],
    "optimizer": "adam",
    "rate": 1e-3,
}
WORKLOADS = {
    "attention": dict(COMMON, net="attention"),
    "lstmp": dict(COMMON, net="dynamic_lstmp"),
    "units": dict(COMMON, net="gru_unit"),
    "lstm_units": dict(COMMON, net="lstm_unit"),
    "cells": dict(COMMON, net="layers.rnn", steps=10),
    "while": dict(COMMON, net="while_loop", steps=10, optimizer=None),
    "unrolled": dict(COMMON, net="StaticRNN of gru_unit", steps=10),
    "beam": dict(COMMON, net="BeamSearchDecoder", steps=10, optimizer=None),
}
TITLES = {
    "attention": "gru both ways, attention and gru_unit in a DynamicRNN; batch 16, 5 to 15 words",
    "lstmp": "two layers of fc and dynamic_lstmp",
    "units": "gru_unit in a DynamicRNN",
    "lstm_units": "lstm_unit in a DynamicRNN",
    "cells": "layers.rnn with an LSTMCell, 10 steps",
    "while": "prediction: a tanh layer in a while_loop, 10 rounds",
    "unrolled": "gru_unit in a StaticRNN, 10 steps",
    "beam": "prediction: dynamic_decode with a BeamSearchDecoder, 10 steps, 4 beams",
}
BATCHES = 24
BEAMS = 4


def batches(fluid, spec):
    """Batches of texts, and their classes."""
    rng = np.random.RandomState(0)
    made = []
    for _ in range(BATCHES):
        lengths = rng.randint(spec["lengths"][0], spec["lengths"][1] + 1, spec["batch"])
        lengths[:] = spec.get("steps", lengths)
        words = rng.randint(0, spec["words"], (lengths.sum(), 1)).astype("int64")
        label = words[np.cumsum(lengths) - 1] % 2
        if "steps" in spec:
            x = words.reshape(spec["batch"], spec["steps"])
        else:
            x = fluid.create_lod_tensor(words, [lengths.tolist()], fluid.CPUPlace())
        made.append({"x": x} if spec["optimizer"] is None else {"x": x, "y": label})
    return made


def loss(fluid, spec):
    """The mean loss of a batch; of predictions, a number that depends on all of them."""
    layers = fluid.layers
    level = 0 if "steps" in spec else 1
    x = fluid.data("x", [None, spec.get("steps", 1)], "int64", lod_level=level)
    look_up = fluid.embedding if "steps" in spec else layers.embedding
    texts = NETS[spec["net"]](fluid, spec, look_up(x, [spec["words"], spec["width"]]))
    if spec["optimizer"] is None:
        return layers.mean(layers.square(layers.cast(texts, "float32")))
    label = fluid.data("y", [None, 1], "int64")
    found = layers.fc(texts, 2, act="softmax")
    return layers.mean(layers.cross_entropy(found, label))


def _attention(fluid, spec, words):
    layers, size = fluid.layers, spec["hidden"]
    ways = [
        layers.dynamic_gru(layers.fc(words, 3 * size), size, is_reverse=back)
        for back in (False, True)
    ]
    encoded = layers.concat(ways, axis=1)
    projected = layers.fc(encoded, size, bias_attr=False)
    first = layers.fc(layers.sequence_first_step(ways[1]), size, act="tanh")
    network = layers.DynamicRNN()
    with network.block():
        word = network.step_input(words)
        vectors = network.static_input(encoded)
        scores = network.static_input(projected)
        before = network.memory(init=first, need_reorder=True)
        state = layers.sequence_expand(layers.fc(before, size, bias_attr=False), scores)
        weights = layers.fc(layers.tanh(scores + state), 1, bias_attr=False)
        weights = layers.reshape(layers.sequence_softmax(weights), [-1])
        context = layers.sequence_pool(layers.elementwise_mul(vectors, weights, axis=0), "sum")
        gates = layers.fc([context, word], 3 * size, bias_attr=False)
        hidden, _, _ = layers.gru_unit(gates, before, 3 * size)
        network.update_memory(before, hidden)
        network.output(hidden)
    return layers.sequence_last_step(network())


def _lstmp(fluid, spec, words):
    layers, size = fluid.layers, spec["hidden"]
    for _ in range(2):
        gates = layers.fc(words, 4 * size)
        words, _ = layers.dynamic_lstmp(gates, 4 * size, size // 2)
    return layers.sequence_pool(words, "max")


def _dynamic(fluid, spec, words, unit):
    network = fluid.layers.DynamicRNN()
    with network.block():
        unit(network, network.step_input(words))
    return fluid.layers.sequence_last_step(network())


def _gru_unit(fluid, spec, words):
    def unit(network, word):
        before = network.memory(shape=[spec["hidden"]], value=0.0)
        gates = fluid.layers.fc(word, 3 * spec["hidden"])
        hidden, _, _ = fluid.layers.gru_unit(gates, before, 3 * spec["hidden"])
        network.update_memory(before, hidden)
        network.output(hidden)

    return _dynamic(fluid, spec, words, unit)


def _lstm_unit(fluid, spec, words):
    def unit(network, word):
        before = network.memory(shape=[spec["hidden"]], value=0.0)
        cell_before = network.memory(shape=[spec["hidden"]], value=0.0)
        hidden, cell = fluid.layers.lstm_unit(word, before, cell_before)
        network.update_memory(before, hidden)
        network.update_memory(cell_before, cell)
        network.output(hidden)

    return _dynamic(fluid, spec, words, unit)


def _cells(fluid, spec, words):
    cell = fluid.layers.LSTMCell(spec["hidden"])
    _, (hidden, _) = fluid.layers.rnn(cell, words)
    return hidden


def _while(fluid, spec, words):
    layers = fluid.layers
    number = layers.fill_constant([1], "int64", 0)
    end = layers.fill_constant([1], "int64", spec["steps"])
    word = layers.reduce_mean(words, dim=1)
    first = layers.fc(word, spec["hidden"], act="tanh")

    def goes_on(number, state):
        return layers.less_than(number, end)

    def body(number, state):
        made = layers.fc([word, state], spec["hidden"], act="tanh")
        return [layers.increment(number, in_place=False), made]

    _, state = layers.while_loop(goes_on, body, [number, first])
    return state


def _static(fluid, spec, words):
    layers = fluid.layers
    columns = layers.transpose(words, [1, 0, 2])
    network = layers.StaticRNN()
    with network.step():
        word = network.step_input(columns)
        before = network.memory(shape=[-1, spec["hidden"]], batch_ref=word)
        gates = layers.fc(word, 3 * spec["hidden"])
        hidden, _, _ = layers.gru_unit(gates, before, 3 * spec["hidden"])
        network.update_memory(before, hidden)
        network.step_output(hidden)
    return layers.reduce_mean(network(), dim=0)


def _beam(fluid, spec, words):
    layers = fluid.layers
    first = layers.fc(layers.reduce_mean(words, dim=1), spec["hidden"], act="tanh")
    cell = layers.GRUCell(spec["hidden"])

    def look_up(ids):
        return fluid.embedding(ids, [spec["words"], spec["width"]])

    def scores(hidden):
        return layers.fc(hidden, spec["words"], num_flatten_dims=2)

    decoder = layers.BeamSearchDecoder(cell, 0, 1, BEAMS, look_up, scores)
    found, _ = layers.dynamic_decode(decoder, first, max_step_num=spec["steps"])
    return found


NETS = {
    "attention": _attention,
    "dynamic_lstmp": _lstmp,
    "gru_unit": _gru_unit,
    "lstm_unit": _lstm_unit,
    "layers.rnn": _cells,
    "while_loop": _while,
    "StaticRNN of gru_unit": _static,
    "BeamSearchDecoder": _beam,
}
