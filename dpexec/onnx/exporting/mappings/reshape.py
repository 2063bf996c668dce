"""Shapes: reshape, transpose, squeeze, unsqueeze, flatten; those ending in 2 have an XShape."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.activations import activated


def vector(c: Call, whole: str, parts: str, attr: str) -> Value | None:
    """Integers that are given as a tensor, as a list of tensors or numbers, or as an attribute.

    Returns:
        A vector of int64, None if they are an attribute.
    """
    if c.get(whole) is not None:
        slot = whole
        return c.g.reshape(c.typed(c[slot], c.dtype(slot), np.int64), -1)
    if c.all(parts):
        return c.g.Concat(
            *(
                c.g.reshape(c.typed(value, c.dtype(parts), np.int64), 1)
                for value in c.all(parts)
            ),
            axis=0,
        )  # fmt: skip
    return None


@exports("transpose", "transpose2")
def transpose(c: Call) -> None:
    """Dimensions in another order."""
    c.set("Out", c.g.Transpose(c["X"], perm=list(c.attr("axis"))))


@exports("reshape", "reshape2")
def reshape(c: Call) -> None:
    """0 keeps a dimension and -1 is what remains, also in a tensor."""
    shape = vector(c, "Shape", "ShapeTensor", "shape")
    made = c.g.Reshape(c["X"], list(c.attr("shape")) if shape is None else shape)
    c.set("Out", activated(c, c.attr("act") or "", made))


@exports("squeeze", "squeeze2")
def squeeze(c: Call) -> None:
    """Without the dimensions that are 1, or those of them that are named."""
    shape, axes = c.shape("X"), [axis % c.rank("X") for axis in c.attr("axes") or []]
    chosen = axes or range(len(shape))
    gone = sorted({axis for axis in chosen if shape[axis] == 1 or (axes and shape[axis] < 0)})
    c.set("Out", c.g.Squeeze(c["X"], gone) if gone else c["X"])


@exports("unsqueeze", "unsqueeze2", constants="AxesTensor AxesTensorList")
def unsqueeze(c: Call) -> None:
    """New dimensions, put in one after the other."""
    axes = list(c.attr("axes") or [])
    for given in ("AxesTensor", "AxesTensorList"):
        axes = [int(n) for array in c.constants(given) for n in array.ravel()] or axes
    places: list[int] = []
    for axis in axes:  # each counts in the shape that those before it made
        place = axis if axis >= 0 else axis + c.rank("X") + len(places) + 1
        places = [p + (p >= place) for p in places] + [place]
    c.set("Out", c.g.Unsqueeze(c["X"], sorted(places)) if places else c["X"])


@exports("flatten", "flatten2")
def flatten(c: Call) -> None:
    """A matrix."""
    c.set("Out", c.g.Flatten(c["X"], axis=c.attr("axis")))
