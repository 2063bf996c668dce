"""Takes the pictures for the documentation: a real run, its report in headless Chromium.

python -m tests.viz.pictures docs/pictures
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

import dpexec as fluid
from dpexec import dashboard, layers, viz
from tests.viz.browser import Browser, browser

STEPS = 6
LIVE_SECONDS = 8.0
COLOURS = 256  # of a picture, the rare ones included: flat colours need no more


def perceptron() -> fluid.Variable:
    """Three layers on images of digits."""
    image = layers.data("image", [784])
    label = layers.data("label", [1], dtype="int64")
    hidden = layers.fc(layers.fc(image, 256, act="relu"), 128, act="relu")
    loss = layers.mean(layers.cross_entropy(layers.fc(hidden, 10, act="softmax"), label))
    fluid.optimizer.Adam(0.001).minimize(loss)
    return loss


def resnet(depth: int = 32) -> fluid.Variable:
    """The residual network for small images (He and others, 2015)."""

    def normed(x, channels, size, stride, act="relu"):
        made = layers.conv2d(x, channels, size, stride, (size - 1) // 2, bias_attr=False)
        return layers.batch_norm(made, act=act)

    def block(x, channels, stride):
        made = normed(normed(x, channels, 3, stride), channels, 3, 1, None)
        short = x if stride == 1 else normed(x, channels, 1, stride, None)
        return layers.elementwise_add(made, short, act="relu")

    image = layers.data("image", [3, 32, 32])
    label = layers.data("label", [1], dtype="int64")
    x = normed(image, 16, 3, 1)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        for k in range((depth - 2) // 6):
            x = block(x, channels, 1 if k else stride)
    out = layers.fc(layers.pool2d(x, 8, "avg", 1), 10, act="softmax")
    loss = layers.mean(layers.cross_entropy(out, label))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return loss


@contextmanager
def training(net, rows: int, **fields):
    """Two devices that train: the compiled program with its trace, and what runs a step."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = net()
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    build.fuse_elewise_add_act_ops = build.fuse_all_optimizer_ops = True
    execution.trace = True
    for name, value in fields.items():
        setattr(build, name, value)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, build, execution, places=[fluid.CPUPlace()] * 2
        )
        random = np.random.default_rng(0)
        shape = [rows, *main.global_block().var("image").shape[1:]]
        image = random.random(shape, dtype=np.float32)
        feed = {"image": image, "label": random.integers(0, 10, (rows, 1))}
        yield compiled, partial(exe.run, compiled, feed=feed, fetch_list=[loss])


def report(net, rows: int, path: Path) -> Path:
    """Train a few steps and write the report."""
    with training(net, rows) as (compiled, step):
        for _ in range(STEPS):
            step()
    return viz.report(compiled).save(path)


def failed(path: Path) -> Path:
    """A run in which a label of device 1 is none."""
    with training(perceptron, 256) as (compiled, step):
        for _ in range(STEPS):
            step()
        feed = dict(step.keywords["feed"])
        feed["label"] = np.where(np.arange(256)[:, None] == 200, 12, feed["label"])
        with suppress(fluid.core.EnforceNotMet):
            step(feed=feed)
    return viz.report(compiled).save(path)


def comparison(path: Path) -> Path:
    """Compare two ways to run a network."""
    traces = []
    for native in (True, False):
        with training(perceptron, 256, native_kernels=native) as (compiled, step):
            for _ in range(4 * STEPS):
                step()
            traces.append(compiled.trace)
    return viz.compare(*traces, names=["machine code", "NumPy"]).save(path)


def tuned(path: Path) -> Path:
    """Try strategies for a network whose kernels are off."""
    random = np.random.default_rng(0)
    feed = {"image": random.random((256, 784), dtype=np.float32)}
    feed["label"] = random.integers(0, 10, (256, 1))
    with training(perceptron, 256, native_kernels=False) as (compiled, step):
        step()
        return viz.tune(compiled, feed).save(path)


def film(path: Path) -> None:
    """A step of a small network."""
    with training(perceptron, 256) as (compiled, step):
        for _ in range(STEPS):
            step()
    viz.animate(compiled, seconds=5.0, rate=8).save(path)
    print(path)


def live(window: Browser, path: Path) -> None:
    """The page of the dashboard while a network trains."""
    with training(perceptron, 256) as (compiled, step), dashboard.serve(compiled) as server:
        step()
        window.driver.get(server.url)
        end = threading.Event()

        def train() -> None:
            while not end.is_set():
                step()
                time.sleep(0.01)

        trainer = threading.Thread(target=train)
        trainer.start()
        time.sleep(LIVE_SECONDS)
        shot(window, path)  # while it trains: rates fall as soon as it ends
        end.set()
        trainer.join()


def shot(window: Browser, path: Path, tab: str | None = None) -> None:
    """Save what the window shows once a tab has drawn itself."""
    if tab:
        window.tab(tab)
    time.sleep(0.5)
    window.driver.save_screenshot(str(path))
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=2)
        small.save(path, optimize=True)
    print(path)


def main(folder: Path) -> None:
    """Take all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, browser() as window:
        small = report(perceptron, 256, Path(scratch) / "small.html")
        large = report(resnet, 32, Path(scratch) / "large.html")
        window.open(small)
        names = window.js(
            "return [...document.querySelectorAll('[role=tab]')].map(t => t.textContent)"
        )
        for name in names:
            shot(window, folder / f"{name.lower().replace(' ', '-')}.png", name)
        with window.media("prefers-color-scheme", "dark"):
            window.open(large)
            shot(window, folder / "resnet-32.png", names[1])
        window.open(failed(Path(scratch) / "failed.html"))
        window.button("graph ↗", ".warn")
        shot(window, folder / "failed.png")
        window.open(comparison(Path(scratch) / "compare.html"))
        shot(window, folder / "compare.png")
        window.open(tuned(Path(scratch) / "tune.html"))
        shot(window, folder / "tune.png")
        film(folder / "step.gif")
        live(window, folder / "live.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
