"""Sums and broadcasts between GPUs through NCCL.

NCCL adds up in an order of its own, which depends on the GPUs and how they are connected: from
three GPUs on, results differ from those of :mod:`dpexec.engine.compile.plans.collectives` in their
last
bits. ``FLAGS_cudnn_deterministic=1``, by which users of fluid ask for equal runs, keeps the order
of the devices, and peer copies.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.collectives import NodeSum, bind_collective, sums_of
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.flags import asks_for_equal_runs
from dpexec.engine.core.places import CUDAPlace, Place, array_module, on_device
from dpexec.engine.core.reductions import Reduction
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.graph.ssa import OpNode, VarNode

__all__ = ["TYPES", "NcclCall", "call_of", "exchanging", "is_chosen", "library"]

TYPES = {
    "float16": "NCCL_FLOAT16",
    "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
    "int32": "NCCL_INT32",
    "int64": "NCCL_INT64",
}
"""What NCCL adds up: its names by NumPy's."""
_enqueuing = threading.Lock()
"""One group at a time: a communicator belongs to one thread at a time, and groups that overlap
must come in the same order on the stream of every GPU, or they wait for each other forever."""


def library(cupy: Any) -> Any:
    """``cupy.cuda.nccl``; its ``available`` says whether NCCL is installed.

    Args:
        cupy: the module.
    """
    if not hasattr(cupy.cuda, "nccl"):
        importlib.import_module("cupy.cuda.nccl")  # it says once how to install NCCL if it lacks
    return cupy.cuda.nccl


def is_chosen(places: Sequence[Place]) -> bool:
    """Whether replicas on these places exchange values through NCCL.

    They must be on GPUs of their own, and ``FLAGS_cudnn_deterministic`` must not be set in the
    environment.

    Args:
        places: of the replicas.
    """
    gpus = [place.device_id for place in places if isinstance(place, CUDAPlace)]
    alone = len(set(gpus)) == len(places) > 1
    if not alone or asks_for_equal_runs():
        return False
    return bool(library(array_module(places[0])).available)


def exchanging(binding: Binding) -> Binding:
    """The same binding, with NCCL for the tasks that it serves.

    Args:
        binding: of a plan whose replicas are on GPUs of their own.
    """
    plan = binding.plan
    tasks = (task for task in plan.tasks if task.is_collective)
    served = [task for task in tasks if not any(node.does.moves_rows for node in task.nodes)]
    return binding.calling({task.id: _Exchange(task, plan) for task in served})


@dataclass(frozen=True)
class NcclCall:
    """What one GPU gives to a sum, and where it gets it.

    Args:
        given: an array.
        made: another one, or the same; None if it goes to another one.
        root: rank of the GPU that has the value, or gets the sum; None: all have, and get.
        how: what becomes of the values of all; None: that of the root goes to all.
    """

    given: Any
    made: Any
    root: int | None
    how: Reduction | None

    def enqueue(self, nccl: Any, communicator: Any, stream: int) -> None:
        """Make the call.

        Args:
            nccl: the module.
            communicator: of this GPU.
            stream: address of its stream.
        """
        where = self.given.data.ptr, 0 if self.made is None else self.made.data.ptr
        what = self.given.size, getattr(nccl, TYPES[self.given.dtype.name])
        if self.how is None:
            communicator.broadcast(*where, *what, self.root, stream)
        elif self.root is not None:
            communicator.reduce(*where, *what, getattr(nccl, self.how.nccl), self.root, stream)
        else:
            communicator.allReduce(*where, *what, getattr(nccl, self.how.nccl), stream)


@dataclass(frozen=True)
class _Peer:
    """The call of one replica, and where it is made."""

    device: int
    gpu: int
    call: NcclCall
    stream: int


class _Exchange:
    """A collective task as a few groups of calls of NCCL, on the streams that are current.

    Sums are in the same arrays at every step, so that CUDA graphs can read them there; but not
    values of variables, which outlive the step.
    """

    def __init__(self, task: Task, plan: Plan) -> None:
        self._places, missing = plan.graph.places, plan.missing
        self._variables = plan.graph.program.global_block().vars
        self._made: dict[tuple[int, str], Any] = {}
        places = self._places
        self._groups = [
            [(sums_of(node, missing), bind_collective(node, places, missing)) for node in nodes]
            for nodes in _independent(task.nodes)
        ]

    def __call__(self, envs: Sequence[Env]) -> None:
        for group in self._groups:
            calls: list[tuple[NodeSum, list[_Peer]]] = []
            for sums, with_copies in group:
                if all(_is_served(found, envs) for found in sums):
                    calls += [(found, self._peers(found, envs)) for found in sums]
                else:
                    with_copies(envs)
            if calls:
                _enqueue(array_module(self._places[0]), calls)
            for found, peers in calls:
                for peer in peers:
                    if peer.device in found.targets:
                        envs[peer.device][found.made] = peer.call.made

    def _peers(self, found: NodeSum, envs: Sequence[Env]) -> list[_Peer]:
        """What goes from where to where; ranks are in the order of the devices."""
        name, devices, kept_as, receivers, how = found
        like, ranks, peers = envs[devices[0]][name], sorted({*devices, *receivers}), []
        what = call_of([*map(ranks.index, devices)], [*map(ranks.index, receivers)], how)
        for device in ranks:
            place = self._places[device]
            assert isinstance(place, CUDAPlace)
            xp = array_module(place)
            with on_device(place):
                gives, gets = device in devices, device in receivers
                made = self._array(xp, device, kept_as, like) if gets else None
                given = xp.ascontiguousarray(envs[device][name]) if gives else made
                if len(devices) == 1 and gives:
                    made = given  # it keeps what it hands on
                stream = xp.cuda.get_current_stream().ptr
            call = NcclCall(given, made, *what)
            peers.append(_Peer(device, place.device_id, call, stream))
        return peers

    def _array(self, xp: Any, device: int, name: str, like: Any) -> Any:
        """What a device gets something in."""
        made = self._made.get((device, name))
        if made is None or (made.shape, made.dtype) != (like.shape, like.dtype):
            made = xp.empty(like.shape, like.dtype)
        declared = self._variables.get(name)  # not of halves of operators
        if declared is None or not declared.persistable:
            self._made[device, name] = made
        return made


def _enqueue(cupy: Any, calls: Sequence[tuple[NodeSum, Sequence[_Peer]]]) -> None:
    nccl = library(cupy)
    with _enqueuing:
        ranks = [_communicators(cupy, tuple(peer.gpu for peer in peers)) for _, peers in calls]
        nccl.groupStart()
        try:
            for (_, peers), communicators in zip(calls, ranks, strict=True):
                for peer, communicator in zip(peers, communicators, strict=True):
                    peer.call.enqueue(nccl, communicator, peer.stream)
        finally:
            nccl.groupEnd()


def _independent(nodes: Sequence[OpNode]) -> list[list[OpNode]]:
    """Nodes in groups, in order, none of which reads what another one of its group writes."""
    groups: list[list[OpNode]] = []
    written: set[VarNode] = set()
    for node in nodes:
        if not groups or not written.isdisjoint(node.inputs):
            groups.append([])
            written.clear()
        groups[-1].append(node)
        written.update(node.outputs)
    return groups


def _is_served(found: NodeSum, envs: Sequence[Env]) -> bool:
    """Whether NCCL has a call for it: of a dense value, to others, or of those who get the sum."""
    devices, receivers = found.sources, found.targets
    values = [envs[device][found.name] for device in devices]
    if any(isinstance(value, SelectedRows) or value.dtype.name not in TYPES for value in values):
        return False
    if len(devices) == 1:
        return {*receivers} != {*devices}
    return (len(receivers) == 1 and receivers[0] in devices) or {*receivers} == {*devices}


def call_of(
    sources: Collection[int], targets: Collection[int], how: Reduction
) -> tuple[int | None, Reduction | None]:
    """Which call takes values from some ranks to others.

    Args:
        sources: ranks that have a value.
        targets: those that get the result.
        how: what becomes of several values.

    Returns:
        Root and reduction of a :class:`NcclCall`.
    """
    if len(sources) == 1:
        return next(iter(sources)), None
    return next(iter(targets)) if len(targets) == 1 else None, how


@functools.cache
def _communicators(cupy: Any, gpus: tuple[int, ...]) -> list[Any]:
    """One for each of some GPUs; they take a second to be made, and are kept."""
    return list(library(cupy).NcclCommunicator.initAll(list(gpus)))
