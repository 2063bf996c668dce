"""``fusion_lstm``, ``fused_embedding_fc_lstm``: LSTMs that include their input's projection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, passes_on, require
from dpexec.engine.ops._costs import LSTM_CELL, from_rows
from dpexec.engine.ops._edges import STATES, smaller
from dpexec.engine.ops._lstm import ON_ARRAYS
from dpexec.engine.ops._recurrent import EMPTY, THREE, Loops
from dpexec.engine.ops.lookup_table import lookup_table
from dpexec.engine.ops.lstm import infer_lstm, lstm
from dpexec.engine.ops.mul import mul

_SCRATCH = "BatchedInput BatchedHidden BatchedCell ReorderedH0 ReorderedC0"
_FOUR, _SEVEN = 4, 7


def _states_of(
    x: Spec, lod: Spec | None, weight: Spec, bias: Spec, h0: Spec | None, c0: Spec | None,
    **attrs: Any,
) -> tuple[Spec, Spec]:  # fmt: skip
    """The specs of hidden states and cells, those of ``lstm``."""
    require(
        (h0 is None) == (c0 is None), "H0 and C0 must be given together, but one of them is missing"
    )
    hidden, cell, _, _ = infer_lstm(x, lod, h0, c0, weight, bias, **attrs)
    return hidden, cell


@passes_on(infer_lstm)
def _infer(
    x: Spec, lod: Spec | None, weight_x: Spec, weight_h: Spec, bias: Spec, h0: Spec | None,
    c0: Spec | None, **attrs: Any,
) -> tuple[Spec | None, ...]:  # fmt: skip
    require(x.rank == 2, f"X {x} must be a matrix")
    assert mul.infer is not None
    taken = mul.infer(x, weight_x)
    states = _states_of(taken, lod, weight_h, bias, h0, c0, **attrs)
    return (*states, *(None,) * 7)


def _attrs(r: SampleRng, size: int, lod: Lod, initial: bool, **attrs: Any) -> dict[str, Any]:
    """The inputs that both operators have in common."""
    width = (_SEVEN if attrs.get("use_peepholes", True) else _FOUR) * size
    inputs = {"WeightH": r.normal((size, 4 * size)), "Bias": r.normal((1, width))}
    if initial:
        inputs |= {slot: r.normal((lod.sequences, size)) for slot in ("H0", "C0")}
    return inputs


_OTHER_KINDS = {
    "gate_activation": "tanh",
    "cell_activation": "sigmoid",
    "candidate_activation": "relu",
}
_SETTINGS: Sequence[tuple[int, Lod, bool, dict[str, Any]]] = (
    (3, THREE, False, {}),
    (2, THREE, True, {"use_seq": False}),
    (3, THREE, False, {"use_peepholes": False, "is_reverse": True}),
    (8, THREE, True, {"use_peepholes": False, "is_reverse": True, "use_seq": False}),
    (2, EMPTY, True, _OTHER_KINDS),
    (16, Lod([[0, 3]]), False, {"use_seq": False}),
)
"""Sizes, sequences, whether states are given, and attributes of samples."""


def _samples(r: SampleRng) -> list[Sample]:
    found = [
        Sample(
            {
                "X": r.normal((lod.rows, 5)),
                "X@LOD": lod,
                "WeightX": r.normal((5, 4 * size)),
                **_attrs(r, size, lod, initial, **attrs),
            },
            attrs,
        )
        for size, lod, initial, attrs in _SETTINGS
    ]
    return [*found, smaller(found[0], 1e-6, "Hidden Cell", STATES)]


@op(
    "fusion_lstm",
    inputs="X X@LOD WeightX WeightH Bias H0? C0?",
    outputs=f"Hidden Cell XX {_SCRATCH} CheckedCell",
    infer=_infer,
    attrs={"use_seq": True},
    no_grad=True,
    samples=_samples,
    operand_ulps=8,
    macs=from_rows("X", "WeightX", "WeightH"),
    flops=per_element("Hidden", LSTM_CELL),
)
@passes_on(lstm.kernel)
def fusion_lstm(
    xp: Any, x: Any, lod: Lod, weight_x: Any, weight_h: Any, bias: Any, h0: Any, c0: Any,
    loops: Loops = ON_ARRAYS, **attrs: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """``lstm`` of ``X @ WeightX``.

    The other outputs are buffers of Paddle, which stay empty here. Source: Paddle op
    ``fusion_lstm``.
    """
    taken = mul(xp, x, weight_x)
    hidden, cell, _, _ = lstm(xp, taken, lod, h0, c0, weight_h, bias, loops, **attrs)
    return (hidden, cell, *(None,) * 7)


@passes_on(infer_lstm)
def _infer_embedded(
    ids: Spec, lod: Spec | None, table: Spec, weight: Spec, bias: Spec, h0: Spec | None,
    c0: Spec | None, **attrs: Any,
) -> tuple[Spec | None, ...]:  # fmt: skip
    require(
        ids.rank == 2 and ids.dtype == VarType.INT64,
        f"Ids {ids} must be int64 (rows, 1)",
    )
    assert lookup_table.infer is not None
    taken = lookup_table.infer(table, ids)
    states = _states_of(taken, lod, weight, bias, h0, c0, **attrs)
    return (*states, *(None,) * 6)


def _embedded_samples(r: SampleRng) -> list[Sample]:
    found = [
        Sample(
            {
                "Ids": r.integers(0, 6, (lod.rows, 1)),
                "Ids@LOD": lod,
                "Embeddings": r.normal((6, 4 * size)),
                **_attrs(r, size, lod, initial, **attrs),
            },
            attrs,
        )
        for size, lod, initial, attrs in _SETTINGS
    ]
    return [*found, smaller(found[0], 1e-6, "Hidden Cell", STATES)]


@op(
    "fused_embedding_fc_lstm",
    inputs="Ids Ids@LOD Embeddings WeightH Bias H0? C0?",
    outputs=f"Hidden Cell XX {_SCRATCH}",
    infer=_infer_embedded,
    attrs={"use_seq": True},
    no_grad=True,
    checks_values=True,
    samples=_embedded_samples,
    operand_ulps=8,
    macs=from_rows("Hidden", "WeightH"),
    flops=per_element("Hidden", LSTM_CELL),
)
@passes_on(lstm.kernel)
def fused_embedding_fc_lstm(
    xp: Any, ids: Any, lod: Lod, table: Any, weight: Any, bias: Any, h0: Any, c0: Any,
    loops: Loops = ON_ARRAYS, **attrs: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """``lstm`` of the rows of ``Embeddings`` with the numbers ``Ids``.

    The rows already include the product with the input weights, and the first ``4 * size`` numbers
    of ``Bias``; so only the peepholes of ``Bias`` are used. The other outputs are buffers of
    Paddle, which stay empty here. Source: Paddle op ``fused_embedding_fc_lstm``.

    Raises:
        ValueError: an id is no row of ``Embeddings``.
    """
    taken = lookup_table(xp, table, ids)
    unshifted = bias.copy()
    unshifted[:, : taken.shape[1]] = 0
    hidden, cell, _, _ = lstm(xp, taken, lod, h0, c0, weight, unshifted, loops, **attrs)
    return (hidden, cell, *(None,) * 6)
