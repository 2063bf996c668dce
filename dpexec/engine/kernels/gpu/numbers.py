"""Numbers that decide shapes and places: which operators look at them on the host."""

from __future__ import annotations

__all__ = ["is_looked_at"]

_NAMES = """
AxesTensor AxesTensorList AxisTensor EndsTensor EndsTensorList ExpandTimes K MaxLenTensor Num
Offsets OffsetsTensor OutSize OutputShape Paddings SectionsTensorList Shape ShapeTensor
ShapeTensorList SizeTensor StartsTensor StartsTensorList StridesTensor StridesTensorList
depth_tensor expand_times_tensor
"""
_SLOTS = frozenset(_NAMES.split())
"""Input slots that the kernels of all operators that have one look at."""

_OF_TYPE = {
    "bicubic_interp": {"Scale"},
    "bilinear_interp": {"Scale"},
    "dropout": {"Seed"},
    "nearest_interp": {"Scale"},
    "range": {"Start", "End", "Step"},
    "read_from_array": {"I"},
    "shrink_rnn_memory": {"I"},
    "trilinear_interp": {"Scale"},
    "while": {"Condition"},
    "write_to_array": {"I"},
}
"""More of them, by type of the operator: elsewhere such slots are values like any other."""


def is_looked_at(type: str, slot: str) -> bool:
    """Whether a kernel takes numbers of a slot as numbers of the host: the host waits for a GPU's.

    Args:
        type: of the operator.
        slot: a name of its inputs.
    """
    return slot in _SLOTS or slot in _OF_TYPE.get(type.removesuffix("_grad"), ())
