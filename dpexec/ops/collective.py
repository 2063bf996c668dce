"""Operators that put values of several trainers together: ``c_allreduce_sum`` and its kin.

They work between processes with one device each, in the rings that ``c_comm_init`` of a startup
program sets up; every trainer comes to them in the same order. With a single trainer they change
nothing. Source: Paddle ops ``c_allreduce_*``, ``c_broadcast``, ``c_allgather``, ... (for GPUs).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpexec.core.rings import Ring, ring_at
from dpexec.ir.opdef import (
    GradContext,
    GradOp,
    InvalidOp,
    OpDef,
    Sample,
    SampleRng,
    Spec,
    op,
    require,
    same_as,
)
from dpexec.ops._by_executor import executor_op

__all__: list[str] = []

_NONE: Mapping[int, Ring] = {}


def _find(rings: Mapping[int, Ring], number: int, share: float) -> Ring:
    if share != 1.0:
        raise InvalidOp(
            "it puts values of trainers together that run the program with Executor.run, and here "
            "several devices or trainers share a batch, which sum up gradients by themselves"
        )
    ring = ring_at(rings, number)
    if ring is None:
        raise InvalidOp(
            f"nobody set up ring {number}: run the startup program with c_comm_init, as "
            "fluid.transpiler.collective makes it, in this scope"
        )
    return ring


def _gather(ring: Ring, x: Any, senders: Sequence[int], names: Mapping[str, Any]) -> list[Any]:
    return ring.gather(x, senders, f"the collective of {names.get('Out', ['a value'])[0]}")


def _samples(**attrs: Any) -> Callable[[SampleRng], list[Sample]]:
    return lambda r: [Sample({"X": r.normal(shape)}, attrs) for shape in ((2, 3), (4,), (2, 1, 2))]


# ---- reductions


def _all_reduce(xp: Any, kind: str, ring: Ring, x: Any, names: Mapping[str, Any]) -> Any:
    """The values of all members, put together in their order."""
    combine = {"sum": xp.add, "prod": xp.multiply, "max": xp.maximum, "min": xp.minimum}[kind]
    parts = _gather(ring, x, range(ring.size), names)
    return functools.reduce(combine, parts[1:], parts[0].copy())


def _declare(kind: str, meaning: str) -> OpDef:
    def kernel(
        xp: Any,
        x: Any,
        *,
        rings: Mapping[int, Ring] = _NONE,
        share: float = 1.0,
        names: Mapping[str, Any] = _NONE,  # type: ignore[assignment]
        ring_id: int = 0,
    ) -> Any:
        return _all_reduce(xp, kind, _find(rings, ring_id, share), x, names)

    kernel.__doc__ = (
        f"The {meaning} of ``x`` over the trainers. Source: Paddle op ``c_allreduce_{kind}``."
    )
    return op(
        f"c_allreduce_{kind}",
        inputs="X",
        outputs="Out",
        infer=same_as("X"),
        attrs={"use_calc_stream": False},
        no_grad=kind != "sum",
        checks_values=True,
        samples=_samples(),
    )(kernel)


c_allreduce_sum = _declare("sum", "sum")
_declare("prod", "product")
_declare("max", "largest value")
_declare("min", "smallest value")


@c_allreduce_sum.grad_maker
def c_allreduce_sum_grad(context: GradContext) -> list[GradOp]:
    """The gradients of all trainers are added up, too."""
    inputs = {"X": context.output_grads["Out"]}
    outputs = {"Out": context.input_grads["X"]}
    return [GradOp("c_allreduce_sum", inputs, outputs, context.op.plain_attrs())]


@op(
    "allreduce",
    inputs="X",
    outputs="Out",
    infer=same_as("X"),
    attrs={"sync_mode": False},
    no_grad=True,
    checks_values=True,
    samples=_samples(reduce_type=0),
)
def allreduce(
    xp: Any,
    x: Any,
    *,
    rings: Mapping[int, Ring] = _NONE,
    share: float = 1.0,
    names: Mapping[str, Any] = _NONE,  # type: ignore[assignment]
    reduce_type: int = 0,
) -> Any:
    """``x`` over the trainers of ring 0, put together. Source: Paddle op ``allreduce``.

    Args:
        xp: the array library.
        x: any array.
        rings: those of this process.
        share: of the batch on this device.
        names: of the variables, by slot.
        reduce_type: 0 sum, 1 product, 2 largest, 3 smallest value.
    """
    kind = ("sum", "prod", "max", "min")[reduce_type]
    return _all_reduce(xp, kind, _find(rings, 0, share), x, names)


# ---- one for all


def _spread(ring: Ring, x: Any, root: int, names: Mapping[str, Any]) -> Any:
    if not 0 <= root < ring.size:
        raise InvalidOp(f"there is no trainer {root} (root), only {ring.size}")
    return _gather(ring, x, [root], names)[0].copy()


@op(
    "c_broadcast",
    inputs="X",
    outputs="Out",
    infer=same_as("X"),
    attrs={"use_calc_stream": False},
    no_grad=True,
    checks_values=True,
    samples=_samples(root=0),
)
def c_broadcast(
    xp: Any,
    x: Any,
    *,
    rings: Mapping[int, Ring] = _NONE,
    share: float = 1.0,
    names: Mapping[str, Any] = _NONE,  # type: ignore[assignment]
    ring_id: int = 0,
    root: int = 0,
) -> Any:
    """``x`` of trainer ``root``, for all. Source: Paddle op ``c_broadcast``."""
    return _spread(_find(rings, ring_id, share), x, root, names)


@op(
    "broadcast",
    inputs="X",
    outputs="Out",
    infer=same_as("X"),
    attrs={"sync_mode": False},
    no_grad=True,
    checks_values=True,
    samples=_samples(root=0),
)
def broadcast(
    xp: Any,
    x: Any,
    *,
    rings: Mapping[int, Ring] = _NONE,
    share: float = 1.0,
    names: Mapping[str, Any] = _NONE,  # type: ignore[assignment]
    root: int = 0,
) -> Any:
    """``x`` of trainer ``root`` of ring 0, for all. Source: Paddle op ``broadcast``."""
    return _spread(_find(rings, 0, share), x, root, names)


# ---- one after another, and parts of sums


def _check_size(ring: Ring, nranks: int) -> None:
    if ring.size != nranks:
        raise InvalidOp(f"it is for {nranks} trainers (nranks), but there are {ring.size}")


def _infer_gathered(x: Spec, *, nranks: int = 1) -> Spec:
    require(len(x.shape) > 0 and nranks > 0, f"it needs rows and trainers, not {x}, {nranks}")
    rows = x.shape[0]
    return x.replace(shape=(rows * nranks if rows >= 0 else rows, *x.shape[1:]))


@op(
    "c_allgather",
    inputs="X",
    outputs="Out",
    infer=_infer_gathered,
    attrs={"use_calc_stream": False},
    checks_values=True,
    samples=_samples(nranks=1),
)
def c_allgather(
    xp: Any,
    x: Any,
    *,
    rings: Mapping[int, Ring] = _NONE,
    share: float = 1.0,
    names: Mapping[str, Any] = _NONE,  # type: ignore[assignment]
    ring_id: int = 0,
    nranks: int = 1,
) -> Any:
    """``x`` of all trainers, one below the other. Source: Paddle op ``c_allgather``."""
    ring = _find(rings, ring_id, share)
    _check_size(ring, nranks)
    return xp.concatenate(_gather(ring, x, range(nranks), names))


@c_allgather.grad_maker
def c_allgather_grad(context: GradContext) -> list[GradOp]:
    """Each trainer gets the sum of what comes for its rows."""
    inputs = {"X": context.output_grads["Out"]}
    outputs = {"Out": context.input_grads["X"]}
    return [GradOp("c_reducescatter", inputs, outputs, context.op.plain_attrs())]


def _infer_scattered(x: Spec, *, nranks: int = 1) -> Spec:
    rows = x.shape[0] if x.shape else 0
    require(
        nranks > 0 and (rows < 0 or (rows > 0 and rows % nranks == 0)),
        f"the rows of {x} cannot be divided among {nranks} trainers",
    )
    return x.replace(shape=(rows // nranks if rows >= 0 else rows, *x.shape[1:]))


@op(
    "c_reducescatter",
    inputs="X",
    outputs="Out",
    infer=_infer_scattered,
    attrs={"use_calc_stream": False},
    no_grad=True,
    checks_values=True,
    samples=_samples(nranks=1),
)
def c_reducescatter(
    xp: Any,
    x: Any,
    *,
    rings: Mapping[int, Ring] = _NONE,
    share: float = 1.0,
    names: Mapping[str, Any] = _NONE,  # type: ignore[assignment]
    ring_id: int = 0,
    nranks: int = 1,
) -> Any:
    """The rows of this trainer of the sum of ``x``. Source: Paddle op ``c_reducescatter``."""
    ring = _find(rings, ring_id, share)
    _check_size(ring, nranks)
    rows = len(x) // nranks
    return _all_reduce(xp, "sum", ring, x, names)[ring.rank * rows : (ring.rank + 1) * rows]


# ---- what has nothing to do here


@op(
    "c_sync_calc_stream",
    inputs="X",
    outputs="Out",
    infer=same_as("X"),
    no_grad=True,
    samples=_samples(),
)
def c_sync_calc_stream(xp: Any, x: Any) -> Any:
    """``x``: nothing is to be waited for. Source: Paddle op ``c_sync_calc_stream``."""
    return x.copy()


@op(
    "c_sync_comm_stream",
    inputs="X",
    outputs="Out",
    infer=same_as("X"),
    attrs={"ring_id": 0},
    no_grad=True,
    samples=_samples(),
)
def c_sync_comm_stream(xp: Any, x: Any) -> Any:
    """``x``: nothing is to be waited for. Source: Paddle op ``c_sync_comm_stream``."""
    return x.copy()


@executor_op(
    "c_gen_nccl_id",
    inputs="",
    outputs="Out",
    attrs={"endpoint": "", "other_endpoints": [], "rank": 0},
)
def c_gen_nccl_id(xp: Any) -> None:
    """Where the trainers of a ring meet, for ``c_comm_init``."""


@executor_op(
    "c_comm_init", inputs="X", outputs="", attrs={"nranks": None, "rank": None, "ring_id": 0}
)
def c_comm_init(xp: Any, x: Any) -> None:
    """Set up ring ``ring_id``; its members meet at the first operator that needs it."""
