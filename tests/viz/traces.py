"""Hand-made traces with their graphs, for the tests of the views of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dpexec.engine.trace import Event, Trace

_FLOPS = {"mul": 2 * 4**3, "mul_grad": 2 * 4**3}
"""Of operators on matrices of four rows and columns."""


class GraphFile:
    """A graph file, built one operator after another."""

    def __init__(self, devices: int, mode: str = "all_reduce") -> None:
        self.data = {
            "format": "dpexec.graph",
            "version": 1,
            "title": "hand-made",
            "mode": mode,
            "devices": [
                {"id": d, "place": "CPUPlace", "parallel_do": False} for d in range(devices)
            ],
            "vars": [],
            "nodes": [],
            "tasks": [],
        }
        self._latest: dict[tuple[str, int], int] = {}

    def var(self, name: str, device: int, shape: Sequence[int] = (4, 4)) -> int:
        size = 4
        for dim in shape:
            size *= dim
        self.data["vars"].append(
            {
                "name": name,
                "version": sum(
                    v["name"] == name and v["device"] == device for v in self.data["vars"]
                ),
                "device": device,
                "kind": "var",
                "shape": list(shape),
                "dtype": "float32",
                "bytes": None if -1 in shape else size,
                "persistable": name.endswith("w"),
            }
        )
        self._latest[name, device] = len(self.data["vars"]) - 1
        return self._latest[name, device]

    def op(
        self, name, device, ins=(), outs=(), role="forward", kind="compute", task=None, flops=None
    ) -> int:
        """Add an operator; ins and outs are names, or (name, device), or (name, device, shape)."""
        node = len(self.data["nodes"])
        places = [(v, device) if isinstance(v, str) else v for v in ins]
        inputs = [self._latest.get(tuple(p[:2])) for p in places]
        inputs = [
            self.var(*place) if found is None else found
            for found, place in zip(inputs, places, strict=True)
        ]
        outputs = [self.var(*((v, device) if isinstance(v, str) else v)) for v in outs]
        self.data["nodes"].append(
            {
                "id": node,
                "name": name,
                "kind": kind,
                "device": device,
                "role": role,
                "scope": "/",
                "layer": "fc_0",
                "line": "train.py:3",
                "inputs": inputs,
                "outputs": outputs,
                "task": task,
                "flops": _FLOPS.get(name) if flops is None else flops,
            }
        )
        return node

    def task(self, key: str, device: int | None, nodes: Sequence[int], after=()) -> None:
        for node in nodes:
            self.data["nodes"][node]["task"] = key
        self.data["tasks"].append(
            {"key": key, "device": device, "nodes": list(nodes), "after": list(after)}
        )


def two_replicas(mode: str = "all_reduce") -> GraphFile:
    """A forward and backward task per device, an all-reduce, an update per device."""
    graph = GraphFile(2, mode)
    tasks = []
    for d in range(2):
        nodes = [
            graph.op("mul", d, ["x", "w"], ["h"]),
            graph.op("mul_grad", d, ["x", "w", "h"], ["w@GRAD"], role="backward"),
        ]
        tasks.append(f"forward_backward_dev{d}-{d}")
        graph.task(tasks[-1], d, nodes)
    ends = [("w@GRAD", 0), ("w@GRAD", 1)]
    total = graph.op("all_reduce", None, ends, ends, role="collective", kind="all_reduce")
    graph.task("all_reduce-2", None, [total], tasks)
    for d in range(2):
        sgd = graph.op("sgd", d, ["w", "w@GRAD"], ["w"], role="optimize")
        graph.task(f"optimizer_dev{d}-{3 + d}", d, [sgd], [*tasks, "all_reduce-2"])
    return graph


def event(name, kind, device, key, start, stop, thread=0, node=None, step=0, **args) -> Event:
    return Event(name, kind, device, key, start, stop, thread, args, node, step)


def task(key, device, start, stop, thread=0, step=0) -> Event:
    return event(key, "task", device, key, start, stop, thread, step=step)


def trace(events, graph: GraphFile | None = None, memory=(), **meta) -> Trace:
    ordered = sorted(events, key=lambda e: (e.start, -e.stop))
    return Trace(tuple(ordered), meta, graph.data if graph else None, tuple(memory))


def looping() -> Trace:
    """A step of a loop that takes 10 seconds, 6 of them in the 3 operators of its rounds."""
    graph = GraphFile(1)
    graph.task("forward_dev0-0", 0, [graph.op("while", 0, ["x"], ["y"])])
    key = "forward_dev0-0"
    inner = [("mul", 1, 4), ("relu", 4, 5), ("mul", 6, 8)]
    events = [task(key, 0, 0, 10), event("while", "op", 0, key, 0, 10, node=0)]
    events += [event(name, "op", 0, key, at, end, inside="while") for name, at, end in inner]
    return trace(events, graph)


def straggling(steps: int = 1, seconds: float = 1.0) -> Trace:
    """Device 1 takes twice as long as device 0 for the same; a step takes 10 times `seconds`.

    Seconds 0 to 3 and 0 to 6: forward and backward; 6 to 7: all-reduce; 7 to 9: update of
    device 0, 7.5 to 10: of device 1, which had to wait for its thread to wake up.
    """
    events = []
    for step in range(steps):
        at = 10.0 * step

        def add(name, kind, device, key, start, stop, thread, node=None, at=at, step=step):
            start, stop = (at + start) * seconds, (at + stop) * seconds
            events.append(event(name, kind, device, key, start, stop, thread, node, step))

        for d, middle, end in ((0, 1, 3), (1, 2, 6)):
            key = f"forward_backward_dev{d}-{d}"
            add(key, "task", d, key, 0, end, d)
            add("mul", "op", d, key, 0, middle, d, 2 * d)
            add("mul_grad", "op", d, key, middle, end, d, 2 * d + 1)
        add("all_reduce-2", "task", None, "all_reduce-2", 6, 7, 0)
        add("all_reduce", "collective", None, "all_reduce-2", 6, 7, 0, 4)
        for d, start, end in ((0, 7, 9), (1, 7.5, 10)):
            key = f"optimizer_dev{d}-{3 + d}"
            add(key, "task", d, key, start, end, d)
            add("sgd", "op", d, key, start, end, d, 5 + d)
    return trace(events, two_replicas(), num_threads=2, scheduler="threads", cpus=2)


def warming_up() -> Trace:
    """Four steps as in `straggling`, of which the first one takes five times as long."""
    fast = straggling(4)
    slow = [replace(e, start=e.start * 5 - 50, stop=e.stop * 5 - 50) for e in fast if not e.step]
    return replace(fast, events=(*slow, *(e for e in fast if e.step)))


def in_seconds(text):
    """A difference of times as views write it, such as "−1.5 ms"."""
    sign, number, unit = re.match(r"([+−]?)([\d.]+) (s|ms)", text).groups()
    return (-1 if sign == "−" else 1) * float(number) / {"s": 1, "ms": 1000}[unit]
