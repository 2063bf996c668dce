"""A net of each family of the model zoo, as fluid programs; for Python 3.7 and newer.

The nets have the layers of their families and a fraction of their width, so that a step takes
milliseconds. All start from the parameters that the seed gives.
"""

from __future__ import annotations

import images
import numpy as np
from images import lengths_of, rows

BATCHES = 8


def batches(fluid, spec):
    """Feeds of a net, each with its own numbers and, on sequences, its own lengths."""
    rng = np.random.RandomState(0)
    feed = NETS[spec["net"]][1]
    return [feed(fluid, spec, rng) for _ in range(BATCHES)]


def loss(fluid, spec):
    """The mean loss of a batch."""
    return NETS[spec["net"]][0](fluid, spec)


def _deepfm(fluid, spec):
    layers = fluid.layers
    ids = fluid.data("x", [None, 26], "int64")
    dense = fluid.data("dense", [None, 13])
    label = fluid.data("y", [None, 1])
    first = layers.reduce_sum(fluid.embedding(ids, [spec["words"], 1], is_sparse=True), dim=1)
    rows = fluid.embedding(ids, [spec["words"], 10], is_sparse=True)
    of_sums = layers.square(layers.reduce_sum(rows, dim=1))
    sums_of = layers.reduce_sum(layers.square(rows), dim=1)
    second = layers.scale(layers.reduce_sum(of_sums - sums_of, dim=1, keep_dim=True), 0.5)
    deep = layers.concat([layers.reshape(rows, [-1, 260]), dense], axis=1)
    for _ in range(3):
        deep = layers.fc(deep, 200, act="relu")
    logits = first + second + layers.fc(deep, 1) + layers.fc(dense, 1)
    return layers.mean(layers.sigmoid_cross_entropy_with_logits(logits, label))


def _clicks(fluid, spec, rng):
    return {
        "x": (spec["words"] * rng.power(0.3, (spec["batch"], 26))).astype("int64"),
        "dense": rng.randn(spec["batch"], 13).astype("float32"),
        "y": rng.randint(0, 2, (spec["batch"], 1)).astype("float32"),
    }


def _recommender(fluid, spec):
    layers = fluid.layers
    user = fluid.data("user", [None, 1], "int64")
    title = fluid.data("title", [None, 1], "int64", lod_level=1)
    kinds = fluid.data("kinds", [None, 1], "int64", lod_level=1)
    score = fluid.data("y", [None, 1])
    of_user = layers.fc(layers.embedding(user, [spec["words"], 32], is_sparse=True), 64)
    words = layers.embedding(title, [spec["words"], 32], is_sparse=True)
    text = fluid.nets.sequence_conv_pool(words, 32, 3, act="tanh", pool_type="sum")
    groups = layers.sequence_pool(layers.embedding(kinds, [20, 16]), "sum")
    of_movie = layers.fc([text, groups], 64, act="tanh")
    near = layers.cos_sim(layers.tanh(of_user), of_movie)
    return layers.mean(layers.square_error_cost(layers.scale(near, 5.0), score))


def _movies(fluid, spec, rng):
    def ids(most, least, longest):
        lengths = lengths_of(rng, spec, least, longest)
        return rows(fluid, rng.randint(0, most, (lengths.sum(), 1)).astype("int64"), lengths)

    return {
        "user": rng.randint(0, spec["words"], (spec["batch"], 1)).astype("int64"),
        "title": ids(spec["words"], 3, 10),
        "kinds": ids(20, 1, 4),
        "y": rng.randint(1, 6, (spec["batch"], 1)).astype("float32"),
    }


def _stacked(fluid, spec):
    layers = fluid.layers
    x = fluid.data("x", [None, 40], lod_level=1)
    label = fluid.data("y", [None, 1], "int64", lod_level=1)
    for _ in range(3):
        x, _ = layers.dynamic_lstmp(layers.fc(x, 4 * 60), 4 * 60, 36)
    found = layers.fc(x, 50, act="softmax")
    return layers.mean(layers.cross_entropy(found, label))


def _frames(fluid, spec, rng):
    lengths = lengths_of(rng, spec, 20, 50)
    frames = rng.randn(lengths.sum(), 40).astype("float32")
    label = rng.randint(0, 50, (len(frames), 1)).astype("int64")
    return {"x": rows(fluid, frames, lengths), "y": rows(fluid, label, lengths)}


def _graphs(fluid, spec):
    layers = fluid.layers
    x = fluid.data("x", [None, 32])
    neighbours = fluid.data("neighbours", [None, 1], "int64", lod_level=1)
    label = fluid.data("y", [None, 1], "int64")
    for width in (64, 64):
        there = layers.gather(x, neighbours)
        sums = layers.sequence_pool(layers.lod_reset(there, neighbours), "average")
        x = layers.relu(layers.fc(sums, width) + layers.fc(x, width, bias_attr=False))
    graphs = layers.reduce_mean(layers.reshape(x, [-1, NODES, 64]), dim=1)
    found = layers.fc(graphs, 4, act="softmax")
    return layers.mean(layers.cross_entropy(found, label))


NODES = 12


def _edges(fluid, spec, rng):
    """Neighbours are numbered within a replica's half of the graphs."""
    nodes = spec["batch"] * NODES
    lengths = rng.randint(1, 5, nodes)
    owners = np.repeat(np.arange(nodes), lengths)
    there = owners // NODES * NODES + rng.randint(0, NODES, len(owners))
    there %= nodes // 2
    return {
        "x": rng.randn(nodes, 32).astype("float32"),
        "neighbours": rows(fluid, there.reshape(-1, 1).astype("int64"), lengths),
        "y": rng.randint(0, 4, (spec["batch"], 1)).astype("int64"),
    }


def _tagger(fluid, spec):
    layers = fluid.layers
    words = fluid.data("x", [None, 1], "int64", lod_level=1)
    label = fluid.data("y", [None, 1], "int64", lod_level=1)
    x = layers.embedding(words, [spec["words"], 64])
    for _ in range(2):
        ways = [
            layers.dynamic_gru(layers.fc(x, 3 * 60), 60, is_reverse=back) for back in (False, True)
        ]
        x = layers.concat(ways, axis=1)
    scores = layers.fc(x, 15)
    return layers.mean(layers.linear_chain_crf(scores, label, fluid.ParamAttr(name="crf")))


def _tagged(fluid, spec, rng):
    lengths = lengths_of(rng, spec, 5, 30)
    words = rng.randint(0, spec["words"], (lengths.sum(), 1)).astype("int64")
    return {"x": rows(fluid, words, lengths), "y": rows(fluid, words % 15, lengths)}


LENGTH, WIDTH, HEADS = 24, 64, 4


def _attend(fluid, x, memory, mask):
    layers = fluid.layers

    def heads(x):
        x = layers.fc(x, WIDTH, num_flatten_dims=2, bias_attr=False)
        return layers.transpose(layers.reshape(x, [0, 0, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    q, k, v = heads(x), heads(memory), heads(memory)
    scores = layers.matmul(q, k, transpose_y=True, alpha=(WIDTH // HEADS) ** -0.5)
    weights = layers.dropout(layers.softmax(scores + mask), 0.0)
    mixed = layers.transpose(layers.matmul(weights, v), [0, 2, 1, 3])
    mixed = layers.reshape(mixed, [0, 0, WIDTH])
    return layers.layer_norm(
        x + layers.fc(mixed, WIDTH, num_flatten_dims=2, bias_attr=False), begin_norm_axis=2
    )


def _feed_forward(fluid, x):
    layers = fluid.layers
    inner = layers.fc(x, 4 * WIDTH, num_flatten_dims=2, act="relu")
    return layers.layer_norm(x + layers.fc(inner, WIDTH, num_flatten_dims=2), begin_norm_axis=2)


def _translate(fluid, spec):
    layers = fluid.layers
    words = [fluid.data(name, [None, LENGTH], "int64") for name in ("x", "before", "y")]
    mask = fluid.data("mask", [None, HEADS, LENGTH, LENGTH])
    later = fluid.data("later", [None, HEADS, LENGTH, LENGTH])
    x, y = (
        layers.scale(fluid.embedding(ids, [spec["words"], WIDTH]), WIDTH**0.5) for ids in words[:2]
    )
    for _ in range(2):
        x = _feed_forward(fluid, _attend(fluid, x, x, mask))
    for _ in range(2):
        y = _attend(fluid, y, y, later)
        y = _feed_forward(fluid, _attend(fluid, y, x, mask))
    scores = layers.reshape(
        layers.fc(y, spec["words"], num_flatten_dims=2, bias_attr=False), [-1, spec["words"]]
    )
    wanted = layers.one_hot(layers.reshape(words[2], [-1, 1]), spec["words"])
    wanted = layers.label_smooth(wanted, epsilon=0.1)
    return layers.mean(layers.softmax_with_cross_entropy(scores, wanted, soft_label=True))


def _sentences(fluid, spec, rng):
    words = rng.randint(0, spec["words"], (3, spec["batch"], LENGTH)).astype("int64")
    shape = spec["batch"], HEADS, LENGTH, LENGTH
    ends = rng.randint(LENGTH // 2, LENGTH + 1, spec["batch"])
    mask = np.where(np.arange(LENGTH) < ends[:, None], 0.0, -1e9).astype("float32")
    later = np.triu(np.full((LENGTH, LENGTH), -1e9, "float32"), 1)
    return {
        "x": words[0],
        "before": words[1],
        "y": words[2],
        "mask": np.broadcast_to(mask[:, None, None], shape).copy(),
        "later": np.broadcast_to(later, shape).copy(),
    }


def _layers(fluid, spec):
    layers = fluid.layers
    x = fluid.data("x", [None, 784])
    label = fluid.data("y", [None, 1], "int64")
    guess = layers.fc(layers.fc(x, 200, act="relu"), 10, act="softmax")
    return layers.mean(layers.cross_entropy(guess, label))


def _digits(fluid, spec, rng):
    return {
        "x": rng.rand(spec["batch"], 784).astype("float32"),
        "y": rng.randint(0, 10, (spec["batch"], 1)).astype("int64"),
    }


NETS = {
    **images.NETS,
    "layers": (_layers, _digits),
    "deepfm": (_deepfm, _clicks),
    "recommender": (_recommender, _movies),
    "stacked lstmp": (_stacked, _frames),
    "graph convolution": (_graphs, _edges),
    "bigru crf": (_tagger, _tagged),
    "encoder decoder": (_translate, _sentences),
}
"""By name: what makes the loss, and what makes a feed."""
