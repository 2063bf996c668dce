"""Sums and broadcasts between GPUs through NCCL.

NCCL sums in its own order, which depends on the GPUs and their connections. From three GPUs on,
results differ from those of :mod:`dpexec.engine.compile.plans.collectives` in the last bits.
``FLAGS_cudnn_deterministic=1``, fluid's flag for reproducible runs, disables NCCL: values are
exchanged by peer copies and summed in the order of the devices.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Collection, Sequence
from typing import Any

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.collectives import NodeSum, bind_collective, sums_of
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.flags import asks_for_equal_runs
from dpexec.engine.core.light_dataclasses import dataclass
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
"""The data types that NCCL sums: its names by NumPy's names."""
_enqueuing = threading.Lock()
"""Admits one group of calls at a time: a communicator is not thread-safe, and overlapping groups
must be enqueued in the same order on the stream of every GPU, or they deadlock."""


def library(cupy: Any) -> Any:
    """``cupy.cuda.nccl``; its ``available`` says whether NCCL is installed.

    Args:
        cupy: the module.
    """
    if not hasattr(cupy.cuda, "nccl"):
        importlib.import_module("cupy.cuda.nccl")  # says once how to install NCCL
    return cupy.cuda.nccl


def is_chosen(places: Sequence[Place]) -> bool:
    """Whether replicas on these places exchange values through NCCL.

    Each replica must have its own GPU, and ``FLAGS_cudnn_deterministic`` must not be set in the
    environment.

    Args:
        places: the places of the replicas.
    """
    gpus = [place.device_id for place in places if isinstance(place, CUDAPlace)]
    alone = len(set(gpus)) == len(places) > 1
    if not alone or asks_for_equal_runs():
        return False
    return bool(library(array_module(places[0])).available)


def exchanging(binding: Binding) -> Binding:
    """The same binding, with NCCL for the collective tasks that it supports.

    Args:
        binding: the binding of a plan whose replicas each have their own GPU.
    """
    plan = binding.plan
    tasks = (task for task in plan.tasks if task.is_collective)
    served = [task for task in tasks if not any(node.does.moves_rows for node in task.nodes)]
    return binding.calling({task.id: _Exchange(task, plan) for task in served})


@dataclass(frozen=True)
class NcclCall:
    """One GPU's part of an NCCL operation.

    Args:
        given: the array that it sends.
        made: the array for the result, possibly ``given``; None if another GPU gets the result.
        root: rank of the GPU that broadcasts the value or gets the sum; None for an all-reduce.
        how: the reduction; None for a broadcast from the root.
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
        source, target = self.given.data.ptr, 0 if self.made is None else self.made.data.ptr
        size, dtype = self.given.size, getattr(nccl, TYPES[self.given.dtype.name])
        if self.how is None:
            communicator.broadcast(source, target, size, dtype, self.root, stream)
            return
        combine = getattr(nccl, self.how.nccl)
        if self.root is not None:
            communicator.reduce(source, target, size, dtype, combine, self.root, stream)
        else:
            communicator.allReduce(source, target, size, dtype, combine, stream)


@dataclass(frozen=True)
class _Peer:
    """The call of one replica, and its GPU."""

    device: int
    gpu: int
    call: NcclCall
    stream: int


class _Exchange:
    """A collective task as a few groups of NCCL calls on the current streams.

    Sums are stored in the same arrays at every step, so that CUDA graphs can read them there.
    Variables get new arrays, as their values outlive the step.
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
        """The call of each replica; ranks are in the order of the devices."""
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
                    made = given  # the sender of a broadcast keeps its own value
                stream = xp.cuda.get_current_stream().ptr
            call = NcclCall(given, made, *what)
            peers.append(_Peer(device, place.device_id, call, stream))
        return peers

    def _array(self, xp: Any, device: int, name: str, like: Any) -> Any:
        """The array that receives a device's result."""
        made = self._made.get((device, name))
        if made is None or (made.shape, made.dtype) != (like.shape, like.dtype):
            made = xp.empty(like.shape, like.dtype)
        declared = self._variables.get(name)  # None for the halves of split operators
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
    """Divide nodes, in order, into groups in which no node reads another one's results."""
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
    """Whether NCCL supports a node: a dense broadcast, or a sum for the devices that take part."""
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
    """The NCCL operation that moves or sums values between ranks.

    Args:
        sources: ranks that have a value.
        targets: ranks that get the result.
        how: the reduction of several values.

    Returns:
        Root and reduction of a :class:`NcclCall`.
    """
    if len(sources) == 1:
        return next(iter(sources)), None
    return next(iter(targets)) if len(targets) == 1 else None, how


@functools.cache
def _communicators(cupy: Any, gpus: tuple[int, ...]) -> list[Any]:
    """One communicator per GPU; cached, as they take a second to create."""
    return list(library(cupy).NcclCommunicator.initAll(list(gpus)))
