"""Build the SSA graph of a program's replicas.

As in Paddle, every operator runs once per device, the operator that seeds the loss gradient becomes
``Scale LossGrad``, and a collective follows the last contribution to a parameter's gradient. In
Reduce mode an optimizer operator runs only on the device that owns its parameter; results that
other devices read are broadcast (Paddle fails there).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.places import Place
from dpexec.engine.graph.kinds import (
    ALL_REDUCE,
    ALL_SUM,
    BROADCAST,
    MODES,
    REDUCE,
    SCALE_LOSS_GRAD,
    Kind,
)
from dpexec.engine.graph.operators import Operators, seeds_gradient
from dpexec.engine.graph.parallel_do import ParallelDos, inner_devices
from dpexec.engine.graph.ssa import OpNode, SSAGraph
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator, op_error
from dpexec.engine.ir.program import Program

__all__ = ["ReplicationOptions", "build_ssa_graph"]


@dataclass(frozen=True)
class ReplicationOptions:
    """Options of replication.

    Args:
        mode: how gradients are aggregated, one of ``MODES``.
        merge_rows: add up duplicate rows of a device's sparse gradient before it is sent.
        scale_loss_grad: seed the loss gradient per device (False: as the program says).
        keep_loss_grad: leave the seeding operator out, as the user feeds the gradient.
        shared_memory: devices share persistable variables, so updated parameters need no
            broadcast.
        trainers: number of processes that train together, each with its own replicas. Sums include
            all of them, so with several trainers a single device has collectives, too.
    """

    mode: str = ALL_REDUCE.name
    merge_rows: bool = False
    scale_loss_grad: bool = True
    keep_loss_grad: bool = False
    shared_memory: bool = True
    trainers: int = 1

    @property
    def has_owners(self) -> bool:
        """Whether each parameter has an owner: the only device with its gradient and update."""
        return MODES[self.mode].has_root


def build_ssa_graph(
    program: Program,
    places: list[Place],
    options: ReplicationOptions,
    operators: Operators | None = None,
) -> SSAGraph:
    """Replicate the global block of ``program`` over ``places``.

    With one device of one trainer there is nothing to aggregate and no collective, besides those
    of ParallelDos.

    Args:
        program: what is replicated.
        places: the devices.
        options: options of replication.
        operators: the program's operators as passes rewrote them.

    Raises:
        EnforceNotMet: a ParallelDo on several replicas, or on devices that are not there.
    """
    return _Builder(program, places, options, operators or Operators(program)).build()


class _Builder:
    def __init__(
        self,
        program: Program,
        places: list[Place],
        options: ReplicationOptions,
        operators: Operators,
    ) -> None:
        self.program = program
        self.block = program.global_block()
        self.ops = operators.ops
        self.options = options
        self.devices = range(len(places))
        self.sums = len(places) * options.trainers > 1
        self.reduce = options.has_owners and self.sums
        everywhere, bodies = inner_devices(program, places)
        self.graph = SSAGraph(program, everywhere, options.mode, bodies)
        self.graph.removed = operators.removed
        self.graph.trainers = options.trainers
        self.parallel_dos = ParallelDos(self.graph, self._bring, options.shared_memory)
        self.owners = self.graph.owners
        self.load = [0] * len(places)
        self.home: dict[str, int] = {}
        """Variables whose newest value exists on one device only."""
        self.copied: set[str] = set()
        """Variables that every device writes, so that memory shared with others is no help."""

    def build(self) -> SSAGraph:
        control = _control_dependencies(self.ops)
        for index, op in enumerate(self.ops):
            if op.definition.by_executor:
                self.parallel_dos.expand(op, self.home)
                continue
            for node in self._place(op):
                device = node.device
                assert device is not None
                for number in control.reads[index]:
                    name = f"__control_var@{number}"
                    if self.graph.latest(name, device):  # none after operators without node
                        self.graph.read(node, name, device, "control")
                for number in control.writes[index]:
                    self.graph.write(node, f"__control_var@{number}", device, "control")
            self._sum_up(op)
            self._aggregate(op)
        if self.reduce:
            params = [param.name for param in self.block.iter_parameters()]
            shared = self.options.shared_memory
            self._share(name for name in params if not shared or name in self.copied)
        self._share(self.parallel_dos.kept)
        self._order_writes_after_reads()
        return self.graph

    # ---- computation

    def _place(self, op: Operator) -> list[OpNode]:
        if self.sums and _trains_in_branch(op):
            raise NotImplementedError(
                "If optimizer is used in control flow, training on multi-places is not supported: "
                f"a branch may run on one device alone. It is made by {op.callsite}"
            )
        if seeds_gradient(op) and self.options.scale_loss_grad:
            if self.options.keep_loss_grad:
                return []
            return [self._scale_loss_grad(op, device) for device in self.devices]
        devices = self._devices_of(op)
        for name in op.reads:
            self._bring(name, devices)
        nodes = [self.graph.add_compute(op, device) for device in devices]
        for name in op.writes:
            if len(devices) == len(self.graph.places):
                self.home.pop(name, None)
                self.copied.add(name)
            else:
                self.home[name] = devices[0]
        return nodes

    def _devices_of(self, op: Operator) -> list[int]:
        if op in self.parallel_dos.updates:
            return list(range(len(self.graph.places)))
        owner = self._owner(op)
        return list(self.devices) if owner is None else [owner]

    def _scale_loss_grad(self, op: Operator, device: int) -> OpNode:
        node = self.graph.add_op(SCALE_LOSS_GRAD, "Scale LossGrad", device, "backward", op)
        self.graph.write(node, op.output_arg_names[0], device)
        return node

    def _owner(self, op: Operator) -> int | None:
        """The device of an operator that runs on one device only."""
        if not self.reduce or op.role != roles.OPTIMIZE or len(op.role_var) != 2:
            return None
        param, grad = op.role_var
        return self.owners.get(grad, self.owners.get(param))

    # ---- aggregation

    def _sum_up(self, op: Operator) -> None:
        """Sum an operator's outputs over all devices if the next operator needs the sums."""
        everywhere = list(self.devices)
        for name in op.attrs.get("sum_over_devices", ()) if self.sums else ():
            self._collective(ALL_SUM, name, everywhere, everywhere)

    def _aggregate(self, op: Operator) -> None:
        if not self.sums or not op.role & roles.BACKWARD:
            return
        pairs = op.role_var
        for param, grad in zip(pairs[::2], pairs[1::2], strict=True):
            sparse = self.block.vars[grad].type == VarType.SELECTED_ROWS
            if sparse and self.options.merge_rows:
                self._merge_rows(op, grad)
            if self.reduce:
                _require_one_state(op)
                owner = self._choose_owner(param, grad)
                self._collective(REDUCE, grad, list(self.devices), [owner])
                self.home[grad] = owner
            elif sparse:
                self._collective(REDUCE, grad, list(self.devices), [0])
                if len(self.devices) > 1:
                    self._collective(BROADCAST, grad, [0], list(self.devices))
            else:
                self._collective(ALL_REDUCE, grad, list(self.devices), list(self.devices))

    def _merge_rows(self, op: Operator, grad: str) -> None:
        """Add up duplicate rows of a sparse gradient on each device: less to send and to apply."""
        slots = {"X": [grad]}, {"Out": [grad]}
        kind = "merge_selected_rows"
        merge = Operator(op.block, kind, *slots, op.origin_attrs(), op.callsite)
        for device in self.devices:
            self.graph.add_compute(merge, device)

    def _choose_owner(self, param: str, grad: str) -> int:
        """The device with the smallest load so far, the first of equals."""
        owner = self.load.index(min(self.load))
        shape = self.block.vars[grad].shape
        self.load[owner] += math.prod(shape)
        self.owners[param] = self.owners[grad] = owner
        return owner

    def _collective(self, does: Kind, name: str, sources: list[int], targets: list[int]) -> None:
        self.graph.add_collective(does, [(name, d) for d in sources], [(name, d) for d in targets])

    def _bring(self, name: str, devices: list[int]) -> None:
        """Broadcast a value that lives on one device to devices that are about to read it."""
        home = self.home.get(name)
        if home is None:
            return
        missing = [device for device in devices if device != home]
        if missing:
            self._collective(BROADCAST, name, [home], missing)
            if len(missing) == len(self.graph.places) - 1:
                del self.home[name]

    def _share(self, names: Iterable[str]) -> None:
        """Let all devices store what one device wrote."""
        for name in names:
            self._bring(name, list(range(len(self.graph.places))))

    # ---- hazards

    def _order_writes_after_reads(self) -> None:
        for versions_of in self.graph.versions:
            for versions in versions_of.values():
                for old, new in itertools.pairwise(versions):
                    self._order_readers(old.readers, new.writer)

    def _order_readers(self, readers: list[OpNode], writer: OpNode | None) -> None:
        if writer is None:
            return
        for reader in readers:
            if reader is not writer and not any(v in writer.inputs for v in reader.outputs):
                self.graph.order(reader, writer)


def _trains_in_branch(op: Operator) -> bool:
    """Whether a loss is minimized in the branch that an operator belongs to."""
    gradients = (body for body in op.bodies if body.forward_block_idx >= 0)
    inner = (other for body in gradients for other in body.ops)
    return any(o.role & roles.OPTIMIZE for o in inner)


def _require_one_state(op: Operator) -> None:
    """Reject deep gradient compression, whose residuals differ from device to device."""
    if op.definition.own_state:
        raise op_error(op, "gradients are compressed in AllReduce mode only", op.input_specs())


@dataclass
class _Control:
    reads: defaultdict[int, list[int]]
    writes: defaultdict[int, list[int]]


def _control_dependencies(ops: list[Operator]) -> _Control:
    """Dependencies that data does not imply: write after read and write after write.

    Returns, by the operator's position, the numbers of the control variables that it reads and
    writes. A reader with a direct data dependency to the writer needs no control variable.
    """
    control = _Control(defaultdict(list), defaultdict(list))
    count = 0
    readers: defaultdict[str, list[int]] = defaultdict(list)
    writer: dict[str, int] = {}
    version: defaultdict[str, int] = defaultdict(int)
    made: list[set[tuple[str, int]]] = []
    for index, op in enumerate(ops):
        taken = {(name, version[name]) for name in op.reads}
        for name in dict.fromkeys(op.reads):
            readers[name].append(index)
        outputs: set[tuple[str, int]] = set()
        for name in dict.fromkeys(op.writes):
            before = [r for r in readers[name] if r != index and not made[r] & taken]
            if name in writer and writer[name] != index:
                before.insert(0, writer[name])
            for other in dict.fromkeys(before):
                control.writes[other].append(count)
                control.reads[index].append(count)
                count += 1
            if name in writer or readers[name]:
                version[name] += 1
            readers[name] = []
            writer[name] = index
            outputs.add((name, version[name]))
        made.append(outputs)
    return control
