"""Graph files: an SSA graph as plain JSON values, for views and other tools.

``SSAGraph.to_json`` and ``Plan.to_json`` return the result of `describe`. The same graph gives the
same text in every process, whatever the hash seed. Ids are positions in ``vars`` or ``nodes``:

- ``title``, ``mode`` ("all_reduce" or "reduce")
- ``devices``: id, place, whether it belongs to a ParallelDo
- ``vars``: name, version, device, kind ("var"; "dummy" and "control" only keep an order), shape,
  dtype, bytes, persistable
- ``nodes``: id, name, kind, device (null: all), role, scope (the user's name scope), layer, line
  (where the user made it), inputs, outputs, task, flops (floating point operations) and bytes that
  it reads and writes (null: unknown), parts and expression if it was fused, and body if it runs
  blocks: name, output, depth, reads, writes and line of each operator in them
- ``tasks`` of a plan: key, device, nodes, after (keys)
- ``lines``: the user's statements, by ``line``
- ``listings``: texts of functions. ``declarations`` maps an operator type to the number of the
  function that declares it. In a trace, ``kernels`` of a node are the numbers of the functions that
  computed it; without them, its declaration did
- ``passes`` that were recorded: name, modified, before, after, added, removed, changed
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from dpexec.engine.core.dtypes import dtype_name
from dpexec.engine.graph.costs import bytes_of, flops_of
from dpexec.engine.graph.listings import texts_of
from dpexec.engine.graph.parts import body_of, expression_of, line_of, parts_of
from dpexec.engine.graph.ssa import OpNode, SSAGraph, VarNode
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.spec import Spec
from dpexec.engine.ir.variable import Variable

__all__ = ["FORMAT", "VERSION", "TaskLike", "describe", "task_key"]

FORMAT = "dpexec.graph"
VERSION = 1

_PARAMETER = re.compile(r"\.(w|b)_\d+(_\w+)?$")


class TaskLike(Protocol):
    """The fields of a plan's task that graph files need."""

    id: int
    key: tuple[str, int]
    device: int | None
    nodes: list[OpNode]
    after: list[int]


def task_key(task: TaskLike) -> str:
    """The name of a task, different for every task of a plan.

    Args:
        task: a task of a plan.
    """
    return f"{task.key[0]}-{task.id}"


def describe(
    graph: SSAGraph,
    tasks: Sequence[TaskLike] | None = None,
    passes: Sequence[Mapping[str, Any]] | None = None,
    specs: Sequence[Mapping[str, Spec]] | None = None,
    title: str | None = None,
) -> dict[str, Any]:
    """A graph as plain values that JSON can hold.

    Args:
        graph: the graph.
        tasks: tasks of a plan that was made from the graph.
        passes: records of what each pass did.
        specs: shapes and types per device for a known batch; without them, the declared shapes
            are used, with -1 for an unknown dimension.
        title: a heading; None makes one of the counts.

    Returns:
        Format, title, mode, devices, vars and nodes (a position is an id), texts, and with a plan
        its tasks. ``bytes`` of a variable is None when a dimension is unknown; ``parts`` of a node
        are there if it was fused from several operators, ``body`` if it runs blocks.
    """
    facts = _Variables(graph, specs)
    layers = _Layers(graph)
    task_of = {node: task_key(task) for task in tasks or () for node in task.nodes}
    inner = {device for devices in graph.bodies.values() for device in devices}
    data: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "title": title or _title(graph),
        "mode": graph.mode,
        "devices": [
            {"id": number, "place": str(place), "parallel_do": number in inner}
            for number, place in enumerate(graph.places)
        ],
        "vars": [facts.of(var) for var in graph.vars],
        "nodes": [
            _node(node, layers.of(node), task_of.get(node)) | facts.costs(node)
            for node in graph.ops
        ],
    }
    data |= texts_of((node.op for node in graph.ops), _names(data["nodes"]))
    if tasks is not None:
        data["tasks"] = _tasks(tasks)
    if passes is not None:
        data["passes"] = [dict(record) for record in passes]
    return data


def _node(node: OpNode, layer: str, task: str | None) -> dict[str, Any]:
    parts, body, expression = parts_of(node), body_of(node.op), expression_of(node)
    return {
        "id": node.id,
        "name": node.name,
        "kind": node.kind,
        "device": node.device,
        "role": node.role,
        "scope": _scope(node.op),
        "layer": layer,
        "line": line_of(node.op),
        "inputs": [var.id for var in node.inputs],
        "outputs": [var.id for var in node.outputs],
        "task": task,
        **({"parts": parts} if len(parts) > 1 else {}),
        **({"expression": expression} if expression else {}),
        **({"body": body} if body else {}),
    }


def _names(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Operator types of nodes, of the operators fused into them, and of the bodies they run."""
    for node in nodes:
        yield from (node["name"], *node.get("parts", ()))
        yield from (inner["name"] for inner in node.get("body", ()))


def _tasks(tasks: Sequence[TaskLike]) -> list[dict[str, Any]]:
    keys = {task.id: task_key(task) for task in tasks}
    return [
        {
            "key": keys[task.id],
            "device": task.device,
            "nodes": [node.id for node in task.nodes],
            "after": [keys[number] for number in task.after],
        }
        for task in tasks
    ]


def _title(graph: SSAGraph) -> str:
    devices = len(graph.places)
    kinds = sorted({node.name for node in graph.ops if node.is_collective})
    parts = [f"{devices} device" + "s" * (devices != 1), f"{len(graph.ops)} operators"]
    return " · ".join(["SSA graph", *parts, *([" + ".join(kinds)] if kinds else [])])


def _scope(op: Operator | None) -> str:
    return "/" if op is None else str(op.attrs.get(roles.NAME_SCOPE) or "/")


class _Variables:
    """Shapes and types of the variables, looked up once per name and device."""

    def __init__(self, graph: SSAGraph, specs: Sequence[Mapping[str, Spec]] | None) -> None:
        self.block = graph.program.global_block()
        self.specs = specs
        self.known: dict[tuple[str, int], dict[str, Any]] = {}
        self.found: dict[tuple[int, str, int], Spec | None] = {}
        self.costs_of: dict[tuple[int, int], dict[str, int | None]] = {}
        self.alike: dict[int, int] = {}

    def of(self, var: VarNode) -> dict[str, Any]:
        head = {"name": var.name, "version": var.version, "device": var.device, "kind": var.kind}
        if var.kind != "var":
            return {**head, "shape": [], "dtype": "", "bytes": 0, "persistable": False}
        place = (var.name, var.device)
        if place not in self.known:
            self.known[place] = self._facts(var)
        return {**head, **self.known[place]}

    def costs(self, node: OpNode) -> dict[str, int | None]:
        """Floating point operations and bytes of an operator, by its declared cost formulas."""
        op, device = node.op, node.device
        if op is None or device is None or not node.does.computes:
            return {"flops": None, "bytes": None}

        place = id(op), self._like(device)  # several devices mostly have the same shapes
        if place not in self.costs_of:
            names = {*op.input_arg_names, *op.output_arg_names}
            specs = {name: self._known(op, name, device) for name in names}
            found = {"flops": flops_of(op, specs.get), "bytes": bytes_of(op, specs.get)}
            self.costs_of[place] = found
        return self.costs_of[place]

    def _like(self, device: int) -> int:
        """The first device whose variables have the same shapes and types."""
        if device not in self.alike:
            sides = self.specs or ()
            mine = sides[device] if device < len(sides) else None
            equal = (n for n, side in enumerate(sides[:device]) if side == mine)
            self.alike[device] = -1 if mine is None else next(equal, device)
        return self.alike[device]

    def _known(self, op: Operator, name: str, device: int) -> Spec | None:
        """Of what an operator reads or writes."""
        place = (id(op.block), name, device)
        if place not in self.found:
            declared = op.block._find_var_recursive(name)
            self.found[place] = self._spec(declared, name, device)
        return self.found[place]

    def _spec(self, declared: Variable | None, name: str, device: int) -> Spec | None:
        batch = self.specs[device] if self.specs and device < len(self.specs) else {}
        spec = batch.get(name)
        return declared.spec if spec is None and declared is not None else spec

    def _facts(self, var: VarNode) -> dict[str, Any]:
        declared = self.block.vars.get(var.name)
        if declared is None:  # a variable of the body of a ParallelDo
            nodes = [*([] if var.writer is None else [var.writer]), *var.readers]
            ops = [node.op for node in nodes if node.op is not None]
            declared = ops[0].block._find_var_recursive(var.name) if ops else None
        spec = self._spec(declared, var.name, var.device)
        persistable = declared is not None and bool(declared.persistable)
        if spec is None:
            return {"shape": [], "dtype": "", "bytes": None, "persistable": persistable}
        return {
            "shape": list(spec.shape),
            "dtype": _dtype(spec),
            "bytes": spec.nbytes,
            "persistable": persistable,
        }


def _dtype(spec: Spec) -> str:
    try:
        return dtype_name(spec.dtype)
    except (KeyError, TypeError, ValueError):
        return spec.kind.name.lower()


class _Layers:
    """The layer of each node: the part of its variables' names before the first dot.

    A parameter's collectives and update belong to the layer that reads the parameter first in the
    forward pass; a gradient belongs to the layer of its variable. A loop or branch that goes on
    with a variable of another operator is a layer of its own: it would hide in that of its state.
    """

    def __init__(self, graph: SSAGraph) -> None:
        self.of_parameter: dict[str, str] = {}
        self.known: dict[int, str] = {}
        self.blocks = self._blocks(graph)
        for node in graph.ops:
            if node.op is None or node.role != "forward":
                continue
            for var in node.inputs:
                if var.kind == "var" and var.writer is None and var.name not in self.of_parameter:
                    self.of_parameter[var.name] = self._of_operator(node, node.op)

    def _blocks(self, graph: SSAGraph) -> dict[int, str]:
        """By number of a block: the layer of the operator that runs it, if that has its own."""
        ops = [node.op for node in graph.ops if node.op is not None and node.role == "forward"]
        plain = {_prefix(_first(op.writes)) for op in ops if not op.bodies}
        found: dict[int, str] = {}
        for op in ops:
            if op.bodies and _prefix(_first(op.writes)) in plain:
                found.setdefault(op.bodies[0].idx, f"{op.type}_{len(found)}")
        return found

    def of(self, node: OpNode) -> str:
        op = node.op
        if op is None:
            names = [var.name for var in node.inputs if var.kind == "var"]
            return self._of_gradient(_first(names))
        if id(op) not in self.known:
            self.known[id(op)] = self._of_operator(node, op)
        return self.known[id(op)]

    def _of_operator(self, node: OpNode, op: Operator) -> str:
        if op.bodies:
            body = op.bodies[0]
            number = body.forward_block_idx if body.forward_block_idx >= 0 else body.idx
            if number in self.blocks:
                return self.blocks[number]
        if node.role == "optimize" and op.role_var:
            return self._of_gradient(op.role_var[0])
        if node.role == "lr_sched":
            return "learning_rate"
        if node.role == "backward":
            grads = [name for name in op.needs if roles.GRAD_SUFFIX in name]
            names = grads or [n for n in op.writes if roles.GRAD_SUFFIX in n]
            if names:
                return _prefix(names[0])
        return _prefix(_first(op.writes) or _first(op.needs))

    def _of_gradient(self, name: str) -> str:
        source = name.partition(roles.GRAD_SUFFIX)[0]
        return self.of_parameter.get(source) or _prefix(source)


def _first(names: Iterable[str]) -> str:
    return next(iter(roles.present(names)), "")


def _prefix(name: str) -> str:
    source = roles.original_name(name.partition(roles.GRAD_SUFFIX)[0])
    return _PARAMETER.sub("", source).partition(".")[0]
