"""``python -m tests.benchmarks.peer_viewers``: a chain of layers in dpexec and in other tools.

Needs Chromium and its driver. Other tools run in environments of their own, made of
``peers/peer_viewers.txt``::

    python -m venv /tmp/viewers
    /tmp/viewers/bin/pip install -r tests/benchmarks/peers/peer_viewers.txt
    python -m tests.benchmarks.peer_viewers --layers 840 --python /tmp/viewers/bin/python

Each tool gets the same chain of layers, as far as it reads or runs it: dpexec a run of two devices,
Perfetto and HTA that run's Chrome trace, TensorBoard its graph as a GraphDef, Model Explorer in its
own JSON, Netron as ONNX, dask as tasks that do nothing (dask is that of dpexec), tinygrad the chain
written for it, on its device PYTHON, which needs no compiler. What a tool says when it cannot
is printed as it is.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import dpexec as fluid
from dpexec import viz
from dpexec.engine import trace as traces
from tests.benchmarks import peer_viewer_runs, peer_viewer_servers
from tests.benchmarks.frames import wait
from tests.browser import chromium

WIDTH = 8
SECONDS = 300  # for a tool

PERFETTO = """
import sys
from perfetto.trace_processor import TraceProcessor
processor = TraceProcessor(trace=sys.argv[1])
for query in ("select count(*) as slices from slice", "select count(*) as flows from flow"):
    print([row.__dict__ for row in processor.query(query)])
"""
TINYGRAD = """
import sys
from tinygrad import Tensor
from tinygrad.nn import Linear
layers, width = int(sys.argv[1]), int(sys.argv[2])
x = Tensor.rand(width, width)
for _ in range(layers):
    x = Linear(width, width)(x).relu()
print(x.mean().numpy())
"""


def train(layers: int) -> Any:
    """A chain of layers that ran three steps on two devices."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.layers.data("x", [WIDTH])
        y = fluid.layers.data("y", [1], dtype="int64")
        for _ in range(layers):
            x = fluid.layers.fc(x, WIDTH, act="relu")
        found = fluid.layers.fc(x, 4, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(found, y))
        fluid.optimizer.SGD(0.01).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    execution = fluid.ExecutionStrategy()
    execution.trace = True
    replicas = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, exec_strategy=execution, places=fluid.cpu_places(2)
    )
    random = np.random.default_rng(0)
    for _ in range(3):
        feed = {"x": random.random((8, WIDTH), "float32"), "y": random.integers(0, 4, (8, 1))}
        executor.run(replicas, feed=feed, fetch_list=[loss])
    return replicas


def opened(path: Path) -> str:
    """How long the report takes from the request to its first graph."""
    with chromium(1400, 900) as driver:
        start = time.perf_counter()
        driver.get(path.as_uri())
        wait(driver, "document.documentElement.dataset.ready")
        tabs = driver.find_elements("css selector", "[role=tab]")
        tabs[1].click()
        wait(driver, "document.querySelector('.graph canvas')?.width > 300")
        return f"{time.perf_counter() - start:.1f} s until the graph is seen"


def other(what: str, python: str, code: str, *args: str, **flags: str) -> None:
    """Print what another tool says, and how long it took."""
    start = time.perf_counter()
    command = [python, "-c", code, *args]
    environment = os.environ | flags
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
        said = (done.stdout + done.stderr).strip().splitlines()[-3:]
    except subprocess.TimeoutExpired:
        said = [f"not done within {SECONDS} s"]
    print(f"{what}, {time.perf_counter() - start:.1f} s")
    for line in said:
        print(f"    {line[:300]}")


def main() -> None:
    """Print what every tool makes of the chain."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--layers", type=int, default=840)
    arguments.add_argument("--python", default=sys.executable, help="where the other tools are")
    given = arguments.parse_args()
    replicas = train(given.layers)
    trace = replicas.trace
    print(f"{len(trace.graph['nodes']):,} operators, {len(trace):,} slices")
    with tempfile.TemporaryDirectory() as folder:
        page, chrome = Path(folder) / "report.html", Path(folder) / "trace.json"
        start = time.process_time()
        viz.report(replicas, page)
        took = time.process_time() - start
        size = page.stat().st_size / 1e6
        print(f"dpexec: {took:.1f} s of processor time, {size:.2f} MB, {opened(page)}")
        traces.save(trace, chrome)
        print(f"Chrome trace: {chrome.stat().st_size / 1e6:.1f} MB")
        print(f"dask: {peer_viewer_runs.dask(trace.graph, Path(folder))}")
        servers = (
            peer_viewer_servers.tensorboard,
            peer_viewer_servers.model_explorer,
            peer_viewer_servers.netron,
        )
        for show in servers:
            place = Path(folder) / show.__name__
            place.mkdir()
            print(f"{show.__name__}: {show(given.python, trace.graph, place)}")
        other("perfetto", given.python, PERFETTO, str(chrome))
        other("HTA", given.python, peer_viewer_runs.HTA, str(chrome))
        numbers = str(given.layers), str(WIDTH)
        other("tinygrad, VIZ=1", given.python, TINYGRAD, *numbers, VIZ="-1", DEV="PYTHON")


if __name__ == "__main__":
    main()
