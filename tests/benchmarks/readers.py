"""Whether steps wait for their reader: ``python tests/benchmarks/readers.py``.

A net is trained on batches that wait in memory, and on batches that are unpacked while it trains:
in line, by a DataLoader's thread, by a DataLoader's process. Each epoch of one is followed by an
epoch of the others; printed are medians, their ratios to the first, and how long a step waited for
its batch. Reading needs a processor: with as many replicas as processors it slows the steps down
though they never wait.
"""

from __future__ import annotations

import argparse
import statistics
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import dpexec as fluid

STEPS = 40
BATCH = 64
LARGE = (112, 112)


def packed() -> list[bytes]:
    """Images of an epoch, compressed as files of images are."""
    rng = np.random.default_rng(1)
    images = rng.integers(0, 8, (STEPS, BATCH, *LARGE), dtype=np.uint8)
    return [zlib.compress(batch.tobytes(), 1) for batch in images]


def unpack(data: list[bytes]) -> Iterator[list[np.ndarray]]:
    """Batches of images made smaller."""
    for part in data:
        pixels = np.frombuffer(zlib.decompress(part), np.uint8).reshape(BATCH, *LARGE)
        small = pixels.reshape(BATCH, 28, 4, 28, 4).mean((2, 4), dtype="float32")
        yield [small.reshape(BATCH, 1, 28, 28), pixels[:, :1, 0].astype("int64")]


def lenet() -> tuple[list[fluid.Variable], fluid.Variable]:
    """What is fed, and the loss of a small convolutional net."""
    image, label = fluid.data("image", [None, 1, 28, 28]), fluid.data("label", [None, 1], "int64")
    x = image
    for filters in (20, 50):
        x = fluid.nets.simple_img_conv_pool(x, filters, 5, 2, 2, act="relu")
    digit = fluid.layers.fc(x, 10, act="softmax")
    return [image, label], fluid.layers.mean(fluid.layers.cross_entropy(digit, label))


def loader(fed: list[fluid.Variable], data: list[bytes], process: bool) -> Iterator[Any]:
    """Feeds that are read ahead."""
    made = fluid.io.DataLoader.from_generator(fed, capacity=8, use_multiprocess=process)
    made.set_batch_generator(lambda: unpack(data), places=fluid.CPUPlace())
    return (feeds[0] for feeds in made)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--devices", type=int, default=1, help="replicas")
    options = parser.parse_args()
    epochs, places = options.epochs, fluid.cpu_places(options.devices)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        fed, loss = lenet()
        fluid.optimizer.Momentum(0.01, 0.9).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        program = fluid.CompiledProgram(fluid.default_main_program())
        program.with_data_parallel(loss.name, places=places)
    data, names = packed(), [var.name for var in fed]
    ready = [dict(zip(names, batch, strict=True)) for batch in unpack(data)]
    sources: dict[str, Callable[[], Any]] = {
        "in memory": lambda: ready,
        "in line": lambda: (dict(zip(names, batch, strict=True)) for batch in unpack(data)),
        "thread": lambda: loader(fed, data, process=False),
        "process": lambda: loader(fed, data, process=True),
    }
    times: dict[str, list[float]] = {name: [] for name in sources}
    waits: dict[str, list[float]] = {name: [] for name in sources}
    for epoch in range(epochs + 1):
        for name, source in sources.items():
            feeds, waited, steps = iter(source()), 0.0, 0
            exe.run(program, feed=next(feeds), fetch_list=[loss])  # the reader has begun
            start = asked = time.perf_counter()
            for feed in feeds:
                waited += time.perf_counter() - asked
                exe.run(program, feed=feed, fetch_list=[loss])
                asked = time.perf_counter()
                steps += 1
            if epoch:  # the first one warms up
                times[name].append((asked - start) / steps * 1e3)
                waits[name].append(waited / steps * 1e3)
    start = time.perf_counter()
    list(unpack(data))
    print(f"reading alone   {(time.perf_counter() - start) / STEPS * 1e3:6.2f} ms/batch")
    base = statistics.median(times["in memory"])
    for name in sources:
        median, wait = statistics.median(times[name]), statistics.median(waits[name])
        print(f"{name:15s} {median:6.2f} ms/step, {median / base:5.2f}, waits {wait:5.2f} ms")


if __name__ == "__main__":
    main()
