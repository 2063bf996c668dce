"""Parameter updates on GPUs in one launch, from the statements that processors run, too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from dpexec.core.tensors import SelectedRows
from dpexec.ir import opdef
from dpexec.kernels.gpu.expressions import Untranslatable, statements
from dpexec.kernels.gpu.launch import ElementKernel
from dpexec.kernels.optimizers import UPDATES, Update

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


def update_of(type: str) -> Kernel | None:
    """The kernel of an optimizer, or of the same update of many parameters; None: there is none.

    It returns None for what it does not take: sparse gradients, other types than float32.

    Args:
        type: of the operator.
    """
    if type.startswith("fused_"):
        one = update_of(type.removeprefix("fused_"))
        return None if one is None else functools.partial(_all, one)
    if type == "adam":
        return _adam
    if type == "sgd":
        return lambda xp, param, rate, grad: _run(
            xp, [_SGD], {"param": param, "rate": rate, "grad": grad}, {}, ["param"]
        )
    if type not in UPDATES:
        return None
    names, stages = UPDATES[type]
    definition = opdef.get(type)
    slots = [slot.name for slot in definition.inputs]
    results = [names[slots.index(definition.inplace[out.name])] for out in definition.outputs]

    def kernel(xp: Any, *values: Any, **attrs: Any) -> Any:
        given = dict(zip(names, values, strict=False))
        chosen = stages({**definition.attrs, **attrs})
        return _run(xp, chosen, given, {**definition.attrs, **attrs}, results)

    return kernel


def _adam(
    xp: Any, param: Any, grad: Any, rate: Any, m: Any, v: Any, power1: Any, power2: Any,
    beta1_tensor: Any = None, beta2_tensor: Any = None, *, beta1: float = 0.9,
    beta2: float = 0.999, epsilon: float = 1e-8, lazy_mode: bool = False,
) -> Any:  # fmt: skip
    if beta1_tensor is not None or beta2_tensor is not None:
        return None
    given = {
        "param": param, "grad": grad, "rate": rate, "moment1": m, "moment2": v,
        "power1": power1, "power2": power2,
    }  # fmt: skip
    factors = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    made = _run(xp, [_ADAM], given, factors, ["param", "moment1", "moment2"])
    if made is None:
        return None
    power1 *= power1.dtype.type(beta1)
    power2 *= power2.dtype.type(beta2)
    return (*made, power1, power2)


def _all(one: Kernel, xp: Any, *lists: list[Any], **attrs: Any) -> Any:
    """The update of every parameter of a list; None if one of them is declined."""
    each = [
        tuple(values[position] if values else None for values in lists)
        for position in range(len(lists[0]))
    ]
    if not all(_taken(values) for values in each):
        return None
    made = [one(xp, *values, **attrs) for values in each]
    rows = [results if isinstance(results, tuple) else (results,) for results in made]
    return tuple(list(column) for column in zip(*rows, strict=True))


def _taken(values: Sequence[Any]) -> bool:
    """Whether all values are dense and float32."""
    given = [value for value in values if value is not None]
    return not any(isinstance(v, SelectedRows) or v.dtype != "float32" for v in given)


def _run(
    xp: Any, stages: Sequence[Update], given: dict[str, Any], attrs: dict[str, Any],
    results: Sequence[str],
) -> Any:  # fmt: skip
    """Launch the kernels of an update; None if there are none for these values."""
    kernels = [_kernel(stage) for stage in stages]
    if not kernels or None in kernels or not _taken(list(given.values())):
        return None
    written = {name.lower() for stage in stages for name in stage.arrays if name.isupper()}
    if not all(given[name].flags.c_contiguous for name in written & given.keys()):
        return None
    values = {"work": xp.empty_like(given["param"]) if "work" in written else None, **given}
    for stage, kernel in zip(stages, kernels, strict=True):
        assert kernel is not None
        reads, writes = _arrays(stage)
        factors = [float(attrs[name]) for name in stage.factors]
        arrays = [values[name] for name in reads], [values[name] for name in writes]
        kernel(xp, given["param"].size, *arrays, factors)
    made = tuple(given[name] for name in results)
    return made[0] if len(made) == 1 else made


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
