"""A small training with checkpoints, for the tests here."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dpexec as fluid
from dpexec.checkpoint import Checkpoints
from tests.engine.run.nets import AllReduce, batches, classifier, strategies


def net() -> Any:
    """Adam with a decaying rate, dropout and batch normalization."""
    # the rate's own counter must be found again, too
    return classifier(_Decayed(), dropout=0.3, batch_norm=True)


class _Decayed:
    def minimize(self, loss: Any) -> Any:
        rate = fluid.layers.exponential_decay(0.02, decay_steps=3, decay_rate=0.7)
        return fluid.optimizer.Adam(rate).minimize(loss)


def executor_of(kind: str, net: Any, devices: int, mode: Any, scheduler: Any) -> Any:
    """Executor (or ParallelExecutor), what it runs, and a function that runs a step."""
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup)
    if kind == "program":
        return exe, net.main, lambda feed: exe.run(net.main, feed, [net.loss])[0]
    build, execution = strategies(mode, scheduler=scheduler)
    if kind == "parallel":
        pe = fluid.ParallelExecutor(False, net.loss.name, net.main, None, execution, build)
        return pe, None, lambda feed: pe.run([net.loss], feed)[0]
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=[fluid.CPUPlace()] * devices
    )
    return exe, compiled, lambda feed: exe.run(compiled, feed, [net.loss])[0]


def train(
    folder: Any,
    steps: int,
    kind: str = "compiled",
    devices: int = 2,
    mode: Any = AllReduce,
    scheduler: Any = "threads",
    every: int = 3,
    keep: int = 3,
    pause: float = 0.0,
    make: Callable[[], Any] = net,
) -> tuple[list[Any], dict[str, np.ndarray], list[dict[str, Any]]]:
    """Train up to a step, from the latest checkpoint on.

    Returns:
        The losses, by step the first one's variables, and what every other replica has of its own.
    """
    trained, feeds = make(), batches(steps, rows=13)
    with fluid.scope_guard(fluid.Scope()):
        executor, program, run = executor_of(kind, trained, devices, mode, scheduler)
        losses = []
        with Checkpoints(executor, folder, program, every, keep) as checkpoints:
            start, extra = checkpoints.resume()
            assert extra == (None if start == 0 else {"next": start})
            for step in range(start, steps):
                losses.append(run(feeds[step]))
                checkpoints.step(extra={"next": step + 1})
                time.sleep(pause)
            state = checkpoints._training.take()
        values = {
            f"{entry['variable']}@{entry.get('replica', 0)}": array for entry, array in state.arrays
        }
        return losses, values, state.about["programs"]
