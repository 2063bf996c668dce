"""The streams of the GPUs.

Every replica has a compute stream. Every GPU has a stream for exchanges with other GPUs, so that
gradients are sent during the backward pass, and a stream for feeds. Streams wait for each other's
events, never for the host. They are blocking streams: work on the null stream, such as
``tensor.set``, is ordered with them. All engines of a process use the same streams, so an engine
that reads a scope is ordered after the one that wrote it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dpexec.engine.core.places import CUDAPlace, Place, array_module, gpu_stream, on_device

__all__ = ["Lane", "Streams"]

Lane = tuple[str, int]
"""``("compute", replica)``, ``("exchange", GPU)`` or ``("feed", GPU)``: a stream."""


class Streams:
    """The streams of some replicas.

    Args:
        places: the places of the replicas; replicas on the host have no streams.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places: dict[Lane, CUDAPlace] = {}
        self._streams: dict[Lane, Any] = {}
        on_gpu = Counter[int]()
        for replica, place in enumerate(places):
            if not isinstance(place, CUDAPlace):
                continue
            gpu = place.device_id
            for lane, number in {("compute", replica): on_gpu[gpu], ("exchange", gpu): 0,
                                 ("feed", gpu): 0}.items():  # fmt: skip
                self._places[lane] = place
                self._streams[lane] = gpu_stream(array_module(place), lane[0], gpu, number)
            on_gpu[gpu] += 1

    def __getitem__(self, lane: Lane) -> Any:
        """The stream of a lane."""
        return self._streams[lane]

    def place(self, lane: Lane) -> CUDAPlace:
        """The GPU of a lane."""
        return self._places[lane]

    @contextlib.contextmanager
    def current(self, lanes: Iterable[Lane]) -> Iterator[None]:
        """Make the streams of some lanes current on their GPUs; the first one's GPU is current.

        Args:
            lanes: at most one per GPU.
        """
        with contextlib.ExitStack() as stack:
            lanes = list(lanes)
            for lane in reversed(lanes):
                stack.enter_context(on_device(self._places[lane]))
                stack.enter_context(self._streams[lane])
            yield

    @contextlib.contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Mark work enqueued inside the block with an NVTX range, for profilers such as Nsight."""
        nvtx = array_module(next(iter(self._places.values()))).cuda.nvtx
        if not nvtx.available:
            yield
            return
        nvtx.RangePush(name)
        try:
            yield
        finally:
            nvtx.RangePop()

    def record(self, lane: Lane, timed: bool = False) -> Any:
        """Record an event at the current end of a stream.

        Args:
            lane: the stream's lane.
            timed: whether the event records its time.
        """
        place = self._places[lane]
        with on_device(place):
            event = array_module(place).cuda.Event(disable_timing=not timed)
            return self._streams[lane].record(event)

    def join(self, kinds: Sequence[str]) -> Any:
        """Let all streams of some kinds wait for each other.

        Args:
            kinds: such as ``"compute"``.

        Returns:
            An event after all work enqueued on them.
        """
        hub, *others = (lane for lane in self._streams if lane[0] in kinds)
        for lane in others:
            self._streams[hub].wait_event(self.record(lane))
        event = self.record(hub)
        for lane in others:
            self._streams[lane].wait_event(event)
        return event

    def wait(self, kind: str, event: Any) -> None:
        """Let all streams of a kind wait for an event."""
        for lane, stream in self._streams.items():
            if lane[0] == kind:
                stream.wait_event(event)

    def synchronize(self, *kinds: str) -> None:
        """Block the host until all work on streams of some kinds is done."""
        for lane, stream in self._streams.items():
            if lane[0] in kinds:
                stream.synchronize()
