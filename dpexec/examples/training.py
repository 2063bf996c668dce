"""Trains an example on replicas and measures their speed-up."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Iterator

import numpy as np
from tqdm import tqdm

import dpexec as fluid
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.trace import Trace
from dpexec.examples.example import Batch, Data, Example, Net

_ROUNDS = 5
_ROUND_SECONDS = 0.4
_WARM_UP = 3


@dataclass(frozen=True)
class Settings:
    """How to train.

    Args:
        devices: Number of replicas.
        mode: How gradients are aggregated.
        scheduler: "threads", "sync", or "distributed" for the active client.
        epochs: How often to go through the data; None for what the example proposes.
    """

    devices: int
    mode: fluid.BuildStrategy.ReduceStrategy
    scheduler: str
    epochs: int | None = None


@dataclass(frozen=True)
class Speed:
    """Steps per second of the same batch.

    Args:
        replicas: With all replicas.
        single: With one; equal to replicas where there is only one.
    """

    replicas: float
    single: float

    @property
    def speedup(self) -> float:
        """How many times faster the replicas are than one."""
        return self.replicas / self.single


class Trainer:
    """An example in a scope of its own, ready to run on a number of devices."""

    def __init__(self, net: Net, settings: Settings, devices: int, trace: bool = False) -> None:
        self.net, self.scope = net, fluid.Scope()
        self.executor = fluid.Executor(fluid.CPUPlace())
        build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
        build.reduce_strategy = settings.mode
        execution.scheduler = settings.scheduler
        execution.trace = trace
        self.compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            loss_name=net.loss.name,
            build_strategy=build,
            exec_strategy=execution,
            places=fluid.cpu_places(devices),
        )
        self.executor.run(net.startup, scope=self.scope)

    def step(self, batch: Batch) -> float:
        """Train on one batch and return its loss: the mean of what the devices report."""
        (losses,) = self.executor.run(
            self.compiled, feed=batch, fetch_list=[self.net.loss], scope=self.scope
        )
        return float(np.mean(losses))

    def evaluate(self, batch: Batch) -> float:
        """Return the metric on held-out samples."""
        (metric,) = self.executor.run(
            self.net.test, feed=batch, fetch_list=[self.net.metric], scope=self.scope
        )
        return float(np.mean(metric))

    @property
    def graph(self) -> SSAGraph:
        """The graph of the replicas; exists after the first step."""
        return self.compiled.graph

    @property
    def trace(self) -> Trace:
        """What the steps did, when tracing was asked for."""
        return self.compiled.trace


def batches(data: Data, size: int, epochs: int) -> Iterator[Batch]:
    """Yield shuffled batches; the last one of an epoch may be smaller."""
    random = np.random.default_rng(0)
    for _ in range(epochs):
        order = random.permutation(data.samples)
        for start in range(0, data.samples, size):
            chosen = order[start : start + size]
            yield {name: array[chosen] for name, array in data.train.items()}


def train(example: Example, data: Data, trainer: Trainer, epochs: int) -> list[float]:
    """Go through the data with a progress bar.

    Returns:
        The loss of every step.
    """
    losses: list[float] = []
    total = epochs * math.ceil(data.samples / example.batch_size)
    seconds = 0.2 if sys.stderr.isatty() else 5.0  # a log needs fewer lines than a terminal
    with tqdm(total=total, desc="training", unit="step", mininterval=seconds) as bar:
        for batch in batches(data, example.batch_size, epochs):
            losses.append(trainer.step(batch))
            bar.set_postfix(loss=f"{losses[-1]:.4f}", refresh=False)
            bar.update()
    return losses


def measure(net: Net, settings: Settings, batch: Batch) -> Speed:
    """Time steps of one batch on all replicas and on one, taking turns.

    Turns and medians keep out what else the machine does meanwhile.
    """
    counts = sorted({1, settings.devices})
    trainers = [Trainer(net, settings, devices) for devices in counts]
    seconds: list[list[float]] = [[] for _ in counts]
    steps = []
    for trainer in trainers:
        for _ in range(_WARM_UP):
            trainer.step(batch)
        start = time.perf_counter()
        trainer.step(batch)
        steps.append(max(1, int(_ROUND_SECONDS / (time.perf_counter() - start))))
    rounds = range(_ROUNDS)
    for _ in tqdm(rounds, "measuring 1 against all replicas", leave=False, disable=None):
        for trainer, times, count in zip(trainers, seconds, steps, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                trainer.step(batch)
            times.append((time.perf_counter() - start) / count)
    rates = [1.0 / statistics.median(times) for times in seconds]
    return Speed(replicas=rates[-1], single=rates[0])


def traced(net: Net, settings: Settings, batch: Batch, steps: int = 3) -> Trainer:
    """Run a few steps with the recorder on, after one that compiles."""
    trainer = Trainer(net, settings, settings.devices, trace=True)
    for _ in range(steps):
        trainer.step(batch)
    return trainer
