"""Times training steps of three nets on one and on more replicas: ``make bench``.

The nets and batches are usual ones for such comparisons; data are random, since only time counts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np

import dpexec as fluid
from dpexec.examples.example import Batch, Net
from dpexec.examples.training import Settings, measure


def classifier(shape: list[int], net: Callable, optimizer: Callable) -> Net:
    """Wrap layers up as a classifier of ten classes."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image = fluid.data(name="image", shape=[None, *shape], dtype="float32")
        label = fluid.data(name="label", shape=[None, 1], dtype="int64")
        digit = fluid.layers.fc(net(image), size=10, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(input=digit, label=label))
        test = main.clone(for_test=True)
        optimizer().minimize(loss)
    return Net(main, startup, test, loss, loss)


def mlp(width: int) -> Callable:
    """Two fully connected layers."""

    def layers(x: fluid.Variable) -> fluid.Variable:
        for _ in range(2):
            x = fluid.layers.fc(x, size=width, act="relu")
        return x

    return layers


def lenet(x: fluid.Variable) -> fluid.Variable:
    """Two convolutions with pooling."""
    for filters in (20, 50):
        x = fluid.nets.simple_img_conv_pool(x, filters, 5, 2, 2, act="relu")
    return x


def adam() -> fluid.optimizer.Optimizer:
    """Adam as everybody uses it."""
    return fluid.optimizer.Adam(learning_rate=1e-4)


def momentum() -> fluid.optimizer.Optimizer:
    """Momentum as everybody uses it."""
    return fluid.optimizer.Momentum(learning_rate=1e-4, momentum=0.9)


NETS = {
    "mlp 784-200-200-10, batch 64, Adam": ([784], mlp(200), adam, 64),
    "mlp 784-1024-1024-10, batch 1024, Adam": ([784], mlp(1024), adam, 1024),
    "lenet, batch 64, Momentum": ([1, 28, 28], lenet, momentum, 64),
}


def random_batch(shape: list[int], size: int) -> Batch:
    """Return noise with labels."""
    random = np.random.default_rng(0)
    images = random.normal(size=(size, *shape)).astype(np.float32)
    return {"image": images, "label": random.integers(0, 10, size=(size, 1))}


def main() -> None:
    """Print one line per net, or one JSON object."""
    parser = argparse.ArgumentParser(description="time training steps of three nets")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--mode", choices=("AllReduce", "Reduce"), default="AllReduce")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    mode = fluid.BuildStrategy.ReduceStrategy[options.mode]
    settings = Settings(devices=options.devices, mode=mode, scheduler="threads")
    found = {}
    for name, (shape, net, optimizer, size) in NETS.items():
        batch = random_batch(shape, size)
        speed = measure(classifier(shape, net, optimizer), settings, batch)
        found[name] = {"one_ms": 1e3 / speed.single, "all_ms": 1e3 / speed.replicas}
        if not options.json:
            print(
                f"{name:<42} 1 replica {1e3 / speed.single:8.2f} ms   "
                f"{options.devices} replicas {1e3 / speed.replicas:8.2f} ms   "
                f"speed-up {speed.speedup:.2f}"
            )
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
