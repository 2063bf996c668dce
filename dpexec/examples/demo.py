"""``dpexec demo``: trains an example, says how well and how fast, and leaves pictures."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from dpexec import viz
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.places import available_cpus
from dpexec.engine.trace import save
from dpexec.examples import curve
from dpexec.examples.example import Example
from dpexec.examples.training import Settings, Speed, Trainer, batches, measure, traced, train


@dataclass(frozen=True)
class Outcome:
    """What a demo found, and the files it wrote."""

    example: Example
    settings: Settings
    losses: list[float]
    metric: float
    speed: Speed
    graph: Path
    trace: Path

    def to_json(self) -> dict[str, Any]:
        """Return what ``dpexec demo --json`` prints."""
        return {
            "example": self.example.name,
            "devices": self.settings.devices,
            "mode": self.settings.mode.name,
            "scheduler": self.settings.scheduler,
            "steps": len(self.losses),
            self.example.metric_name: self.metric,
            "steps_per_second": self.speed.replicas,
            "speedup": self.speed.speedup,
            "graph": str(self.graph),
            "trace": str(self.trace),
        }


def find(name: str) -> Example:
    """Return the example of that name."""
    example = importlib.import_module(f"dpexec.examples.{name}").EXAMPLE
    assert isinstance(example, Example)
    return example


def run(example: Example, settings: Settings, out: Path) -> Outcome:
    """Train an example and print what comes of it.

    Args:
        example: What to train.
        settings: On what.
        out: Folder for the files; made when it is missing.

    Raises:
        MissingPackageError: The data come with a package that is not installed.
    """
    out.mkdir(parents=True, exist_ok=True)
    data, net = example.load(), example.build()
    epochs = settings.epochs or example.epochs
    held_out = len(next(iter(data.test.values())))
    _say("demo", f"{example.name}: {example.summary}")
    _say("data", f"{data.samples} samples and {held_out} held-out ones of {data.source}")
    where = "workers of a cluster" if settings.scheduler == "distributed" else "CPU threads"
    _say(
        "devices",
        f"{settings.devices} on {where}, {settings.mode.name}, batches of "
        f"{example.batch_size}, dask scheduler {settings.scheduler!r}",
    )
    trainer = Trainer(net, settings, settings.devices)
    losses = train(example, data, trainer, epochs)
    metric = trainer.evaluate(data.test)
    _say(example.metric_name, f"{metric:.4f} on the held-out samples after {len(losses)} steps")
    batch = next(batches(data, example.batch_size, 1))
    speed = measure(net, settings, batch)
    _say("speed", _compare(speed, settings.devices))
    recorded = traced(net, settings, batch)
    graph = viz.draw(recorded.graph).save(out / f"{example.name}-graph.svg")
    trace = save(recorded.trace, out / f"{example.name}-trace.json")
    picture = out / f"{example.name}-loss.png"
    if curve.png(losses, f"{example.name}, {settings.devices} replicas", picture):
        _say("curve", str(picture))
    else:
        _say("curve", "training loss\n" + curve.terminal(losses))
    _say("graph", str(graph))
    _say("trace", f"{trace} (open it in https://ui.perfetto.dev)")
    return Outcome(example, settings, losses, metric, speed, graph, trace)


def _compare(speed: Speed, devices: int) -> str:
    steps = f"{speed.replicas:.1f} steps per second"
    if devices == 1:
        return f"{steps} with one replica"
    return (
        f"{steps} with {devices} replicas, {speed.single:.1f} with one on the same batch: "
        f"speed-up {speed.speedup:.2f}{_disturbed(available_cpus())}"
    )


def _disturbed(cpus: int) -> str:
    """What to think of a speed-up while other programs need the processors, too."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load <= 1.5 * cpus:  # the demo itself adds less than one per processor
        return ""
    return f" (disturbed: {load:.0f} threads wanted the {cpus} CPUs in the last minute)"


def _say(what: str, text: str) -> None:
    print(f"{what:<9} {text}", flush=True)
