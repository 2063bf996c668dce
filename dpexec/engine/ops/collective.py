"""Operators that combine values of several trainers: ``c_allreduce_sum`` and similar ones.

They connect processes with one device each, in rings that ``c_comm_init`` creates in a startup
program. All trainers run them in the same order. With a single trainer they have no effect.
Source: Paddle ops ``c_allreduce_*``, ``c_broadcast``, ``c_allgather``, ... (for GPUs).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpexec.engine.core.reductions import LARGEST, PRODUCT, REDUCTIONS, SMALLEST, SUM, Reduction
from dpexec.engine.core.rings import Ring, ring_at
from dpexec.engine.ir.opdef import (
    GradContext,
    GradOp,
    InvalidOp,
    OpDef,
    Sample,
    SampleRng,
    Spec,
    op,
    passes_on,
    require,
    same_as,
)
from dpexec.engine.ops._by_executor import executor_op

_declare = functools.partial(op, inputs="X", checks_values=True)


class _Trainers:
    """The trainers of a ring, for one operator.

    Args:
        number: number of the ring.
        rings: the rings of this process.
        share: share of the batch on this device.
        names: names of the operator's variables, by slot.

    Raises:
        InvalidOp: several devices share the batch, or the ring was not created.
    """

    def __init__(
        self,
        number: int,
        *,
        rings: Mapping[int, Ring] | None = None,
        share: float = 1.0,
        names: Mapping[str, list[str]] | None = None,
    ) -> None:
        if share != 1.0:
            raise InvalidOp(
                "it puts values of trainers together that run the program with Executor.run, and "
                "here several devices or trainers share a batch, which sum up gradients by "
                "themselves"
            )
        ring = ring_at(rings or {}, number)
        if ring is None:
            raise InvalidOp(
                f"nobody set up ring {number}: run the startup program with c_comm_init, as "
                "fluid.transpiler.collective makes it, in this scope"
            )
        self._ring = ring
        self.rank, self.size = ring.rank, ring.size
        self._text = f"the collective of {(names or {}).get('Out', ['a value'])[0]}"

    def gather(self, x: Any, senders: Sequence[int]) -> list[Any]:
        """The values of some trainers."""
        return self._ring.gather(x, senders, self._text)

    def reduce(self, xp: Any, how: Reduction, x: Any) -> Any:
        """The values of all trainers, reduced in their order."""
        parts = self.gather(x, range(self.size))
        return how.of(xp, parts) if len(parts) > 1 else parts[0].copy()

    def spread(self, x: Any, root: int) -> Any:
        """The value of one trainer, for all of them."""
        if not 0 <= root < self.size:
            raise InvalidOp(f"there is no trainer {root} (root), only {self.size}")
        return self.gather(x, [root])[0].copy()

    def must_be(self, nranks: int) -> None:
        """Reject another number of trainers."""
        if self.size != nranks:
            raise InvalidOp(f"it is for {nranks} trainers (nranks), but there are {self.size}")


def _samples(**attrs: Any) -> Callable[[SampleRng], list[Sample]]:
    return lambda r: [Sample({"X": r.normal(shape)}, attrs) for shape in ((2, 3), (4,), (2, 1, 2))]


# ---- reductions


def _declare_reduction(how: Reduction) -> OpDef:
    @passes_on(_Trainers)
    def kernel(xp: Any, x: Any, *, ring_id: int = 0, **met: Any) -> Any:
        return _Trainers(ring_id, **met).reduce(xp, how, x)

    kernel.__doc__ = (
        f"The {how.text} of ``x`` over the trainers. Source: Paddle op ``c_allreduce_{how.name}``."
    )
    return _declare(
        f"c_allreduce_{how.name}",
        infer=same_as("X"),
        attrs={"use_calc_stream": False},
        no_grad=how != SUM,
        samples=_samples(),
    )(kernel)


c_allreduce_sum = _declare_reduction(SUM)
for _how in (PRODUCT, LARGEST, SMALLEST):
    _declare_reduction(_how)


@c_allreduce_sum.grad_maker
def c_allreduce_sum_grad(context: GradContext) -> list[GradOp]:
    """The gradients of all trainers are added up, too."""
    inputs = {"X": context.output_grads["Out"]}
    outputs = {"Out": context.input_grads["X"]}
    return [GradOp("c_allreduce_sum", inputs, outputs, context.op.plain_attrs())]


@_declare(
    "allreduce",
    infer=same_as("X"),
    attrs={"sync_mode": False},
    no_grad=True,
    samples=_samples(reduce_type=0),
)
@passes_on(_Trainers)
def allreduce(xp: Any, x: Any, *, reduce_type: int = 0, **met: Any) -> Any:
    """``x`` reduced over the trainers of ring 0. Source: Paddle op ``allreduce``.

    Args:
        xp: the array library.
        x: any array.
        reduce_type: 0 sum, 1 product, 2 largest, 3 smallest value.
        met: the trainers: arguments of ``_Trainers``.
    """
    return _Trainers(0, **met).reduce(xp, REDUCTIONS[reduce_type], x)


# ---- broadcasts


@_declare(
    "c_broadcast",
    infer=same_as("X"),
    attrs={"use_calc_stream": False},
    no_grad=True,
    samples=_samples(root=0),
)
@passes_on(_Trainers)
def c_broadcast(xp: Any, x: Any, *, ring_id: int = 0, root: int = 0, **met: Any) -> Any:
    """``x`` of trainer ``root``, for all. Source: Paddle op ``c_broadcast``."""
    return _Trainers(ring_id, **met).spread(x, root)


@_declare(
    "broadcast",
    infer=same_as("X"),
    attrs={"sync_mode": False},
    no_grad=True,
    samples=_samples(root=0),
)
@passes_on(_Trainers)
def broadcast(xp: Any, x: Any, *, root: int = 0, **met: Any) -> Any:
    """``x`` of trainer ``root`` of ring 0, for all. Source: Paddle op ``broadcast``."""
    return _Trainers(0, **met).spread(x, root)


# ---- concatenation, and parts of sums


def _infer_gathered(x: Spec, *, nranks: int) -> Spec:
    require(len(x.shape) > 0 and nranks > 0, f"it needs rows and trainers, not {x}, {nranks}")
    rows = x.shape[0]
    return x.replace(shape=(rows * nranks if rows >= 0 else rows, *x.shape[1:]))


@_declare(
    "c_allgather",
    infer=_infer_gathered,
    attrs={"use_calc_stream": False},
    samples=_samples(nranks=1),
)
@passes_on(_Trainers)
def c_allgather(xp: Any, x: Any, *, ring_id: int = 0, nranks: int, **met: Any) -> Any:
    """``x`` of all trainers, concatenated by rows. Source: Paddle op ``c_allgather``."""
    trainers = _Trainers(ring_id, **met)
    trainers.must_be(nranks)
    return xp.concatenate(trainers.gather(x, range(nranks)))


@c_allgather.grad_maker
def c_allgather_grad(context: GradContext) -> list[GradOp]:
    """Each trainer gets the sum of the gradients of its rows."""
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


@_declare(
    "c_reducescatter",
    infer=_infer_scattered,
    attrs={"use_calc_stream": False},
    no_grad=True,
    samples=_samples(nranks=1),
)
@passes_on(_Trainers)
def c_reducescatter(xp: Any, x: Any, *, ring_id: int = 0, nranks: int = 1, **met: Any) -> Any:
    """This trainer's rows of the sum of ``x``. Source: Paddle op ``c_reducescatter``."""
    trainers = _Trainers(ring_id, **met)
    trainers.must_be(nranks)
    rows = len(x) // nranks
    return trainers.reduce(xp, SUM, x)[trainers.rank * rows : (trainers.rank + 1) * rows]


# ---- operators without effect, and the setup of rings


@op(
    "c_sync_calc_stream",
    inputs="X",
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
    """The address at which the trainers of a ring connect, for ``c_comm_init``."""


@executor_op(
    "c_comm_init", inputs="X", outputs="", attrs={"nranks": None, "rank": None, "ring_id": 0}
)
def c_comm_init(xp: Any, x: Any) -> None:
    """Create ring ``ring_id``; its members connect at the first operator that needs it."""
