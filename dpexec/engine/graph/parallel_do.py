"""ParallelDo in the SSA graph: its body is expanded into nodes on its devices.

The enclosing program runs on device 0. The rows (or sequences) of inputs are split, and parameters
are broadcast (CPUs share them, so nothing is copied). The operators of the body run once per
device, and the rows of outputs are merged. The gradient goes backwards: rows of the outputs'
gradients are split, rows of the inputs' gradients are merged, and parameters' gradients are reduced
in the order of the devices, or all-reduced if every device has its own copy of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.lod import lod_name
from dpexec.engine.core.places import CPUPlace, CUDAPlace, Place, cpu_places, cuda_places
from dpexec.engine.graph.kinds import ALL_REDUCE, BROADCAST, MERGE, REDUCE, SPLIT, Kind
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator, op_error
from dpexec.engine.ir.program import Program

__all__ = ["ParallelDos", "inner_devices", "shares_memory"]


def inner_devices(
    program: Program, places: Sequence[Place]
) -> tuple[list[Place], dict[int, list[int]]]:
    """All devices of a program, and those of each ParallelDo by the number of its block.

    ParallelDos with the same list of places share devices, unless they need different values of a
    variable there: one takes its rows and the other the whole, or the output of one is an input of
    the other.

    Args:
        program: the program.
        places: the devices of the program outside ParallelDos.

    Raises:
        EnforceNotMet: a ParallelDo runs on several replicas, or has no device.
        RuntimeError: a GPU is missing.
    """
    everywhere = list(places)
    bodies: dict[int, list[int]] = {}
    groups: list[_Group] = []
    for op in parallel_dos(program):
        if len(places) > 1:
            raise op_error(op, f"it cannot run on {len(places)} replicas of the program", {})
        wanted = _Group(list(_places(op, places[0])), len(everywhere))
        group = next((g for g in groups if g.places == wanted.places and g.fits(op)), None)
        if group is None:
            group = wanted
            groups.append(group)
            everywhere += group.places
        group.add(op)
        bodies[op.attrs["sub_block"].idx] = group.devices
    return everywhere, bodies


@dataclass
class _Group:
    """Devices that several ParallelDos share, and the variables on these devices."""

    places: list[Place]
    first: int
    rows: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)

    @property
    def devices(self) -> list[int]:
        return list(range(self.first, self.first + len(self.places)))

    def fits(self, op: Operator) -> bool:
        rows, whole = set(op.inputs["inputs"]), set(op.inputs.get("parameters", []))
        clash = (self.rows & whole) | (self.whole & rows) | (self.made & (rows | whole))
        return not clash

    def add(self, op: Operator) -> None:
        self.rows.update(op.inputs["inputs"])
        self.whole.update(op.inputs.get("parameters", []))
        self.made.update(op.outputs["outputs"])


def parallel_dos(program: Program) -> list[Operator]:
    """The operators of a program that divide a batch among devices."""
    return [op for op in program.global_block().ops if op.type == "parallel_do"]


def _places(op: Operator, outer: Place) -> Sequence[Place]:
    """The devices of a ParallelDo, from its ``get_places`` operator."""
    name = op.inputs["places"][0]
    source = next((o for o in op.block.ops if name in o.output_arg_names), None)
    if source is None or source.type != "get_places":
        raise op_error(op, f"its places {name} are not made by get_places", {})
    kind, count = source.attrs["device_type"], source.attrs["device_count"]
    places: Sequence[Place]
    if kind == "CUDA" or (kind == "AUTO" and isinstance(outer, CUDAPlace)):
        ids = source.attrs.get("device_ids") or range(count)
        places = [CUDAPlace(number) for number in ids] if count else cuda_places()
    else:
        places = cpu_places(count or None)
    if not places:
        raise op_error(source, "Cannot indicate CPU device count: CPU_NUM is 0", {})
    if op.attrs.get("use_nccl") and not all(isinstance(place, CUDAPlace) for place in places):
        raise op_error(op, "NCCL only supports cuda place: leave use_nccl False", {})
    return places


def shares_memory(program: Program, places: Sequence[Place]) -> bool:
    """Whether all devices share one copy of the parameters: CPUs without copies of their own."""
    everywhere, _ = inner_devices(program, places)
    cpus = all(isinstance(place, CPUPlace) for place in everywhere)
    return len(everywhere) == 1 or (cpus and not _kept_variables(program))


def _kept_variables(program: Program) -> list[str]:
    """The persistable variables that every device keeps a copy of."""
    ops = parallel_dos(program)
    if not any(op.attrs.get("keep_parameters") for op in ops):
        return []
    variables = program.global_block().vars
    names = dict.fromkeys(name for op in ops for name in op.inputs.get("parameters", []))
    return [name for name in names if variables[name].persistable]


def _updates(block: Block, names: Sequence[str]) -> set[Operator]:
    """The operators of optimizers and schedules that lead to new values of variables."""
    wanted = set(names)
    found: set[Operator] = set()
    for op in reversed(block.ops):
        if op.role & (roles.OPTIMIZE | roles.LR_SCHED) and wanted.intersection(op.writes):
            found.add(op)
            wanted.update(op.reads)
    return found


class ParallelDos:
    """Expands the operators of ParallelDo.

    Args:
        graph: the graph that gets the nodes.
        bring: broadcasts a variable's newest value from the one device that has it.
        shared_memory: whether all devices use the same persistable variables.
    """

    def __init__(
        self, graph: SSAGraph, bring: Callable[[str, list[int]], None], shared_memory: bool
    ) -> None:
        self.graph = graph
        self.block = graph.program.global_block()
        self.bring = bring
        self.kept = _kept_variables(graph.program)
        """Variables that every device keeps a copy of."""
        self.updates = _updates(self.block, self.kept)
        """What runs on all devices, to update their copies."""
        self.stored_everywhere = shared_memory or bool(self.kept)

    def expand(self, op: Operator, home: dict[str, int]) -> None:
        """Append the nodes of ``op``, if it belongs to a ParallelDo.

        Args:
            op: an operator of the global block.
            home: maps variables whose newest value is on one device only to it; updated in place.
        """
        if op.type == "parallel_do":
            self._forward(op, home)
        elif op.type == "parallel_do_grad":
            self._backward(op, home)

    # ---- forward

    def _forward(self, op: Operator, home: dict[str, int]) -> None:
        body: Block = op.attrs["sub_block"]
        devices = self.graph.bodies[body.idx]
        ahead = self.graph.pre_fetched[body.idx] = op.attrs.get("pre_fetch") or []
        for name in op.inputs["inputs"]:
            if name not in ahead:
                self._split(name, op, body.idx)
        for name in op.inputs.get("parameters", []):
            self._give(name, devices, home)
        for inner in body.ops:
            for device in devices:
                self.graph.add_compute(inner, device, body.idx)
        self._bring_back(op, body, home)
        for name in (*op.outputs["outputs"], *op.outputs.get("outputs@LOD", [])):
            self._collect(MERGE, name, name, op, body.idx)
            home[name] = 0

    def _split(self, name: str, op: Operator, body: int) -> None:
        """Divide an input by rows; if it holds sequences, divide their offsets first."""
        devices, lod = self.graph.bodies[body], lod_name(name)
        sources = [(name, 0)]
        if lod in op.inputs.get("inputs@LOD", []):
            parts = [(lod, device) for device in devices]
            self.graph.add_collective(SPLIT, [(lod, 0)], parts, op, body)
            sources += parts
        targets = [(name, device) for device in devices]
        self.graph.add_collective(SPLIT, sources, targets, op, body)

    def _give(self, name: str, devices: list[int], home: dict[str, int]) -> None:
        """Give the whole of a variable to all devices."""
        var = self.block._var_recursive(name)
        stored = var.persistable and self.stored_everywhere
        if not stored and any(self.graph.latest(name, device) is None for device in devices):
            home.setdefault(name, 0)
        self.bring(name, devices)

    def _bring_back(self, op: Operator, body: Block, home: dict[str, int]) -> None:
        """Copy back the persistable variables that the body writes, from the first device."""
        first = self.graph.bodies[body.idx][0]
        everywhere = range(len(self.graph.places))
        for name in body._outer_names()[1]:
            targets = [(name, d) for d in everywhere if d != first] if self.kept else [(name, 0)]
            self.graph.add_collective(BROADCAST, [(name, first)], targets, op)
            if self.kept:
                home.pop(name, None)
            else:
                home[name] = 0

    def _collect(self, does: Kind, inner: str, outer: str, op: Operator, body: int) -> None:
        """Merge or reduce the devices' values to device 0."""
        sources = [(inner, device) for device in self.graph.bodies[body]]
        self.graph.add_collective(does, sources, [(outer, 0)], op, body)

    # ---- backward

    def _backward(self, op: Operator, home: dict[str, int]) -> None:
        block: Block = op.attrs["sub_block"]
        body = block.forward_block_idx
        devices = self.graph.bodies[body]
        outputs, grads = op.inputs["outputs"], op.inputs["outputs@GRAD"]
        for name, grad in zip(outputs, grads, strict=True):
            if grad != roles.EMPTY:
                rows = [(name, device) for device in devices]  # outputs: they give the row counts
                targets = [(roles.part_of_grad(name), device) for device in devices]
                self.graph.add_collective(SPLIT, [(grad, 0), *rows], targets, op, body)
        waiting = self._collected(op)
        last = {name: inner for inner in block.ops for name in inner.writes}
        for inner in block.ops:
            for device in devices:
                self.graph.add_compute(inner, device, body)
            for name in inner.writes:
                if name in waiting and last[name] is inner:
                    self._collect_grad(name, *waiting[name], op, home)

    @staticmethod
    def _collected(op: Operator) -> dict[str, tuple[str, str]]:
        """For each gradient that leaves the block, by inner name: its slot and outer name."""
        return {
            roles.grad_name(name): (slot, grad)
            for slot in ("inputs", "parameters")
            for name, grad in zip(
                op.inputs.get(slot, []), op.outputs.get(f"{slot}@GRAD", []), strict=False
            )
            if grad != roles.EMPTY
        }

    def _collect_grad(
        self, inner: str, slot: str, outer: str, op: Operator, home: dict[str, int]
    ) -> None:
        body = op.attrs["sub_block"].forward_block_idx
        devices = self.graph.bodies[body]
        everywhere = list(range(len(self.graph.places)))
        if slot == "parameters" and self.kept:
            sources = [(inner, device) for device in devices]
            targets = [(outer, device) for device in everywhere]
            self.graph.add_collective(ALL_REDUCE, sources, targets, op, body)
            home.pop(outer, None)
            return
        self._collect(MERGE if slot == "inputs" else REDUCE, inner, outer, op, body)
        home[outer] = 0
