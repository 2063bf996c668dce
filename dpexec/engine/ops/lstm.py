"""``lstm``: a long short-term memory over sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._costs import LSTM_CELL, from_gates
from dpexec.engine.ops._edges import STATES, smaller
from dpexec.engine.ops._lstm import ON_ARRAYS, Activations, bias_grad, cell_of
from dpexec.engine.ops._recurrent import (
    EMPTY,
    THREE,
    Loops,
    deviating,
    one_level,
    require_activations,
    require_shape,
    saturated,
    steps_of,
)
from dpexec.engine.ops._shapes import require_float


def check_lstm(x: Spec, bias: Spec, use_peepholes: bool, **kinds: str) -> int:
    """Check what ``lstm`` and ``lstmp`` have in common; returns the number of cells."""
    require_float(x, "Input")
    require(
        x.rank == 2 and x.shape[1] > 0 and x.shape[1] % 4 == 0,
        f"Input {x} must be (rows, 4 * size)",
    )
    size, wide = x.shape[1] // 4, 7 if use_peepholes else 4
    cells, rest = divmod(bias.shape[1], wide) if bias.rank == 2 else (size, 0)
    require(
        rest or cells == size,
        f"Input {x} has columns for {size} cells, but Bias {bias} is for {cells}: the input must "
        f"have 4 * {cells} columns, as those of layers.fc(..., size={4 * cells})",
    )
    require_shape("Bias", bias, (1, wide * size), x)
    require_activations(**kinds)
    return size


def infer_lstm(
    x: Spec,
    lod: Spec | None,
    h0: Spec | None,
    c0: Spec | None,
    weight: Spec,
    bias: Spec,
    *,
    use_peepholes: bool = True,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
) -> tuple[Spec, Spec, Spec, Spec]:
    """The specs of all outputs of ``lstm``."""
    size = check_lstm(
        x,
        bias,
        use_peepholes,
        gate_activation=gate_activation,
        cell_activation=cell_activation,
        candidate_activation=candidate_activation,
    )
    require_shape("Weight", weight, (size, 4 * size), x)
    for name, state in (("H0", h0), ("C0", c0)):
        require_shape(name, state, (one_level(lod), size), x)
    out = x.replace(shape=(x.shape[0], size))
    return out, out, x.replace(lod_level=0), out.replace(lod_level=0)


def _sample(r: Any, lod: Lod, size: int, initial: Sequence[str] = (), **attrs: Any) -> Sample:
    width = (7 if attrs.get("use_peepholes", True) else 4) * size
    return Sample(
        {
            "Input": r.normal((lod.rows, 4 * size)),
            "Input@LOD": lod,
            **{slot: r.normal((lod.sequences, size)) for slot in initial},
            "Weight": r.normal((size, 4 * size)),
            "Bias": r.normal((1, width)),
        },
        attrs,
        deviates=deviating(size, ("Input", "Weight", "Bias"), bool(initial) and lod is EMPTY),
    )


def _samples(r: Any) -> list[Sample]:
    kinds = {"gate_activation": "tanh", "cell_activation": "sigmoid"}
    plain = {"use_peepholes": False, "cell_activation": "identity"}
    return [
        _sample(r, THREE, 3),
        _sample(r, EMPTY, 2, ("H0", "C0")),
        _sample(r, EMPTY, 2, is_reverse=True),
        _sample(r, THREE, 2, ("H0", "C0")),
        _sample(r, THREE, 2, ("H0", "C0"), use_peepholes=False, is_reverse=True),
        _sample(r, THREE, 2, ("C0",), candidate_activation="identity", is_reverse=True, **kinds),
        _sample(r, Lod([[0, 2, 3]]), 8, use_peepholes=False),
        _sample(r, THREE, 2, cell_activation="relu", use_peepholes=False),
        smaller(_sample(r, THREE, 3), 1e-13, "Hidden Cell BatchCellPreAct", STATES),
        saturated(r, _sample(r, Lod([[0, 20, 29]]), 3, ("H0", "C0"), **plain), "Input", "C0"),
    ]


@op(
    "lstm",
    inputs="Input Input@LOD H0? C0? Weight Bias",
    outputs="Hidden Cell BatchGate BatchCellPreAct",
    infer=infer_lstm,
    samples=_samples,
    operand_ulps=4,
    macs=from_gates("Input"),
    flops=per_element("Hidden", LSTM_CELL),
)
def lstm(
    xp: Any,
    x: Any,
    lod: Lod,
    h0: Any,
    c0: Any,
    weight: Any,
    bias: Any,
    loops: Loops = ON_ARRAYS,
    *,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
) -> tuple[Any, Any, Any, Any]:
    """A long short-term memory; its input must already be multiplied by the input weights.

    ``Weight`` ``(size, 4 * size)`` multiplies the outputs of the previous step. Its columns, and
    those of ``Input``, are for candidate, input gate, forget gate and output gate. ``Bias`` has the
    same order, then the weights of the cells for the three gates (peepholes). ``BatchGate`` and
    ``BatchCellPreAct``, activated gates and cells, are for the gradient, with rows ordered by step.
    Gradients come from ``Hidden`` only, not from ``Cell``. On processors with AVX, if size is a
    multiple of 8, the gradients of Paddle 1.8 are not the derivatives of its outputs; here they
    always are. Arguments of sigmoids are limited to -40 to 13. Source: Paddle op ``lstm``; Gers,
    Schmidhuber, 2000.
    """
    steps = steps_of(lod, is_reverse)
    unit = cell_of(
        xp, bias, use_peepholes, (gate_activation, cell_activation, candidate_activation)
    )
    gates = steps.gather(xp, x)
    gates += bias[:, : x.shape[1]]
    hidden, _, cells, active = loops.forward(unit, steps, gates, weight, (h0, c0))
    return steps.scatter(xp, hidden), steps.scatter(xp, cells), gates, active


def _infer_grad(
    x: Spec, lod: Spec | None, h0: Spec | None, c0: Spec | None, weight: Spec, bias: Spec, *_: Spec
) -> tuple[Spec, ...]:
    return x.replace(lod_level=0), h0 or x, c0 or x, weight, bias


@lstm.grad(
    "Input Input@LOD H0? C0? Weight Bias Hidden Cell BatchGate BatchCellPreAct Hidden@GRAD",
    infer=_infer_grad,
    operand_ulps=4,
)
def lstm_grad(
    xp: Any,
    x: Any,
    lod: Lod,
    h0: Any,
    c0: Any,
    weight: Any,
    bias: Any,
    hidden: Any,
    cell: Any,
    gates: Any,
    active: Any,
    d_hidden: Any,
    loops: Loops = ON_ARRAYS,
    *,
    needs: Sequence[bool] = (True,) * 5,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
) -> tuple[Any, Any, Any, Any, Any]:
    """Steps in the opposite order; products for the weights are done once for all of them."""
    steps = steps_of(lod, is_reverse)
    unit = cell_of(
        xp, bias, use_peepholes, (gate_activation, cell_activation, candidate_activation)
    )
    first = steps.first(xp, h0), steps.first(xp, c0)
    kept = Activations(steps.gather(xp, hidden), gates, steps.gather(xp, cell), active, first)
    d_gates, d_cell = loops.backward(unit, steps, kept, weight, steps.gather(xp, d_hidden))
    outputs = steps.before(xp, kept.results, first[0]) if needs[3] else None
    return (
        steps.scatter(xp, d_gates) if needs[0] else None,
        steps.spread(xp, d_gates[: steps.running] @ weight.T) if needs[1] else None,
        steps.spread(xp, d_cell) if needs[2] else None,
        loops.products(outputs, d_gates) if needs[3] else None,
        bias_grad(unit, steps, kept, d_gates) if needs[4] else None,
    )
