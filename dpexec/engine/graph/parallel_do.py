"""ParallelDo in the SSA graph: its operators taken apart into nodes on its devices.

The program around runs on device 0. Going in, the rows (or sequences) of inputs are split and
parameters are broadcast (CPUs share them: nothing to do); the operators of the body come once per
device; going out, the rows of outputs are merged. The gradient goes the same way back: rows of the
outputs' gradients are split, those of the inputs' gradients merged, parameters' gradients reduced
in the order of the devices, or all-reduced where every device keeps parameters of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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

    ParallelDos with the same list of places share its devices, unless they need different values
    of a variable there: its rows and the whole, or what one makes and the other gets back.

    Args:
        program: the program.
        places: where it runs, ParallelDos apart.

    Raises:
        EnforceNotMet: a ParallelDo runs on several replicas, or has no device.
        RuntimeError: a GPU that is not there.
    """
    everywhere = list(places)
    bodies: dict[int, list[int]] = {}
    groups: list[_Group] = []
    for op in _parallel_dos(program):
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
    """Devices that ParallelDos share, and which variables they have there."""

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


def _parallel_dos(program: Program) -> list[Operator]:
    return [op for op in program.global_block().ops if op.type == "parallel_do"]


def _places(op: Operator, outer: Place) -> Sequence[Place]:
    """The devices of a ParallelDo, found as its ``get_places`` says."""
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
    """Whether all devices of a program use the same parameters: CPUs that keep none."""
    everywhere, _ = inner_devices(program, places)
    cpus = all(isinstance(place, CPUPlace) for place in everywhere)
    return len(everywhere) == 1 or (cpus and not _kept_variables(program))


def _kept_variables(program: Program) -> list[str]:
    """The persistable variables that every device keeps a copy of."""
    ops = _parallel_dos(program)
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
        graph: gets the nodes.
        bring: broadcasts a variable whose newest value is on one device only to some others.
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
            home: variables whose newest value exists on one device only, with it; is updated.
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
        """Divide an input; if it holds sequences, these, and then its rows as they say."""
        devices, lod = self.graph.bodies[body], lod_name(name)
        sources = [(name, 0)]
        if lod in op.inputs.get("inputs@LOD", []):
            parts = [(lod, device) for device in devices]
            self.graph.add_collective(SPLIT, [(lod, 0)], parts, op, body)
            sources += parts
        targets = [(name, device) for device in devices]
        self.graph.add_collective(SPLIT, sources, targets, op, body)

    def _give(self, name: str, devices: list[int], home: dict[str, int]) -> None:
        """Let the devices have the whole of a variable."""
        var = self.block._var_recursive(name)
        stored = var.persistable and self.stored_everywhere
        if not stored and any(self.graph.latest(name, device) is None for device in devices):
            home.setdefault(name, 0)
        self.bring(name, devices)

    def _bring_back(self, op: Operator, body: Block, home: dict[str, int]) -> None:
        """Of persistable variables that the body writes, the first device's value counts."""
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
        """Merge or reduce what the devices have to device 0."""
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
                rows = [(name, device) for device in devices]  # are split as these were merged
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
        """Slot and outer name of the gradients that come out, by their name inside."""
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
