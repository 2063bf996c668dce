"""The values that a dask task gives to tasks of other workers, and how they travel.

Between workers with the protocol UCX, memory of GPUs goes from GPU to GPU. Dask sends objects that
have a serializer of its family ``cuda`` without a copy to the host, in order with the null stream,
on which workers enqueue everything. Over other protocols values go through the host.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dask.sizeof import sizeof
from distributed.protocol import deserialize, serialize
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize

from dpexec.engine.cluster.messages import Value
from dpexec.engine.core.copies import values_on
from dpexec.engine.core.places import CPUPlace, CUDAPlace, Place

__all__ = ["Exports", "exported", "how_exchanged"]

_HOST = CPUPlace()
_ON_GPUS = ("cuda",)  # dask's family of serializers for memory of GPUs


class Exports(dict[Value, Any]):
    """The values that a task gives to others.

    It is a class of its own so that dask pickles it as a whole: a sum that goes to several replicas
    then travels once. Dask would send every value of a plain dict by itself.
    """


@sizeof.register(Exports)
def _size_of(exports: Exports) -> int:
    """The bytes of a task's values, which dask and traces show; shared arrays count once."""
    return sum(map(sizeof, {id(value): value for value in exports.values()}.values()))


def exported(values: Mapping[Value, Any], place: Place, address: str) -> Exports:
    """Values for other workers: on the GPU if they can travel from there, else on the host.

    Args:
        values: values of variables.
        place: the device where they are.
        address: address of the worker, which begins with its protocol.
    """
    return Exports(values if _stays_on_gpu(place, address) else values_on(_HOST, values))


def how_exchanged(place: Place, addresses: Iterable[str]) -> str:
    """The sentence for users about how values get from GPU to GPU; empty for replicas on CPUs.

    Args:
        place: the place of the replicas.
        addresses: addresses of their workers.
    """
    if not isinstance(place, CUDAPlace):
        return ""
    if all(_stays_on_gpu(place, address) for address in addresses):
        return "by UCX, as they lie there"
    return "through the host: the protocol of the workers is not UCX"


def _stays_on_gpu(place: Place, address: str) -> bool:
    """Whether values travel from GPU to GPU; the protocol is called ucx or ucxx."""
    return isinstance(place, CUDAPlace) and address.startswith("ucx")


# ---- as frames, in which arrays of GPUs stay on the GPU


class _Pickler(pickle.Pickler):
    """Replaces arrays of GPUs by numbers, and collects them."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.arrays: list[Any] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if not hasattr(obj, "__cuda_array_interface__"):
            return None
        if id(obj) not in self._numbers:
            self._numbers[id(obj)] = len(self.arrays)
            self.arrays.append(obj)
        return self._numbers[id(obj)]


class _Unpickler(pickle.Unpickler):
    """Replaces the numbers by the arrays of GPUs again."""

    def __init__(self, file: io.BytesIO, arrays: Sequence[Any]) -> None:
        super().__init__(file)
        self._arrays = arrays

    def persistent_load(self, number: int) -> Any:
        return self._arrays[number]


@cuda_serialize.register(Exports)
def _to_frames(exports: Exports) -> tuple[dict[str, Any], list[Any]]:
    """A header, and the frames of arrays on GPUs.

    Raises:
        NotImplementedError: no value is on a GPU; dask then tries its next serializer.
    """
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(dict(exports))
    if not pickler.arrays:
        raise NotImplementedError("values of the host")
    parts = [serialize(array, _ON_GPUS, on_error="raise") for array in pickler.arrays]
    headers = [(header, len(frames)) for header, frames in parts]
    header = {"values": file.getvalue(), "arrays": headers}
    return header, [frame for _, frames in parts for frame in frames]


@cuda_deserialize.register(Exports)
def _from_frames(header: Mapping[str, Any], frames: Sequence[Any]) -> Exports:
    left = iter(frames)
    arrays = [
        deserialize(own, [next(left) for _ in range(count)], _ON_GPUS)
        for own, count in header["arrays"]
    ]
    return Exports(_Unpickler(io.BytesIO(header["values"]), arrays).load())
