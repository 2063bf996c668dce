"""``print``: prints a value and passes it on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import time
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.core.places import CPUPlace, CUDAPlace
from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, op, same_as

_LETTERS = {"float32": "f", "float64": "d", "int32": "i", "int64": "l", "bool": "b"}


_SHOWN = [f"print_tensor_{what}" for what in ("name", "type", "shape", "lod")]


@op(
    "print",
    inputs="In In@LOD?",
    infer=same_as("In"),
    samples=lambda r: [
        Sample({"In": r.normal(shape)}, {"message": "seen", "first_n": 0, "summarize": 2, **shown})
        for shape, shown in (
            ((2, 3), dict.fromkeys(_SHOWN, True)),
            ((4,), dict.fromkeys(_SHOWN, False)),
            ((1, 1), {**dict.fromkeys(_SHOWN, True), "print_phase": "FORWARD"}),
        )
    ],
    grad_lod="flow",
    acts=True,
)
def print_(
    xp: Any,
    x: Any,
    lod: Lod | None,
    *,
    names: Mapping[str, Sequence[str]],
    calls: Iterator[int],
    first_n: int,
    message: str,
    summarize: int,
    print_tensor_name: bool,
    print_tensor_type: bool,
    print_tensor_shape: bool,
    print_tensor_lod: bool,
    print_phase: str = "BOTH",
    is_forward: bool = True,
) -> Any:
    """``x``; it is written to the standard output on the way. Source: Paddle op ``print``.

    Args:
        xp: the array library.
        x: any array.
        lod: the offsets of its sequences.
        names: names of the variables, by slot.
        calls: counts the runs of this operator, per device.
        first_n: print only this many times; -1 for always.
        message: text before the values.
        summarize: number of elements to print; -1 for all.
        print_tensor_name: print the name.
        print_tensor_type: print the element type, as its letter in C++.
        print_tensor_shape: print the shape.
        print_tensor_lod: print the offsets of sequences, if there are any.
        print_phase: ``FORWARD`` prints the variable, ``BACKWARD`` its gradient, ``BOTH`` both.
        is_forward: whether this operator is in the forward pass.
    """
    phase = "FORWARD" if is_forward else "BACKWARD"
    if print_phase not in (phase, "BOTH") or (first_n > 0 and next(calls) >= first_n):
        return x.copy()
    array = x.get() if hasattr(x, "get") else x
    place = CPUPlace() if array is x else CUDAPlace(x.device.id)
    lines = [f"{int(time())}\t{message}\tThe place is:{place!r}"]
    if print_tensor_name:
        lines.append(f"Tensor[{names['In'][0]}]")
    if print_tensor_shape:
        lines.append(f"\tshape: [{''.join(f'{dim},' for dim in array.shape)}]")
    if print_tensor_type:
        lines.append(f"\tdtype: {_LETTERS.get(array.dtype.name, array.dtype.name)}")
    if print_tensor_lod and lod:
        levels = (f"[ {''.join(f'{offset},' for offset in level)} ]" for level in lod.to_lists())
        lines.append(f"\tLoD: [{''.join(levels)}]")
    shown = array.reshape(-1)[: summarize if summarize >= 0 else None]
    lines.append(f"\tdata: {''.join(f'{_shown(item)},' for item in shown)}")
    print("\n".join(lines), flush=True)
    return x.copy()


def _shown(item: np.generic) -> str:
    """A number in the format of C++ streams."""
    return f"{float(item):g}" if item.dtype.kind == "f" else str(int(item))


@print_.grad_maker
def print_grad(context: GradContext) -> list[GradOp]:
    """The gradient passes through, too."""
    return [
        GradOp(
            "print",
            {"In": context.output_grads["Out"]},
            {"Out": context.input_grads["In"]},
            {**context.op.plain_attrs(), "is_forward": False},
        )
    ]
