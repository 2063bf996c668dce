"""``fluid.layers.collective``: collectives between several trainers."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core import unique_name
from dpexec.engine.ir.program import default_main_program
from dpexec.engine.ir.variable import Variable

__all__: list[str] = []

_REDUCTIONS = ("sum", "prod", "max", "min")


def _output(x: Variable, middle: str, **options: Any) -> Variable:
    name = unique_name.generate(f"{x.name}.{middle}")
    kept: dict[str, Any] = {"shape": x.shape, "dtype": x.dtype, "type": x.type, **options}
    block = default_main_program().current_block()
    return block.create_var(name=name, persistable=x.persistable, **kept)


def _append(type: str, x: Variable, out: Variable, **attrs: Any) -> Variable:
    block = default_main_program().current_block()
    block.append_op(type, {"X": [x]}, {"Out": [out]}, attrs)
    return out


def _check_reduction(reduce_type: str) -> None:
    if reduce_type not in _REDUCTIONS:
        raise TypeError(f"reduce type can only be {'|'.join(_REDUCTIONS)}, not {reduce_type!r}")


def _allreduce(
    x: Variable, out: Variable | None = None, reduce_type: str = "sum", sync_mode: bool = False
) -> Variable:
    """All-reduce ``x`` over the trainers of ring 0.

    Args:
        x: the value of this trainer.
        out: takes the result; None makes a variable.
        reduce_type: ``"sum"``, ``"prod"``, ``"max"`` or ``"min"``.
        sync_mode: ignored; accepted for compatibility.

    Raises:
        TypeError: there is no such reduction.
    """
    _check_reduction(reduce_type)
    out = _output(x, "tmp", stop_gradient=True) if out is None else out
    number = _REDUCTIONS.index(reduce_type)
    return _append("allreduce", x, out, reduce_type=number, sync_mode=sync_mode)


def _broadcast(x: Variable, root: int, sync_mode: bool = False) -> Variable:
    """Overwrite ``x`` with the value of trainer ``root`` of ring 0."""
    return _append("broadcast", x, x, sync_mode=sync_mode, root=root)


def _c_allreduce(
    x: Variable,
    out: Variable | None = None,
    reduce_type: str = "sum",
    ring_id: int = 0,
    use_calc_stream: bool = False,
) -> Variable:
    """All-reduce ``x`` over the trainers of a ring.

    Args:
        x: the value of this trainer.
        out: takes the result; None makes a variable.
        reduce_type: ``"sum"``, ``"prod"``, ``"max"`` or ``"min"``.
        ring_id: the ring.
        use_calc_stream: ignored; accepted for compatibility.

    Raises:
        TypeError: there is no such reduction.
    """
    _check_reduction(reduce_type)
    kind = f"c_allreduce_{reduce_type}"
    out = _output(x, kind) if out is None else out
    return _append(kind, x, out, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_broadcast(
    x: Variable, root: int = 0, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """Overwrite ``x`` with the value of trainer ``root`` of a ring."""
    attrs = {"root": root, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _append("c_broadcast", x, x, **attrs)


def _c_allgather(
    x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """The rows of all ``nranks`` trainers of a ring, concatenated."""
    rows = x.shape[0] * nranks if x.shape[0] > 0 else x.shape[0]
    out = _output(x, "c_allgather", shape=(rows, *x.shape[1:]))
    attrs = {"nranks": nranks, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _append("c_allgather", x, out, **attrs)


def _c_reducescatter(
    x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """This trainer's rows of the sum of ``x`` over the ``nranks`` trainers of a ring.

    Raises:
        TypeError: ``x`` is no Variable.
        ValueError: the number of rows is not divisible by ``nranks``.
    """
    if not isinstance(x, Variable):
        raise TypeError("x must be a Variable")
    rows = x.shape[0]
    if rows > 0 and rows % nranks:
        raise ValueError(f"x.shape[0]({rows}) cannot be evenly divided by nranks({nranks})")
    shape = (rows // nranks if rows > 0 else rows, *x.shape[1:])
    out = _output(x, "c_reducescatter", shape=shape)
    attrs = {"nranks": nranks, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _append("c_reducescatter", x, out, **attrs)


def _c_sync_calc_stream(x: Variable) -> Variable:
    """Return ``x``: there are no streams to wait for."""
    return _append("c_sync_calc_stream", x, x)


def _c_sync_comm_stream(x: Variable, ring_id: int) -> Variable:
    """Return ``x``: there are no streams to wait for."""
    return _append("c_sync_comm_stream", x, x, ring_id=ring_id)
