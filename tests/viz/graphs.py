"""Hand-made graphs for the tests of the pictures, as graph files have them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Var:
    name: str
    device: int
    shape: tuple[int, ...] = (-1, 4)
    kind: str = "var"
    version: int = 0


@dataclass(eq=False)
class Op:
    id: int
    name: str
    kind: str
    device: int | None
    role: str
    inputs: list[Var] = field(default_factory=list)
    outputs: list[Var] = field(default_factory=list)


@dataclass
class Graph:
    ops: list[Op] = field(default_factory=list)
    latest: dict[tuple[str, int], Var] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """The content of its graph file."""
        variables = dict.fromkeys(v for op in self.ops for v in (*op.inputs, *op.outputs))
        number = {var: k for k, var in enumerate(variables)}
        devices = sorted({var.device for var in variables})
        return {
            "format": "dpexec.graph",
            "version": 1,
            "title": f"{len(devices)} devices, {len(self.ops)} operators",
            "mode": "all_reduce",
            "devices": [{"id": d, "place": "CPUPlace", "parallel_do": False} for d in devices],
            "vars": [
                {
                    **vars(var),
                    "shape": list(var.shape),
                    "dtype": "float32",
                    "bytes": None if -1 in var.shape else 4 * math.prod(var.shape),
                    "persistable": ".w_" in var.name or ".b_" in var.name,
                }
                for var in variables
            ],
            "nodes": [
                {
                    **{
                        name: getattr(op, name) for name in ("id", "name", "kind", "device", "role")
                    },
                    "scope": "/",
                    "layer": (op.outputs or op.inputs)[0].name.split(".")[0].split("@")[0],
                    "line": None,
                    "inputs": [number[var] for var in op.inputs],
                    "outputs": [number[var] for var in op.outputs],
                    "task": None,
                }
                for op in self.ops
            ],
        }

    def var(self, name: str, device: int) -> Var:
        return self.latest.setdefault((name, device), Var(name, device))

    def add(self, name, role, device, ins=(), outs=(), kind="compute", shape=(-1, 4)) -> Op:
        """Append an op; ins and outs are names, or (name, device) for a collective."""
        where = [(v, device) if isinstance(v, str) else v for v in ins]
        op = Op(len(self.ops), name, kind, device, role, [self.var(*w) for w in where])
        for v in outs:
            key = (v, device) if isinstance(v, str) else v
            old = self.latest.get(key)
            new = Var(*key, shape=shape, version=old.version + 1 if old else 0)
            self.latest[key] = new
            op.outputs.append(new)
        self.ops.append(op)
        return op


def mlp(devices: int = 2, layers: int = 2, reduce: bool = False) -> Graph:
    """A multi-layer perceptron with SGD, replicated."""
    graph = Graph()
    everywhere = range(devices)
    for d in everywhere:
        x = "x"
        for k in range(layers):
            w, b = f"fc_{k}.w_0", f"fc_{k}.b_0"
            graph.add("mul", "forward", d, [x, w], [f"fc_{k}.tmp_0"], shape=(-1, 200))
            graph.add("elementwise_add", "forward", d, [f"fc_{k}.tmp_0", b], [f"fc_{k}.tmp_1"])
            graph.add("relu", "forward", d, [f"fc_{k}.tmp_1"], [f"fc_{k}.tmp_2"])
            x = f"fc_{k}.tmp_2"
        graph.add("softmax_with_cross_entropy", "forward", d, [x, "y"], ["softmax_0", "loss"])
        graph.add("mean", "forward", d, ["loss"], ["mean_0.tmp_0"], shape=(1,))
        graph.add(
            "Scale LossGrad", "backward", d, [], ["mean_0.tmp_0@GRAD"], "scale_loss_grad", (1,)
        )
        graph.add("mean_grad", "backward", d, ["loss", "mean_0.tmp_0@GRAD"], ["loss@GRAD"])
        graph.add(
            "softmax_with_cross_entropy_grad",
            "backward",
            d,
            ["softmax_0", "y", "loss@GRAD"],
            [x + "@GRAD"],
        )
    owner = 0
    for k in reversed(range(layers)):
        tmp = f"fc_{k}.tmp_"
        before = f"fc_{k - 1}.tmp_2" if k else "x"
        for d in everywhere:
            graph.add("relu_grad", "backward", d, [tmp + "2", tmp + "2@GRAD"], [tmp + "1@GRAD"])
            graph.add(
                "elementwise_add_grad",
                "backward",
                d,
                [tmp + "1@GRAD"],
                [tmp + "0@GRAD", f"fc_{k}.b_0@GRAD"],
            )
            outs = [f"fc_{k}.w_0@GRAD"] + ([before + "@GRAD"] if k else [])
            graph.add("mul_grad", "backward", d, [before, f"fc_{k}.w_0", tmp + "0@GRAD"], outs)
        for grad in (f"fc_{k}.b_0@GRAD", f"fc_{k}.w_0@GRAD"):
            ins = [(grad, d) for d in everywhere]
            if reduce:
                graph.add("reduce", "collective", None, ins, [(grad, owner)], "reduce", (784, 200))
                owner = (owner + 1) % devices
            elif devices > 1:
                graph.add("all_reduce", "collective", None, ins, ins, "all_reduce", (784, 200))
    owner = 0
    for k in reversed(range(layers)):
        for p in (f"fc_{k}.b_0", f"fc_{k}.w_0"):
            for d in [owner] if reduce else everywhere:
                graph.add("sgd", "optimize", d, [p, p + "@GRAD", "learning_rate_0"], [p])
            if reduce:
                outs = [(p, d) for d in everywhere if d != owner]
                graph.add("broadcast", "collective", None, [(p, owner)], outs, "broadcast")
                owner = (owner + 1) % devices
    return graph
