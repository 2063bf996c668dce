"""The workloads: nets, batches and initial parameters, the same for all peers.

Every peer reads this file with its own Python (3.7 or newer) and NumPy. A net is written once, over
the few layers that each ``train_*.py`` provides, so that all of them do the same work.
"""

from __future__ import annotations

import numpy as np

WORKLOADS = {
    "W1": {
        "net": "mlp",
        "batch": 64,
        "inputs": 784,
        "hidden": [200, 200],
        "classes": 10,
        "optimizer": "adam",
        "rate": 1e-3,
    },
    "W1b": {
        "net": "mlp",
        "batch": 1024,
        "inputs": 784,
        "hidden": [1024, 1024],
        "classes": 10,
        "optimizer": "adam",
        "rate": 1e-3,
    },
    "W2": {"net": "lenet", "batch": 64, "optimizer": "momentum", "rate": 0.01},
    "W3": {"net": "resnet", "batch": 32, "depth": 32, "optimizer": "momentum", "rate": 0.02},
    "W4": {
        "net": "word2vec",
        "batch": 128,
        "words": 100_000,
        "width": 32,
        "context": 4,
        "hidden": 256,
        "classes": 2000,
        "optimizer": "sgd",
        "rate": 0.5,
    },
    "W4b": {
        "net": "wide_and_deep",
        "batch": 512,
        "words": 100_000,
        "width": 16,
        "slots": 26,
        "dense": 13,
        "hidden": [400, 400, 400],
        "optimizer": "sgd",
        "rate": 0.05,
    },
    "W5": {
        "net": "encoder",
        "batch": 16,
        "words": 8000,
        "width": 256,
        "heads": 4,
        "layers": 2,
        "length": 64,
        "inner": 1024,
        "optimizer": "adam",
        "rate": 5e-4,
    },
}
GPU_WORKLOADS = {
    **{name: WORKLOADS[name] for name in ("W1", "W1b", "W2", "W4")},
    "W3g": dict(WORKLOADS["W3"], batch=256),
    "W6": {
        **WORKLOADS["W5"],
        "batch": 32,
        "width": 1024,
        "heads": 16,
        "layers": 12,
        "length": 128,
        "inner": 4096,
        "precision": "bfloat16",  # of products, unless the command line says something else
    },
}
TITLES = {
    "W1": "MLP 784-200-200-10, batch 64, Adam",
    "W1b": "MLP 784-1024-1024-10, batch 1024, Adam",
    "W2": "LeNet, batch 64, Momentum",
    "W3": "ResNet-32 with batch norm, batch 32, Momentum",
    "W4": "word2vec n-gram, sparse, batch 128, SGD",
    "W4b": "wide and deep, 26 sparse slots, batch 512, SGD",
    "W5": "transformer encoder, batch 16, Adam",
    "W3g": "ResNet-32 with batch norm, batch 256, Momentum",
    "W6": "transformer encoder of 12 layers, width 1024, batch 32, Adam",
}
SPARSE = ("word2vec", "wide_and_deep")  # nets whose tables get sparse gradients
MOMENTUM = 0.9
EPSILON = 1e-5  # of batch norm and layer norm
BATCHES = 8


def batches(spec):
    """Eight batches by name of the input, along axis 0; class labels are int64 of rank 1."""
    rng = np.random.RandomState(0)
    net, size = spec["net"], spec["batch"]
    shapes = {"lenet": [1, 28, 28], "resnet": [3, 32, 32]}
    if net in ("mean", "mlp", *shapes):
        shape = shapes.get(net) or [spec["inputs"]]
        return _labelled_images(rng, size, shape, spec.get("classes", 10))
    if net == "wide_and_deep":
        return _clicks(rng, spec)
    made = []
    for _ in range(BATCHES):
        if net == "word2vec":
            x = _zipf(rng, spec["words"], (size, spec["context"]))
            made.append({"x": x, "y": _zipf(rng, spec["classes"], (size,))})
        else:
            x = _zipf(rng, spec["words"], (size, spec["length"]))
            made.append({"x": x, "y": (x * 17 + 3) % spec["words"]})
    return made


def _labelled_images(rng, size, shape, classes):
    """Noise, labelled by a random linear classifier."""
    teacher = rng.randn(int(np.prod(shape)), classes).astype("float32")
    made = []
    for _ in range(BATCHES):
        x = rng.rand(size, *shape).astype("float32") - 0.5
        made.append({"x": x, "y": (x.reshape(size, -1) @ teacher).argmax(1).astype("int64")})
    return made


def _clicks(rng, spec):
    """Clicks with a probability that depends on words and numbers; y is float32 of rank 2."""
    scores = rng.randn(spec["words"]).astype("float32") * 0.5
    weights = rng.randn(spec["dense"], 1).astype("float32") * 0.5
    made = []
    for _ in range(BATCHES):
        x = _zipf(rng, spec["words"], (spec["batch"], spec["slots"]))
        dense = rng.randn(spec["batch"], spec["dense"]).astype("float32")
        logits = scores[x].sum(1, keepdims=True) + dense @ weights
        clicked = rng.rand(spec["batch"], 1) < 1 / (1 + np.exp(-logits))
        made.append({"x": x, "dense": dense, "y": clicked.astype("float32")})
    return made


def _zipf(rng, words, shape):
    """Words whose frequency falls with their rank; the frequent ones lie all over the table."""
    chances = 1.0 / np.arange(1, words + 1) ** 1.05
    chances /= chances.sum()
    ranks = np.searchsorted(np.cumsum(chances), rng.rand(*shape)).clip(0, words - 1)
    return np.random.RandomState(7).permutation(words)[ranks].astype("int64")


class _Parameters(dict):
    """Initial parameters by name, in the order in which they are drawn."""

    def __init__(self):
        super().__init__()
        self._rng = np.random.RandomState(1)

    def linear(self, name, inputs, outputs, bias=True):
        """``name.w`` is (inputs, outputs)."""
        limit = np.sqrt(6.0 / (inputs + outputs))
        self.uniform(name + ".w", limit, inputs, outputs)
        if bias:
            self[name + ".b"] = np.zeros(outputs, "float32")

    def conv(self, name, inputs, outputs, size, bias=False):
        """``name.w`` is (outputs, inputs, size, size)."""
        self.normal(name + ".w", np.sqrt(2.0 / (inputs * size * size)), outputs, inputs, size, size)
        if bias:
            self[name + ".b"] = np.zeros(outputs, "float32")

    def norm(self, name, channels):
        """``name.g`` scales, ``name.b`` shifts."""
        self[name + ".g"] = np.ones(channels, "float32")
        self[name + ".b"] = np.zeros(channels, "float32")

    def stack(self, sizes):
        """Linear layers fc0, fc1 ..."""
        for i in range(len(sizes) - 1):
            self.linear(f"fc{i}", sizes[i], sizes[i + 1])

    def uniform(self, name, limit, *shape):
        """Between -limit and limit."""
        self[name] = self._rng.uniform(-limit, limit, shape).astype("float32")

    def normal(self, name, scale, *shape):
        """With a standard deviation."""
        self[name] = (self._rng.randn(*shape) * scale).astype("float32")


def parameters(spec):
    """Initial parameters by name: tables are (words, width), see ``_Parameters`` for the rest."""
    made, net = _Parameters(), spec["net"]
    if net == "mlp":
        made.stack([spec["inputs"]] + spec["hidden"] + [spec["classes"]])
    elif net == "lenet":
        made.conv("conv0", 1, 20, 5, bias=True)
        made.conv("conv1", 20, 50, 5, bias=True)
        made.linear("fc", 800, 10)
    elif net == "resnet":
        _resnet_parameters(made, spec)
    elif net == "word2vec":
        made.uniform("emb", 0.1, spec["words"], spec["width"])
        made.stack([spec["context"] * spec["width"], spec["hidden"], spec["classes"]])
    elif net == "wide_and_deep":
        made.uniform("emb", 0.05, spec["words"], spec["width"])
        made["wide"] = np.zeros((spec["words"], 1), "float32")
        made.linear("wided", spec["dense"], 1, bias=False)
        made.stack([spec["width"] + spec["dense"]] + spec["hidden"] + [1])
    elif net != "mean":
        _encoder_parameters(made, spec)
    return dict(made)


def _resnet_parameters(made, spec):
    made.conv("stem", 3, 16, 3)
    made.norm("stem.bn", 16)
    for name, inputs, outputs, _, projected in residual_blocks(spec):
        made.conv(name + ".c1", inputs, outputs, 3)
        made.norm(name + ".bn1", outputs)
        made.conv(name + ".c2", outputs, outputs, 3)
        made.norm(name + ".bn2", outputs)
        if projected:
            made.conv(name + ".cs", inputs, outputs, 1)
            made.norm(name + ".bns", outputs)
    made.linear("fc", 64, 10)


def _encoder_parameters(made, spec):
    width = spec["width"]
    made.normal("emb", 0.06, spec["words"], width)
    made.normal("pos", 0.06, spec["length"], width)
    for layer in range(spec["layers"]):
        name = f"l{layer}."
        for part in "qkvo":
            made.linear(name + part, width, width)
        made.norm(name + "ln1", width)
        made.linear(name + "f1", width, spec["inner"])
        made.linear(name + "f2", spec["inner"], width)
        made.norm(name + "ln2", width)
    made.linear("out", width, spec["words"])


def channels_last(net, named):
    """Parameters or a batch, with images as (batch, height, width, channels).

    Filters become (height, width, inputs, outputs).
    """
    turned = {}
    for name, array in named.items():
        if array.ndim == 4:
            axes = (0, 2, 3, 1) if name == "x" else (2, 3, 1, 0)
            array = np.ascontiguousarray(array.transpose(axes))
        elif net == "lenet" and name == "fc.w":
            array = array.reshape(50, 4, 4, 10).transpose(1, 2, 0, 3).reshape(800, 10)
        turned[name] = array
    return turned


def residual_blocks(spec):
    """(name, input channels, output channels, stride, whether the shortcut has a convolution)."""
    blocks, inputs = [], 16
    for stage, outputs in enumerate((16, 32, 64)):
        for i in range((spec["depth"] - 2) // 6):
            stride = 2 if stage > 0 and i == 0 else 1
            blocks.append((f"b{stage}_{i}", inputs, outputs, stride, inputs != outputs))
            inputs = outputs
    return blocks


def loss(layers, spec, batch):
    """The mean loss of a batch.

    Args:
        layers: a peer's layers, which know the parameters by name.
        spec: the workload.
        batch: the peer's inputs by name.
    """
    return _NETS[spec["net"]](layers, spec, batch)


def _mlp(layers, spec, batch):
    x, depth = batch["x"], len(spec["hidden"])
    for i in range(depth):
        x = layers.linear(x, f"fc{i}", "relu")
    return layers.class_loss(x, f"fc{depth}", batch["y"])


def _lenet(layers, spec, batch):
    x = batch["x"]
    for name in ("conv0", "conv1"):
        x = layers.max_pool(layers.conv(x, name, act="relu"))
    return layers.class_loss(layers.flatten(x), "fc", batch["y"])


def _resnet(layers, spec, batch):
    def block(x, conv, norm, stride, padding, act=None):
        return layers.batch_norm(layers.conv(x, conv, stride, padding), norm, act)

    x = block(batch["x"], "stem", "stem.bn", 1, 1, "relu")
    for name, _, _, stride, projected in residual_blocks(spec):
        y = block(x, name + ".c1", name + ".bn1", stride, 1, "relu")
        y = block(y, name + ".c2", name + ".bn2", 1, 1)
        shortcut = block(x, name + ".cs", name + ".bns", stride, 0) if projected else x
        x = layers.add(y, shortcut, "relu")
    return layers.class_loss(layers.global_mean(x), "fc", batch["y"])


def _word2vec(layers, spec, batch):
    words = layers.side_by_side(batch["x"], "emb")
    return layers.class_loss(layers.linear(words, "fc0", "sigmoid"), "fc1", batch["y"])


def _wide_and_deep(layers, spec, batch):
    ids, dense, depth = batch["x"], batch["dense"], len(spec["hidden"])
    x = layers.join(layers.sum_of_words(ids, "emb"), dense)
    for i in range(depth):
        x = layers.linear(x, f"fc{i}", "relu")
    deep = layers.linear(x, f"fc{depth}")
    wide = layers.add(layers.sum_of_words(ids, "wide"), layers.linear(dense, "wided"))
    return layers.click_loss(layers.add(deep, wide), batch["y"])


def _encoder(layers, spec, batch):
    x = layers.add_rows(layers.scale(layers.words(batch["x"], "emb"), spec["width"] ** 0.5), "pos")
    for layer in range(spec["layers"]):
        name = f"l{layer}."
        q, k, v = [layers.linear(x, name + part) for part in "qkv"]
        mixed = layers.linear(layers.attention(q, k, v, spec["heads"]), name + "o")
        x = layers.layer_norm(layers.add(x, mixed), name + "ln1")
        inner = layers.linear(x, name + "f1", "relu")
        x = layers.layer_norm(layers.add(x, layers.linear(inner, name + "f2")), name + "ln2")
    return layers.word_loss(x, "out", batch["y"])


_NETS = {
    "mean": lambda layers, spec, batch: layers.mean(batch["x"]),
    "mlp": _mlp,
    "lenet": _lenet,
    "resnet": _resnet,
    "word2vec": _word2vec,
    "wide_and_deep": _wide_and_deep,
    "encoder": _encoder,
}


def passes(spec):
    """How often the update goes over all parameters: reads and writes of them and their state."""
    return {"sgd": 3, "momentum": 5, "adam": 7}[spec["optimizer"]]


def products(spec):
    """The matrix products of a training step: (m, k, n, how often), convolutions included.

    They bound a step from below: forward, gradient of the weights, and gradient of the inputs
    where something before needs it.
    """
    size, net, found = spec["batch"], spec["net"], []

    def linear(rows, inputs, outputs, first=False, times=1):
        found.extend([(rows, inputs, outputs, times), (inputs, rows, outputs, times)])
        if not first:
            found.append((rows, outputs, inputs, times))

    if net == "mlp":
        sizes = [spec["inputs"]] + spec["hidden"] + [spec["classes"]]
        for i in range(len(sizes) - 1):
            linear(size, sizes[i], sizes[i + 1], first=i == 0)
    elif net == "lenet":
        linear(size * 24 * 24, 25, 20, first=True)
        linear(size * 64, 500, 50)
        linear(size, 800, 10)
    elif net == "resnet":
        linear(size * 1024, 27, 16, first=True)
        side = 32
        for _, inputs, outputs, stride, projected in residual_blocks(spec):
            side //= stride
            rows = size * side * side
            linear(rows, inputs * 9, outputs)
            linear(rows, outputs * 9, outputs)
            if projected:
                linear(rows, inputs, outputs)
        linear(size, 64, 10)
    elif net == "word2vec":
        linear(size, spec["context"] * spec["width"], spec["hidden"])
        linear(size, spec["hidden"], spec["classes"])
    elif net == "wide_and_deep":
        sizes = [spec["width"] + spec["dense"]] + spec["hidden"] + [1]
        for i in range(len(sizes) - 1):
            linear(size, sizes[i], sizes[i + 1])
    else:
        rows, width, heads = size * spec["length"], spec["width"], spec["heads"]
        for _ in range(spec["layers"]):
            linear(rows, width, width, times=4)
            linear(rows, width, spec["inner"])
            linear(rows, spec["inner"], width)
            # both products of attention, forward and twice backward
            found.append((spec["length"], width // heads, spec["length"], 6 * size * heads))
        linear(rows, width, spec["words"])
    return found
