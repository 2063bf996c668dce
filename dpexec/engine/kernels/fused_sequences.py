"""Fused operators on sequences, lowered to the kernel calls of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.kernels import gru as gated
from dpexec.engine.kernels.contexts import contexts_of
from dpexec.engine.kernels.fused import between, part
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.groups import Group
from dpexec.engine.kernels.lowering import Code, Offsets, Value, lowering
from dpexec.engine.kernels.lstm_code import is_code, lstm
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.kernels.math import log1p_of_any
from dpexec.engine.kernels.products import matrix_product
from dpexec.engine.kernels.shapes import clear, move

__all__: list[str] = []


def _all_steps(
    code: Code, x: Value, lod: Value, h0: Value | None, c0: Value | None, weight: Value,
    bias: Value, made: Sequence[Value | None], attrs: dict[str, Any],
) -> Any:  # fmt: skip
    """The steps of an ``lstm`` whose input has been multiplied by its weight."""
    rows, size = x.shape[0], weight.shape[0]
    states = [given or code.scratch(rows, size) for given in made]
    kept = code.scratch(rows, 4 * size), code.scratch(rows, size)
    return lstm.function(code, x, lod, h0, c0, weight, bias, *states, *kept, **attrs)


@lowering("fusion_lstm", attrs=lstm.attrs)
def fusion_lstm(
    code: Code, x: Value, lod: Value, weight_x: Value, weight: Value, bias: Value,
    h0: Value | None, c0: Value | None, *outputs: Value | None, **attrs: Any,
) -> Any:  # fmt: skip
    """One product for all rows, then the steps."""
    if not is_code(x, (weight_x, h0, c0, weight, bias)):
        return False
    taken = code.scratch(x.shape[0], weight_x.shape[1])
    matrix_product(code, x, weight_x, taken, (x.shape[0], weight_x.shape[1], x.shape[1]))
    return _all_steps(code, taken, lod, h0, c0, weight, bias, outputs[:2], attrs)


@lowering("fused_embedding_fc_lstm", attrs=lstm.attrs)
def fused_embedding_fc_lstm(
    code: Code, ids: Value, lod: Value, table: Value, weight: Value, bias: Value,
    h0: Value | None, c0: Value | None, *outputs: Value | None, **attrs: Any,
) -> Any:  # fmt: skip
    """One row of the table for each id, then the steps; only the peepholes of the bias are used."""
    taken = code.scratch(ids.shape[0], table.shape[1])
    if not is_code(taken, (table, h0, c0, weight, bias)):
        return False
    if not part(code, "lookup_table", [table, ids], [taken]):
        return False
    gates, width = taken.shape[1], bias.size
    peepholes = code.scratch(1, width)
    clear(code, peepholes, 0.0)
    if width > gates:
        move(code, bias, peepholes, (width - gates,), (gates, (1,)), (gates, (1,)))
    return _all_steps(code, taken, lod, h0, c0, weight, peepholes, outputs[:2], attrs)


@lowering("fusion_gru", attrs=gated.gru.attrs)
def fusion_gru(
    code: Code, x: Value, lod: Value, h0: Value | None, weight_x: Value, weight: Value,
    bias: Value | None, *outputs: Value | None, **attrs: Any,
) -> Any:  # fmt: skip
    """One product for all rows, then the steps."""
    kinds = attrs["gate_activation"], attrs["activation"]
    if not gated.is_code(x, (weight_x, h0, weight, bias), *kinds):
        return False
    rows, size = x.shape[0], weight.shape[0]
    taken = code.scratch(rows, 3 * size)
    matrix_product(code, x, weight_x, taken, (x.shape[0], weight_x.shape[1], x.shape[1]))
    kept = code.scratch(rows, 3 * size), code.scratch(rows, size), code.scratch(rows, size)
    hidden = outputs[-1] or code.scratch(rows, size)
    return gated.gru.function(code, taken, lod, h0, weight, bias, *kept, hidden, **attrs)


@lowering("fusion_seqconv_eltadd_relu")
def fusion_seqconv_eltadd_relu(
    code: Code, x: Value, lod: Value, weight: Value, bias: Value, out: Value,
    contexts: Value | None, *, contextLength: int, contextStart: int,
) -> Any:  # fmt: skip
    """Contexts and one product; one pass for bias and ``relu``."""
    k, n = weight.shape
    if not single(x, weight, bias) or bias.shape[-1] != n:
        return False
    group, product, shifted = Group(code), between(out), between(out)
    found = contexts_of(group, x, lod, contextStart, contextLength, contexts)
    matrix_product(group, found, weight, product, (x.shape[0], n, k))
    part(group, "elementwise_add", [product, bias], [shifted], axis=-1)
    part(group, "relu", [shifted], [out])
    return group.finish([out] if contexts is None else [out, contexts])


# ---- pools, side by side


@kernel
def _every_row(rows: Count, offsets: Integers) -> int:
    """Offsets of sequences of one row each. Arguments: rows, offsets."""
    for row in range(rows + 1):
        offsets[row] = row
    return 0


@kernel
def _shows_and_clicks(rows: Count, width: Count, x: Floats, out: Floats) -> int:
    """The log of the first column, the log of the second minus the first log, the other columns.

    Arguments: rows, their width, numbers, result.
    """
    for row in range(rows):
        first = row * width
        for j in range(first + 2, first + width):
            out[j] = x[j]
        shows = log1p_of_any(x[first])
        out[first] = shows
        out[first + 1] = log1p_of_any(x[first + 1]) - shows
    return 0


@lowering("cvm")
def cvm(code: Code, x: Value, counts: Value, out: Value, *, use_cvm: bool) -> Any:
    """One pass."""
    rows, width = x.shape
    if not single(x):
        return False
    if use_cvm:
        return code.emit(_shows_and_clicks, rows, width, x, out)
    return move(code, x, out, (rows, width - 2), (2, (width, 1)), (0, (width - 2, 1)))


@lowering("cvm_grad")
def cvm_grad(code: Code, x: Value, counts: Value, d_out: Value, dx: Value, *, use_cvm: bool) -> Any:
    """Two copies: the counts, and the gradient of the other columns."""
    if not single(x, counts, d_out):
        return False
    (rows, width), rest = x.shape, x.shape[1] - 2
    start, place = (2, (width, 1)) if use_cvm else (0, (rest, 1)), (2, (width, 1))
    move(code, counts, dx, (rows, 2), (0, (2, 1)), (0, (width, 1)))
    return move(code, d_out, dx, (rows, rest), start, place)


def _pools(
    code: Code, parts: list[Value], lods: list[Value], counts: Value | None, out: Value,
    made: Offsets | None, pooltype: str,
) -> Any:  # fmt: skip
    """Pool every variable, and copy the results side by side; each row is a sequence."""
    if not single(*parts, counts):
        return False
    rows, width = lods[0].shape[0] - 1, parts[0].shape[1]
    pooled = []
    for x, lod in zip(parts, lods, strict=True):
        pooled.append(code.scratch(rows, width))
        part(code, "sequence_pool", [x, lod], [pooled[-1], None, None], pooltype=pooltype)
        if counts is not None:
            part(code, "cvm", [pooled[-1], counts], [pooled[-1]], use_cvm=True)
    part(code, "concat", [pooled, None], [out], axis=1)
    if made is not None:
        code.emit(_every_row, rows, made)


@lowering("fusion_seqpool_concat")
def fusion_seqpool_concat(
    code: Code, parts: list[Value], lods: list[Value], out: Value, made: Offsets | None,
    *, pooltype: str,
) -> Any:  # fmt: skip
    """The calls of every pool, and one copy of each."""
    return _pools(code, parts, lods, None, out, made, pooltype)


@lowering("fusion_seqpool_cvm_concat")
def fusion_seqpool_cvm_concat(
    code: Code, parts: list[Value], lods: list[Value], counts: Value, out: Value,
    made: Offsets | None, *, pooltype: str,
) -> Any:  # fmt: skip
    """The calls of every pool, a pass over each, and one copy of each."""
    return _pools(code, parts, lods, counts, out, made, pooltype)
