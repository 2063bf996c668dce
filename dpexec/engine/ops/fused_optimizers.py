"""``fused_adam``, ``fused_momentum``, ``fused_sgd``: updates of many parameters at once."""

from __future__ import annotations

import inspect
from typing import Any

from dpexec.engine.ir.opdef import OpDef, Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._optimizers import drawn
from dpexec.engine.ops.adam import adam
from dpexec.engine.ops.momentum import momentum
from dpexec.engine.ops.sgd import sgd

__all__ = ["each", "fused_adam", "fused_momentum", "fused_sgd"]


def each(lists: tuple[list[Any], ...]) -> list[tuple[Any, ...]]:
    """The inputs of every single update; None for an absent optional input."""
    return [
        tuple(values[position] if values else None for values in lists)
        for position in range(len(lists[0]))
    ]


def _columns(made: list[Any]) -> tuple[list[Any], ...]:
    """The results of one call per parameter, as a list per output."""
    rows = [results if isinstance(results, tuple) else (results,) for results in made]
    return tuple(list(column) for column in zip(*rows, strict=True))


def _fused(one: OpDef) -> OpDef:
    """Declare the operator that does the work of several operators of type ``one``."""
    slots = [slot.name + ("[]?" if slot.optional else "[]") for slot in one.inputs]

    def infer(*lists: list[Spec]) -> tuple[list[Spec], ...]:
        require(
            all(len(specs) in (0, len(lists[0])) for specs in lists),
            "all inputs must have as many variables as Param",
        )
        assert one.infer is not None
        return _columns([one.infer(*specs) for specs in each(lists)])

    def kernel(xp: Any, *lists: list[Any], **attrs: Any) -> tuple[list[Any], ...]:
        return _columns([one.kernel(xp, *values, **attrs) for values in each(lists)])

    def samples(r: SampleRng) -> list[Sample]:
        needed = " ".join(slot.name for slot in one.inputs if not slot.optional)
        parts = [drawn(r, needed).inputs for _ in range(3)]
        assert one.samples is not None
        attrs = {name: one.samples(r)[0].attrs[name] for name in one.required}
        return [Sample({slot: [part[slot] for part in parts] for slot in needed.split()}, attrs)]

    kernel.__doc__ = f"""``{one.type}`` for every parameter of a list, one after another.

    Source: Paddle's pass ``fuse_{one.type}_op_pass``."""
    signature = inspect.signature(one.kernel)
    kernel.__signature__ = signature  # type: ignore[attr-defined] # the attributes are its own
    declare = op(
        f"fused_{one.type}",
        operand_ulps=one.operand_ulps,
        inputs=slots,
        outputs=[slot.name + "[]" for slot in one.outputs],
        infer=infer,
        attrs=one.attrs,
        inplace=one.inplace,
        no_grad=True,
        capturable=True,
        merges=one.type,
        flops=one.flops,
        samples=samples,
    )
    return declare(kernel)


fused_adam, fused_momentum, fused_sgd = map(_fused, (adam, momentum, sgd))
