"""The nets of ``families.py`` on images, as fluid programs; for Python 3.7 and newer."""

from __future__ import annotations

import numpy as np


def rows(fluid, values, lengths):
    return fluid.create_lod_tensor(values, [list(map(int, lengths))], fluid.CPUPlace())


def lengths_of(rng, spec, least, most):
    return rng.randint(least, most + 1, spec["batch"])


def _images(rng, *shape):
    return rng.rand(*shape).astype("float32") - 0.5


def _convolution(fluid, x, channels, size=3, stride=1, act="relu", groups=1, dilation=1):
    layers = fluid.layers
    padding = dilation * (size // 2)
    x = layers.conv2d(x, channels, size, stride, padding, dilation, groups=groups, bias_attr=False)
    return layers.batch_norm(x, act=act)


def _generator(fluid, spec):
    layers = fluid.layers
    x = layers.fc(fluid.data("x", [None, 64]), 64 * 4 * 4)
    x = layers.batch_norm(layers.reshape(x, [-1, 64, 4, 4]), act="relu")
    for channels, act in ((32, "relu"), (16, "relu"), (1, None)):
        x = layers.conv2d_transpose(x, channels, filter_size=4, stride=2, padding=1)
        x = layers.batch_norm(x, act=act) if act else layers.tanh(x)
    for channels in (16, 32, 64):
        x = layers.leaky_relu(_convolution(fluid, x, channels, 5, 2, None), 0.2)
    logits = layers.fc(x, 1)
    wanted = layers.fill_constant_batch_size_like(logits, [-1, 1], "float32", 1.0)
    return layers.mean(layers.sigmoid_cross_entropy_with_logits(logits, wanted))


def _noise(fluid, spec, rng):
    return {"x": rng.randn(spec["batch"], 64).astype("float32")}


def _ssd(fluid, spec):
    layers = fluid.layers
    image = fluid.data("x", [None, 3, 64, 64])
    boxes = fluid.data("boxes", [None, 4], lod_level=1)
    label = fluid.data("y", [None, 1], "int32", lod_level=1)
    x = _convolution(fluid, image, 16, 3, 2)
    features = []
    for channels in (32, 64, 64):
        x = _convolution(fluid, x, channels, 3, 2)
        features.append(x)
    places, scores, priors, variances = layers.multi_box_head(
        features,
        image,
        64,
        5,
        [[2.0], [2.0, 3.0], [2.0, 3.0]],
        min_sizes=[8.0, 16.0, 32.0],
        max_sizes=[16.0, 32.0, 56.0],
        flip=True,
        kernel_size=3,
        pad=1,
    )
    found = layers.ssd_loss(places, scores, boxes, label, priors, variances)
    return layers.mean(layers.reduce_sum(found))


def _boxes(rng, count):
    corner = rng.uniform(0.0, 0.5, (count, 2))
    return np.concatenate([corner, corner + rng.uniform(0.2, 0.5, (count, 2))], 1)


def _boxed_images(fluid, spec, rng):
    lengths = lengths_of(rng, spec, 1, 4)
    boxes = _boxes(rng, lengths.sum()).astype("float32")
    label = rng.randint(1, 5, (len(boxes), 1))
    return {
        "x": _images(rng, spec["batch"], 3, 64, 64),
        "boxes": rows(fluid, boxes, lengths),
        "y": rows(fluid, label.astype("int32"), lengths),
    }


def _yolo(fluid, spec):
    layers = fluid.layers
    x = fluid.data("x", [None, 3, 96, 96])
    boxes = fluid.data("boxes", [None, 6, 4])
    label = fluid.data("y", [None, 6], "int32")
    for channels in (8, 16, 32, 64, 64):
        x = layers.leaky_relu(_convolution(fluid, x, channels, 3, 2, None), 0.1)
        inner = layers.leaky_relu(_convolution(fluid, x, channels // 2, 1, 1, None), 0.1)
        x = x + layers.leaky_relu(_convolution(fluid, inner, channels, 3, 1, None), 0.1)
    x = layers.conv2d(x, 3 * (5 + 4), 1)
    anchors = [10, 13, 30, 33, 62, 61]
    found = layers.yolov3_loss(x, boxes, label, anchors, [0, 1, 2], 4, 0.7, 32)
    return layers.mean(found)


def _centred_images(fluid, spec, rng):
    """Images with six objects, each in a cell of its own: of several Paddle forgets gradients."""
    cells = np.stack([rng.permutation(9)[:6] for _ in range(spec["batch"])])
    corners = np.stack([cells % 3, cells // 3], axis=-1)
    centres = (corners + rng.uniform(0.1, 0.9, corners.shape)) / 3
    boxes = np.concatenate([centres, rng.uniform(0.1, 0.5, corners.shape)], axis=-1)
    return {
        "x": _images(rng, spec["batch"], 3, 96, 96),
        "boxes": boxes.astype("float32"),
        "y": rng.randint(0, 4, (spec["batch"], 6)).astype("int32"),
    }


def _crnn(fluid, spec):
    layers = fluid.layers
    x = fluid.data("x", [None, 1, 32, 96])
    label = fluid.data("y", [None, 1], "int32", lod_level=1)
    for channels in (16, 32, 64):
        x = layers.pool2d(_convolution(fluid, x, channels), 2, "max", 2)
    columns = layers.im2sequence(x, filter_size=[4, 1], stride=[1, 1])
    ways = [
        layers.dynamic_gru(layers.fc(columns, 3 * 60), 60, is_reverse=back)
        for back in (False, True)
    ]
    scores = layers.fc(ways, 37)
    return layers.mean(layers.warpctc(scores, label, blank=36, norm_by_times=True))


def _lines(fluid, spec, rng):
    lengths = lengths_of(rng, spec, 3, 5)
    label = rng.randint(0, 36, (lengths.sum(), 1)).astype("int32")
    return {"x": _images(rng, spec["batch"], 1, 32, 96), "y": rows(fluid, label, lengths)}


def _depthwise(fluid, spec):
    layers = fluid.layers
    x = _convolution(fluid, fluid.data("x", [None, 3, 64, 64]), 16, 3, 2)
    label = fluid.data("y", [None, 1], "int64")
    for channels, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1)):
        x = _convolution(fluid, x, x.shape[1], 3, stride, groups=x.shape[1])
        x = _convolution(fluid, x, channels, 1)
    inner = _convolution(fluid, _convolution(fluid, x, 64, 1), 64, 3, groups=8)
    x = layers.relu(x + _convolution(fluid, inner, 128, 1, act=None))
    gate = layers.fc(layers.pool2d(x, pool_type="avg", global_pooling=True), 16, act="relu")
    x = layers.elementwise_mul(x, layers.fc(gate, 128, act="sigmoid"), axis=0)
    found = layers.fc(layers.pool2d(x, pool_type="avg", global_pooling=True), 10, act="softmax")
    return layers.mean(layers.cross_entropy(found, label))


def _labelled(fluid, spec, rng):
    label = rng.randint(0, 10, (spec["batch"], 1)).astype("int64")
    return {"x": _images(rng, spec["batch"], 3, 64, 64), "y": label}


def _dilated(fluid, spec):
    layers = fluid.layers
    x = fluid.data("x", [None, 3, 64, 64])
    label = fluid.data("y", [None, 64 * 64], "int64")
    x = low = _convolution(fluid, _convolution(fluid, x, 16, 3, 2), 24)
    x = _convolution(fluid, x, 48, 3, 2)
    ways = [_convolution(fluid, x, 24, 1)]
    ways += [_convolution(fluid, x, 24, 3, dilation=rate) for rate in (2, 4)]
    x = _convolution(fluid, layers.concat(ways, axis=1), 32, 1)
    x = layers.concat([layers.resize_bilinear(x, [32, 32]), low], axis=1)
    x = layers.resize_bilinear(layers.conv2d(_convolution(fluid, x, 32), 8, 1), [64, 64])
    scores = layers.reshape(layers.transpose(x, [0, 2, 3, 1]), [-1, 8])
    label = layers.reshape(label, [-1, 1])
    return layers.mean(layers.softmax_with_cross_entropy(scores, label))


def _pixels(fluid, spec, rng):
    label = rng.randint(0, 8, (spec["batch"], 64 * 64)).astype("int64")
    return {"x": _images(rng, spec["batch"], 3, 64, 64), "y": label}


NETS = {
    "generator": (_generator, _noise),
    "ssd": (_ssd, _boxed_images),
    "yolov3": (_yolo, _centred_images),
    "crnn": (_crnn, _lines),
    "depthwise": (_depthwise, _labelled),
    "dilated": (_dilated, _pixels),
}
"""By name: what makes the loss, and what makes a feed."""
