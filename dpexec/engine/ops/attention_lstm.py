"""``attention_lstm``: an LSTM whose input is, at each step, a weighted mean of its sequence."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._edges import STATES, smaller
from dpexec.engine.ops._lstm import LstmCell
from dpexec.engine.ops._recurrent import EMPTY, THREE, one_level, require_activations, require_shape
from dpexec.engine.ops._shapes import require_float
from dpexec.engine.ops.relu import relu
from dpexec.engine.ops.softmax import softmax


def _infer(
    x: Spec, lod: Spec | None, c0: Spec, h0: Spec | None, attention: Spec, shift: Spec | None,
    scale: Spec | None, scaled_shift: Spec | None, weight: Spec, bias: Spec,
    *, gate_activation: str = "sigmoid", cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
) -> tuple[Spec | None, ...]:  # fmt: skip
    require_float(x, "X")
    require(x.rank == 2, f"X {x} must be a matrix")
    require(
        weight.rank == 2 and weight.shape[1] > 0 and weight.shape[1] % 4 == 0,
        f"LSTMWeight {weight} must be (size + width of X, 4 * size)",
    )
    size, width = weight.shape[1] // 4, x.shape[1]
    rows = size + width if width >= 0 else -1
    require_shape("LSTMWeight", weight, (rows, 4 * size), x)
    require_shape("LSTMBias", bias, (1, 4 * size), x)
    require_shape("AttentionWeight", attention, (rows, 1), x)
    for name, state in (("C0", c0), ("H0", h0)):
        require_shape(name, state, (one_level(lod), size), x)
    numbers = {"Bias": shift, "Scalar": scale, "ScalarBias": scaled_shift}
    for name, number in numbers.items():
        require_shape(f"Attention{name}", number, (1, 1), x)
    require(
        scaled_shift is None or scale is not None,
        "AttentionScalarBias is there, but AttentionScalar is missing",
    )
    require_activations(
        gate_activation=gate_activation,
        cell_activation=cell_activation,
        candidate_activation=candidate_activation,
    )
    out = x.replace(shape=(x.shape[0], size))
    return out, out, x.replace(shape=(x.shape[0], 1), lod_level=0), None, None, None


def _sample(r: SampleRng, lod: Lod, width: int, size: int, *left: str, **attrs: Any) -> Sample:
    inputs = {
        "X": r.normal((lod.rows, width)),
        "X@LOD": lod,
        "C0": r.normal((lod.sequences, size)),
        "H0": r.normal((lod.sequences, size)),
        "AttentionWeight": r.normal((width + size, 1)),
        "AttentionBias": r.normal((1, 1)),
        "AttentionScalar": r.uniform(0.5, 2.0, (1, 1)),
        "AttentionScalarBias": r.normal((1, 1)),
        "LSTMWeight": r.normal((width + size, 4 * size)),
        "LSTMBias": r.normal((1, 4 * size)),
    }
    return Sample({slot: value for slot, value in inputs.items() if slot not in left}, attrs)


def _samples(r: SampleRng) -> list[Sample]:
    kinds = {"gate_activation": "relu", "candidate_activation": "sigmoid"}
    scalars = "AttentionScalar", "AttentionScalarBias"
    return [
        _sample(r, THREE, 3, 2),
        _sample(r, THREE, 8, 8, "H0", *scalars),
        _sample(r, EMPTY, 2, 3, "AttentionBias", "AttentionScalarBias"),
        _sample(r, Lod([[0, 5]]), 4, 1, "H0", cell_activation="identity", **kinds),
        smaller(_sample(r, THREE, 3, 2), 1e-6, "Hidden Cell", STATES),
    ]


@op(
    "attention_lstm",
    inputs="X X@LOD C0 H0? AttentionWeight AttentionBias? AttentionScalar? AttentionScalarBias? "
    "LSTMWeight LSTMBias",
    outputs="Hidden Cell AttentionedX AttentionFCOut LSTMX LSTMOUT",
    infer=_infer,
    no_grad=True,
    samples=_samples,
    operand_ulps=8,
)
def attention_lstm(
    xp: Any, x: Any, lod: Lod, c0: Any, h0: Any, attention: Any, shift: Any, scale: Any,
    scaled_shift: Any, weight: Any, bias: Any,
    *, gate_activation: str = "sigmoid", cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
) -> tuple[Any, ...]:  # fmt: skip
    """An LSTM whose input at each step is a mean of all rows of its sequence, weighted by its cell.

    The weights of the rows are the softmax of ``a = relu(row @ w + cell @ v + AttentionBias)``,
    where w and v are the first and the last rows of ``AttentionWeight``. With ``AttentionScalar``,
    they are the softmax of ``relu(a * AttentionScalar + AttentionScalarBias)``. The first rows of
    ``LSTMWeight`` are for the outputs of the previous step. Its columns, and those of ``LSTMBias``,
    are for forget gate, input gate, output gate and candidate. ``AttentionedX`` is
    ``row @ w + AttentionBias``; the outputs after it are buffers of Paddle, which stay empty here.
    Source: Paddle op ``attention_lstm``.
    """
    width, size = x.shape[1], weight.shape[1] // 4
    cell_of_step = LstmCell(xp, None, gate_activation, cell_activation, candidate_activation)
    of_rows = x @ attention[:width]
    if shift is not None:
        of_rows += shift
    columns = _lstm_columns(xp, size)
    weight, bias = weight[:, columns], bias[:, columns]
    hidden, cells = (xp.empty((len(x), size), x.dtype) for _ in range(2))
    for number, (start, stop) in enumerate(lod.spans()):
        cell = c0[number : number + 1]
        output = None if h0 is None else h0[number : number + 1]
        for row in range(start, stop):
            scores = relu(xp, of_rows[start:stop] + cell @ attention[width:])
            if scale is not None:
                scores = scores * scale
                scores = relu(xp, scores if scaled_shift is None else scores + scaled_shift)
            seen = softmax(xp, scores, axis=0).T @ x[start:stop]
            gates = seen @ weight[size:]
            if output is not None:
                gates += output @ weight[:size]
            cell, _, output = cell_of_step.forward(gates + bias, cell)
            cells[row], hidden[row] = cell[0], output[0]
    return hidden, cells, of_rows, None, None, None


def _lstm_columns(xp: Any, size: int) -> Any:
    """Columns of forget gate, input gate, output gate and candidate, in the order of ``lstm``."""
    forget, taken, shown, new = (xp.arange(i * size, (i + 1) * size) for i in range(4))
    return xp.concatenate([new, taken, forget, shown])
