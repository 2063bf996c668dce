"""Nodes and container of the SSA graph.

An operator node runs once per step; a variable node is one version of a name on one device, has
at most one writer and any number of readers. Dependencies without data (write after read) are
variable nodes too: ``dummy`` between replicated operators, ``control`` where the program itself
orders two operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.places import Place
from dpexec.engine.graph.drawable import Drawable
from dpexec.engine.graph.kinds import COMPUTE, Kind
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program

__all__ = ["OpNode", "SSAGraph", "VarNode"]


@dataclass(eq=False, slots=True)
class VarNode:
    """One version of a variable on one device.

    Args:
        id: position in ``SSAGraph.vars``.
        name: the variable's name; empty for a dummy.
        version: counted from 0 per name and device.
        device: index of the device.
        kind: ``"var"``, ``"dummy"`` or ``"control"``.
        shape: as declared in the program, -1 where unknown.
    """

    id: int
    name: str
    version: int
    device: int
    kind: str = "var"
    shape: tuple[int, ...] = ()
    writer: OpNode | None = None
    readers: list[OpNode] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}.v{self.version} on device {self.device}>"


@dataclass(eq=False, slots=True)
class OpNode:
    """One operator on one device, or a collective over several.

    Args:
        id: position in ``SSAGraph.ops``.
        does: its kind.
        name: label in views: the operator type, ``"Scale LossGrad"``, ``"fused_all_reduce"`` ...
        device: where it runs; None for a collective that belongs to all.
        op: the operator of the program; None for collectives of none.
        role: ``"forward"``, ``"backward"``, ``"optimize"``, ``"lr_sched"`` or ``"collective"``.
        body: number of the block of the ParallelDo that it is a part of; 0 for none.
    """

    id: int
    does: Kind
    name: str
    device: int | None
    role: str
    op: Operator | None = None
    body: int = 0
    inputs: list[VarNode] = field(default_factory=list)
    outputs: list[VarNode] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The name of its kind."""
        return self.does.name

    @property
    def is_collective(self) -> bool:
        """Whether values of several devices meet here."""
        return self.does.is_collective

    def __repr__(self) -> str:
        where = "all devices" if self.device is None else f"device {self.device}"
        return f"<{self.name} on {where}>"


class SSAGraph(Drawable):
    """A program replicated over devices.

    Args:
        program: what was replicated.
        places: the devices: first those that run the whole program, then those of ParallelDos.
        mode: how gradients are aggregated, one of ``MODES``.
        bodies: the devices of each ParallelDo, by the number of its block.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.layers.scale(fluid.data("x", [None, 1]), 2.0)
        >>> places = fluid.cpu_places(2)
        >>> compiled = fluid.CompiledProgram(main).with_data_parallel(places=places)
        >>> exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones([2, 1], "float32")}
        >>> _ = exe.run(compiled, feed=feed, fetch_list=[y])
        >>> [node.name for node in compiled.graph.ops if node.name == "scale"]  # one a device
        ['scale', 'scale']
    """

    def __init__(
        self,
        program: Program,
        places: list[Place],
        mode: str,
        bodies: Mapping[int, list[int]] | None = None,
    ) -> None:
        self.program = program
        self.places = places
        self.mode = mode
        self.bodies = dict(bodies or {})
        self.pre_fetched: dict[int, list[str]] = {}
        """Variables whose rows are fed to the devices of a ParallelDo, by number of its block."""
        self.ops: list[OpNode] = []
        """In a topological order."""
        self.vars: list[VarNode] = []
        self.versions: list[dict[str, list[VarNode]]] = [{} for _ in places]
        self.removed: frozenset[str] = frozenset()
        """Variables that the program computes, but the graph does not, since passes rewrote it."""
        self.owners: dict[str, int] = {}
        """In Reduce mode: the device that updates a parameter, by parameter and gradient name."""
        self.trainers = 1
        """Processes that train together, each with replicas of its own: sums go over all."""

    @property
    def is_training(self) -> bool:
        """Whether it has gradients."""
        return any(node.role == "backward" for node in self.ops)

    @property
    def replicas(self) -> range:
        """The devices that run the whole program."""
        if not self.bodies:
            return range(len(self.places))
        return range(min(devices[0] for devices in self.bodies.values()))

    def holders(self, name: str, devices: Sequence[int]) -> Sequence[int]:
        """Those of some devices that have a variable; all of them if no replica's operators use it.

        In Reduce mode only the owner of a parameter has its moments, as in Paddle.
        """
        used = any(name in self.versions[device] for device in self.replicas)
        return [d for d in devices if name in self.versions[d]] if used else devices

    def latest(self, name: str, device: int) -> VarNode | None:
        """The newest version of a variable on a device.

        Args:
            name: of the variable.
            device: its number.

        Returns:
            The version; None if the device never sees the variable.
        """
        found = self.versions[device].get(name)
        return found[-1] if found else None

    # ---- construction

    def add_op(
        self,
        does: Kind,
        name: str,
        device: int | None,
        role: str,
        op: Operator | None = None,
        body: int = 0,
    ) -> OpNode:
        """Append an operator node without edges.

        Args:
            does: its kind.
            name: label in views.
            device: where it runs; None for all devices.
            role: as for :class:`OpNode`.
            op: the operator of the program; None for collectives of none.
            body: number of the block of the ParallelDo that it is a part of; 0 for none.

        Returns:
            The node.
        """
        node = OpNode(len(self.ops), does, name, device, role, op, body)
        self.ops.append(node)
        return node

    def add_compute(self, op: Operator, device: int, body: int = 0) -> OpNode:
        """Append a copy of an operator of the program, on the newest versions of its variables.

        Args:
            op: the operator.
            device: where the copy runs.
            body: number of the block of the ParallelDo that it is a part of; 0 for none.

        Returns:
            The node.
        """
        node = self.add_op(COMPUTE, op.type, device, role_of(op), op, body)
        for name in roles.present(op.reads):
            self.read(node, name, device)
        for name in roles.present(op.writes):
            self.write(node, name, device)
        return node

    def add_collective(
        self,
        does: Kind,
        sources: Iterable[tuple[str, int]],
        targets: Iterable[tuple[str, int]],
        op: Operator | None = None,
        body: int = 0,
    ) -> OpNode:
        """Append a collective that reads and writes variables of several devices.

        Args:
            does: its kind.
            sources: name and device of each variable that it reads.
            targets: name and device of each variable that it writes.
            op: the operator of the program behind it.
            body: number of the block of the ParallelDo that it is a part of.

        Returns:
            The node.
        """
        sources, targets = list(sources), list(targets)
        home = {"source": sources[0][1], "target": targets[0][1], "all": None}[does.runs_on]
        node = self.add_op(does, does.name, home, "collective", op, body)
        for name, device in sources:
            self.read(node, name, device)
        for name, device in targets:
            self.write(node, name, device)
        return node

    def _add_var(self, name: str, version: int, device: int, kind: str, op: OpNode) -> VarNode:
        block = self.program.global_block() if op.op is None else op.op.block
        declared = block._find_var_recursive(name)
        shape = () if declared is None else declared.shape
        var = VarNode(len(self.vars), name, version, device, kind, shape)
        self.vars.append(var)
        return var

    def read(self, node: OpNode, name: str, device: int, kind: str = "var") -> VarNode:
        """Let a node read the newest version of a variable.

        Args:
            node: the reader.
            name: the variable's name.
            device: the device of the version.
            kind: kind of the version if it has to be made, see :class:`VarNode`.

        Returns:
            The version.
        """
        versions = self.versions[device].setdefault(name, [])
        if not versions:
            versions.append(self._add_var(name, 0, device, kind, node))
        var = versions[-1]
        if var not in node.inputs:
            var.readers.append(node)
            node.inputs.append(var)
        return var

    def write(self, node: OpNode, name: str, device: int, kind: str = "var") -> VarNode:
        """Let a node write a new version of a variable.

        Args:
            node: the writer.
            name: the variable's name.
            device: the device of the version.
            kind: kind of the version, see :class:`VarNode`.

        Returns:
            The version.
        """
        versions = self.versions[device].setdefault(name, [])
        var = self._add_var(name, len(versions), device, kind, node)
        versions.append(var)
        var.writer = node
        node.outputs.append(var)
        return var

    def order(self, before: OpNode, after: OpNode) -> VarNode:
        """Make a node wait for another one without passing data.

        Args:
            before: the node that ends first.
            after: the node that waits.

        Returns:
            The dummy variable between them.
        """
        device = before.device if before.device is not None else (after.device or 0)
        var = self._add_var("", 0, device, "dummy", before)
        var.writer = before
        before.outputs.append(var)
        var.readers.append(after)
        after.inputs.append(var)
        return var

    def renumber(self) -> None:
        """Number the nodes again after a pass removed some."""
        self.vars = [v for v in self.vars if v.readers or v.writer is not None]
        for index, op in enumerate(self.ops):
            op.id = index
        for index, var in enumerate(self.vars):
            var.id = index

    # ---- views

    def counts(self) -> dict[str, Any]:
        """The number of nodes per kind, named as in the tables of the documentation."""
        edges = sum(len(op.inputs) + len(op.outputs) for op in self.ops)
        return {
            "ops": Counter(op.name for op in self.ops),
            "vars": len(self.vars),
            "dummy": sum(var.kind == "dummy" for var in self.vars),
            "control": sum(var.kind == "control" for var in self.vars),
            "versions": Counter(var.version for var in self.vars if var.kind != "dummy"),
            "nodes": len(self.ops) + len(self.vars),
            "edges": edges,
        }

    def __repr__(self) -> str:
        return (
            f"<SSAGraph: {len(self.places)} devices, {self.mode}, {len(self.ops)} operators, "
            f"{len(self.vars)} variables>"
        )

    def to_json(self) -> dict[str, Any]:
        """The graph as plain values: the content of a graph file."""
        from dpexec.engine.graph.describe import describe

        return describe(self)


def role_of(op: Operator) -> str:
    """The role of a program's operator as views show it."""
    return roles.role_name(op.role)
