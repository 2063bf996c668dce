"""The cost of the live view: ``python -m tests.benchmarks.live_view``.

Two replicas train. Recording alone is switched at every other block of steps; an open page, which a
browser's stand-in in another process follows, at every other half second, in which it is updated
once: in between the page's process is stopped. So both kinds of blocks share code, memory and
moments of other load; and they are long enough for what a step of their kind needs to be in the
processor's caches. Printed are the step, and by how much it is slower: the median over all pairs,
with the interval that holds it in 19 of 20 cases. Two figures depend less on other load: the
processor time of the thread that calls run, and that of the thread that answers the page's process.
Only while that one works, it can keep the other one from Python.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dpexec as fluid
from dpexec import dashboard
from dpexec.dashboard.hub import HUB
from dpexec.dashboard.monitor import INTERVAL

BATCH, HIDDEN = 64, 200
BLOCK = 100  # steps with or without recording
VIEWER = """
import asyncio, os, sys
from bokeh.util.token import generate_jwt_token, generate_session_id
from tornado.websocket import websocket_connect

async def follow(url):
    token = generate_jwt_token(generate_session_id())
    page = await websocket_connect(f"ws{url[4:]}/ws", subprotocols=["bokeh", token])
    print("open", flush=True)
    while await page.read_message():
        pass

os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # it may be on another machine
asyncio.run(follow(sys.argv[1]))
"""


def trainer() -> tuple[Any, Callable[[], None]]:
    """A classifier 784-200-200-10 on two devices, and what makes a step."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 784])
        label = fluid.data("y", [None, 1], "int64")
        hidden = x
        for _ in range(2):
            hidden = fluid.layers.fc(hidden, HIDDEN, act="relu")
        digit = fluid.layers.fc(hidden, 10, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(digit, label))
        fluid.optimizer.Adam(1e-3).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
            loss.name, places=fluid.cpu_places(2)
        )
    rng = np.random.default_rng(1)
    feed = {
        "x": rng.random((BATCH, 784), dtype=np.float32),
        "y": rng.integers(0, 10, (BATCH, 1)),
    }

    def step() -> None:
        exe.run(program, feed=feed, fetch_list=[loss])

    for _ in range(50):
        step()
    return program, step


def recording(program: Any, step: Callable[[], None], pairs: int) -> None:
    """Blocks of steps that are counted against blocks of steps that are not."""
    number = HUB.join()
    observers = program._engine.observers
    counter = observers.counter
    wall, processor = [], []
    for index in range(pairs):
        took = {}
        for on in (index % 2 == 0, index % 2 == 1):
            observers.counter = counter if on else None
            start = time.perf_counter(), time.thread_time()
            for _ in range(BLOCK):
                step()
            ends = time.perf_counter(), time.thread_time()
            took[on] = [(end - begin) / BLOCK for begin, end in zip(start, ends, strict=True)]
        wall.append((took[False][0], took[True][0]))
        processor.append((took[False][1], took[True][1]))
    HUB.leave(number)
    say("recording", wall)
    say("recording, processor time of the calling thread", processor)


class Blocks:
    """Blocks of steps, in turns with an open page and with one that stands still.

    Args:
        step: makes one.
        seconds: of a block: those between two updates of a page, so that each has one.
    """

    def __init__(self, step: Callable[[], None], seconds: float) -> None:
        self._step, self._seconds = step, seconds
        self.wall: list[tuple[float, float]] = []
        self.processor: list[tuple[float, float]] = []
        self.busy = 0.0  # seconds that the page's thread worked while the page was open

    def pair(self, first: bool, open_page: Callable[[bool], None], clock: int) -> None:
        """Two blocks.

        Args:
            first: whether the first of them is the one with the page.
            open_page: lets the page follow, or stand still.
            clock: of the page's thread.
        """
        took = {}
        for on in (first, not first):
            open_page(on)
            before, start, used = time.clock_gettime(clock), time.perf_counter(), time.thread_time()
            count = 0
            while time.perf_counter() - start < self._seconds:
                self._step()
                count += 1
            wall, own = time.perf_counter() - start, time.thread_time() - used
            took[on] = wall / count, own / count
            self.busy += (time.clock_gettime(clock) - before) * on
        self.wall.append((took[False][0], took[True][0]))
        self.processor.append((took[False][1], took[True][1]))


def page(program: Any, step: Callable[[], None], pairs: int, seconds: float) -> None:
    """Blocks with an open page against blocks in which the page's process is stopped."""
    blocks = Blocks(step, seconds)
    with dashboard.serve(program) as server:
        observers = program._engine.observers
        counter = observers.counter

        def open_page(on: bool) -> None:
            observers.counter = counter if on else None
            os.kill(server._process.pid, signal.SIGCONT if on else signal.SIGSTOP)

        viewer = subprocess.Popen(
            [sys.executable, "-c", VIEWER, server.url], stdout=subprocess.PIPE, text=True
        )
        try:
            assert viewer.stdout is not None and viewer.stdout.readline() == "open\n"
            clock = time.pthread_getcpuclockid(server._thread.ident or 0)
            for index in range(pairs):
                blocks.pair(index % 2 == 0, open_page, clock)
        finally:
            viewer.kill()
            viewer.wait()
    say("open page", blocks.wall)
    say("open page, processor time of the calling thread", blocks.processor)
    share = blocks.busy / pairs / seconds
    print(f"the page's thread takes {share:.2%} of a processor: that much it can hold training up")


def say(what: str, found: Sequence[tuple[float, float]]) -> None:
    """Print what pairs of (without, with) say."""
    without = statistics.median(off for off, _ in found)
    ratios = sorted(on / off - 1 for off, on in found)
    middle, spread = (len(ratios) - 1) / 2, 0.98 * len(ratios) ** 0.5
    low, cost, high = (
        ratios[max(0, min(len(ratios) - 1, round(middle + shift)))]
        for shift in (-spread, 0, spread)
    )
    print(f"a step takes {without * 1e3:.3f} ms; {what}: {cost:+.2%} ({low:+.2%} to {high:+.2%})")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=200, help="of blocks, for recording alone")
    parser.add_argument("--blocks", type=int, default=120, help="pairs of blocks, for the page")
    parser.add_argument("--seconds", type=float, default=INTERVAL, help="of a block")
    options = parser.parse_args()
    program, step = trainer()
    recording(program, step, options.pairs)
    page(program, step, options.blocks, options.seconds)


if __name__ == "__main__":
    main()
