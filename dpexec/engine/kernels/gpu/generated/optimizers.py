"""Parameter updates on GPUs in one launch, generated from the statements that CPUs run.

The updates that ``fuse_all_optimizer_ops`` joins are one launch, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from dpexec.engine.kernels.gpu.expressions import Untranslatable, statements
from dpexec.engine.kernels.gpu.launch import ElementKernel
from dpexec.engine.kernels.implementations import implementation
from dpexec.engine.kernels.optimizers import UPDATES, Update
from dpexec.engine.ops.fused_optimizers import each

__all__ = ["update_of"]

Kernel = Callable[..., Any]

_SGD = Update("sgd_gpu", "PARAM grad", "rate", "", "", "param = param - rate * grad")
_ADAM = Update(
    "adam_gpu", "PARAM grad MOMENT1 MOMENT2", "rate power1 power2", "beta1 beta2 epsilon",
    "rest1 = one - beta1; rest2 = one - beta2; "
    "factor = rate * sqrt(one - power2) / (one - power1)",
    "moment1 = moment1 * beta1 + grad * rest1; "
    "moment2 = moment2 * beta2 + grad * rest2 * grad; "
    "param = param - moment1 / (sqrt(moment2) + epsilon) * factor",
)  # fmt: skip


_POWERS = Update(
    "adam_powers_gpu", "POWER1 POWER2", "", "beta1 beta2", "",
    "power1 = power1 * beta1; power2 = power2 * beta2",
)  # fmt: skip
_OWN: dict[str, tuple[list[str], Callable[[dict[str, Any]], Sequence[Update]]]] = {
    "sgd": (["param", "rate", "grad"], lambda attrs: [_SGD]),
    "adam": (
        ["param", "grad", "rate", "moment1", "moment2", "power1", "power2"],
        lambda attrs: [_ADAM, _POWERS],
    ),
}
"""As :data:`~dpexec.engine.kernels.optimizers.UPDATES`, for what is written by hand there."""


_ONES = {*_OWN, *UPDATES}
_MANY = [d.merged_by for type in sorted(_ONES) if (d := opdef.find(type)) and d.merged_by]


@implementation(*_ONES, *_MANY, backend="gpu", per_operator=True)
def update_of(type: str) -> Kernel:
    """The kernel of an optimizer, or of the same update of many parameters.

    It returns None for what it does not take: sparse gradients, other types than float32,
    factors that are tensors.

    Args:
        type: of the operator.
    """
    one = type.removeprefix("fused_")
    names, stages = _OWN.get(one) or UPDATES[one]
    definition = opdef.get(one)
    slots = [slot.name for slot in definition.inputs]
    results = [names[slots.index(definition.inplace[out.name])] for out in definition.outputs]

    def kernel(xp: Any, *lists: Any, **attrs: Any) -> Any:
        given = {**definition.attrs, **attrs}
        rows = [dict(zip(names, values, strict=False)) for values in each(lists)]
        if any(lists[len(names) :]) or not _run(xp, stages(given), rows, given):
            return None
        return tuple([row[name] for row in rows] for name in results)

    def kernel_of_one(xp: Any, *values: Any, **attrs: Any) -> Any:
        lists = [[] if value is None else [value] for value in values]
        made = kernel(xp, *lists, **attrs)
        if made is None:
            return None
        return made[0][0] if len(made) == 1 else tuple(value for (value,) in made)

    return kernel if type != one else kernel_of_one


def _run(
    xp: Any, stages: Sequence[Update], rows: Sequence[dict[str, Any]], attrs: dict[str, Any]
) -> bool:
    """Launch the kernels of an update, of a row of arrays for each parameter.

    Returns:
        Whether there are some for these values.
    """
    kernels = [_kernel(stage) for stage in stages]
    if not kernels or None in kernels or not all(map(_taken, rows)):
        return False
    written = {name.lower() for stage in stages for name in stage.arrays if name.isupper()}
    if any(not row[name].flags.c_contiguous for row in rows for name in written & row.keys()):
        return False
    if "work" in written:
        rows = [{**row, "work": xp.empty_like(row["param"])} for row in rows]
    for stage, kernel in zip(stages, kernels, strict=True):
        assert kernel is not None
        reads, writes = _arrays(stage)
        size_of = stage.arrays[0].lower()
        lots = [(row[size_of].size, [row[name] for name in (*reads, *writes)]) for row in rows]
        kernel(xp, lots, [float(attrs[name]) for name in stage.factors])
    return True


def _taken(row: dict[str, Any]) -> bool:
    """Whether all values are dense and float32."""
    given = [value for value in row.values() if value is not None]
    return not any(isinstance(v, SelectedRows) or v.dtype != "float32" for v in given)


def _arrays(stage: Update) -> tuple[list[str], list[str]]:
    """Names of the arrays that a kernel only reads, and that it writes."""
    reads = [name for name in stage.arrays if name.islower()] + stage.scalars
    return reads, [name.lower() for name in stage.arrays if name.isupper()]


@functools.cache
def _kernel(stage: Update) -> ElementKernel | None:
    """The kernel of an update; None if it needs what is no expression of one element."""
    reads, writes = _arrays(stage)
    elements = [name.lower() for name in stage.arrays]
    known = [*stage.scalars, *stage.factors]
    try:
        before = statements(stage.before, known)
        each = statements(stage.each, [*known, *elements])
    except Untranslatable:
        return None
    head = [f"float {scalar}_ = a_{scalar}[0];" for scalar in stage.scalars] + before
    body = [f"float {name}_ = a_{name}[i];" for name in elements] + each
    body += [f"a_{name}[i] = {name}_;" for name in writes]
    factors = [f"{factor}_" for factor in stage.factors]
    arrays = [f"a_{array}" for array in reads], [f"a_{array}" for array in writes]
    return ElementKernel(f"dp_{stage.name}", *arrays, factors, head, body)
