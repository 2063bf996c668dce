"""A convolutional classifier for scikit-learn's handwritten digits (8 x 8 pixels)."""

from __future__ import annotations

import numpy as np

import dpexec as fluid
from dpexec.examples.example import Data, Example, MissingPackageError, Net, split


def build() -> Net:
    """Two convolutions with pooling, two fully connected layers, Adam."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image = fluid.data(name="image", shape=[None, 1, 8, 8], dtype="float32")
        label = fluid.data(name="label", shape=[None, 1], dtype="int64")
        net = image
        for filters in (32, 64):
            net = fluid.nets.simple_img_conv_pool(
                net,
                num_filters=filters,
                filter_size=3,
                conv_padding=1,
                pool_size=2,
                pool_stride=2,
                act="relu",
            )
        net = fluid.layers.fc(net, size=128, act="relu")
        digit = fluid.layers.fc(net, size=10, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(input=digit, label=label))
        accuracy = fluid.layers.accuracy(input=digit, label=label)
        test = main.clone(for_test=True)
        fluid.optimizer.Adam(learning_rate=0.002).minimize(loss)
    return Net(main, startup, test, loss, accuracy)


def load() -> Data:
    """1,437 images to train with, 360 held out.

    Raises:
        MissingPackageError: scikit-learn, which ships the images, is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingPackageError("the digits come with scikit-learn") from None
    digits = load_digits()
    arrays = {
        "image": (digits.images[:, None] / 16.0).astype(np.float32),
        "label": digits.target[:, None].astype(np.int64),
    }
    return Data(*split(arrays, 0.2005), "scikit-learn's handwritten digits")


EXAMPLE = Example(
    name="digits",
    summary="a convolutional net reads handwritten digits",
    build=build,
    load=load,
    batch_size=480,
    epochs=60,
    metric_name="accuracy",
)
