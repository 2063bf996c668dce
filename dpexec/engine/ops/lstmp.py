"""``lstmp``: a long short-term memory whose outputs are projected to fewer numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, Spec, op, require
from dpexec.engine.ir.signature import default_grad_op
from dpexec.engine.ops._costs import LSTM_CELL
from dpexec.engine.ops._edges import STATES, smaller
from dpexec.engine.ops._lstm import ON_ARRAYS, Activations, Projection, bias_grad, cell_of
from dpexec.engine.ops._recurrent import (
    EMPTY,
    THREE,
    Loops,
    deviating,
    one_level,
    require_shape,
    saturated,
    steps_of,
)
from dpexec.engine.ops.lstm import check_lstm


def projection_kind(proj_activation: str, cell_activation: str) -> str:
    """The activation of projections: in Paddle that of cells, unless it is ``identity``."""
    return "identity" if proj_activation == "identity" else cell_activation


def _infer(
    x: Spec,
    lod: Spec | None,
    h0: Spec | None,
    c0: Spec | None,
    weight: Spec,
    proj_weight: Spec,
    bias: Spec,
    *,
    use_peepholes: bool = True,
    cell_clip: float = 0.0,
    proj_clip: float = 0.0,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
) -> tuple[Spec, Spec, Spec, Spec, Spec]:
    size = check_lstm(
        x,
        bias,
        use_peepholes,
        gate_activation=gate_activation,
        cell_activation=cell_activation,
        candidate_activation=candidate_activation,
        proj_activation=proj_activation,
    )
    require(proj_weight.rank == 2, f"ProjWeight {proj_weight} must be a matrix")
    projected = proj_weight.shape[1]
    require_shape("ProjWeight", proj_weight, (size, projected), x)
    require_shape("Weight", weight, (projected, 4 * size), x)
    require_shape("H0", h0, (one_level(lod), projected), x)
    require_shape("C0", c0, (one_level(lod), size), x)
    for name, bound in (("cell_clip", cell_clip), ("proj_clip", proj_clip)):
        require(bound >= 0, f"{name} must not be negative, but is {bound}")
    result, cell = (x.replace(shape=(x.shape[0], width)) for width in (projected, size))
    batch = cell.replace(lod_level=0)
    return result, cell, x.replace(lod_level=0), batch, batch


def _sample(r: Any, lod: Lod, sizes: tuple[int, int], initial: bool, **attrs: Any) -> Sample:
    size, projected = sizes
    states = {"H0": projected, "C0": size} if initial else {}
    slots = ("Input", "Weight", "ProjWeight", "Bias")
    return Sample(
        {
            "Input": r.normal((lod.rows, 4 * size)),
            "Input@LOD": lod,
            **{slot: r.normal((lod.sequences, width)) for slot, width in states.items()},
            "Weight": r.normal((projected, 4 * size)),
            "ProjWeight": r.normal((size, projected)),
            "Bias": r.normal((1, (7 if attrs.get("use_peepholes", True) else 4) * size)),
        },
        attrs,
        deviates=deviating(size, slots, initial and lod is EMPTY),
    )


def _samples(r: Any) -> list[Sample]:
    kinds = {"gate_activation": "sigmoid", "cell_activation": "sigmoid"}
    plain = {"use_peepholes": False, "cell_activation": "identity"}
    through = {"cell_activation": "sigmoid", "gate_activation": "identity"}
    return [
        _sample(r, THREE, (3, 2), False),
        _sample(r, EMPTY, (2, 3), True),
        _sample(r, EMPTY, (2, 1), False),
        _sample(r, Lod([[0, 2, 3]]), (8, 1), False, use_peepholes=False),
        _sample(r, THREE, (2, 2), True, use_peepholes=False, is_reverse=True),
        _sample(r, THREE, (3, 2), False, cell_clip=0.4, proj_clip=0.3),
        _sample(r, THREE, (2, 3), False, proj_activation="identity", is_reverse=True, **kinds),
        _sample(r, THREE, (2, 1), False, proj_activation="relu", candidate_activation="identity"),
        _sample(r, THREE, (2, 1), False, cell_activation="sigmoid", proj_clip=0.4),
        smaller(
            replace(_sample(r, THREE, (3, 2), False), grad=()),  # they would be denormal
            1e-13,
            "Cell BatchCellPreAct BatchHidden",
            STATES,
        ),
        saturated(r, _sample(r, Lod([[0, 20, 29]]), (3, 2), True, **plain), "Input", "C0"),
        saturated(
            r, _sample(r, THREE, (3, 2), True, use_peepholes=False, **through), "Input", "C0"
        ),
    ]


@op(
    "lstmp",
    inputs="Input Input@LOD H0? C0? Weight ProjWeight Bias",
    outputs="Projection Cell BatchGate BatchCellPreAct BatchHidden",
    infer=_infer,
    samples=_samples,
    operand_ulps=8,
    macs=lambda call: (
        call.size("Input") * call.shape("Weight")[0]
        + call.size("Projection") * call.shape("ProjWeight")[0]
    ),
    flops=per_element("Cell", LSTM_CELL),
)
def lstmp(
    xp: Any,
    x: Any,
    lod: Lod,
    h0: Any,
    c0: Any,
    weight: Any,
    proj_weight: Any,
    bias: Any,
    loops: Loops = ON_ARRAYS,
    *,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    cell_clip: float = 0.0,
    proj_clip: float = 0.0,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
) -> tuple[Any, Any, Any, Any, Any]:
    """Like ``lstm``, but the next step reads ``Projection``: the outputs times ``ProjWeight``.

    Cells and projections may be clipped. ``proj_activation`` only tells whether projections are
    activated; their activation is ``cell_activation``, as in Paddle. ``BatchHidden``, the outputs,
    is for the gradient, too. Gradients come from ``Projection`` only. The remark of ``lstm`` on
    gradients for sizes that are multiples of 8 applies here, too. Source: Paddle op ``lstmp``; Sak,
    Senior, Beaufays, 2014.
    """
    steps = steps_of(lod, is_reverse)
    kinds = gate_activation, cell_activation, candidate_activation
    unit = cell_of(xp, bias, use_peepholes, kinds, cell_clip)
    kind = projection_kind(proj_activation, cell_activation)
    projection = Projection(xp, proj_weight, kind, proj_clip)
    gates = steps.gather(xp, x)
    gates += bias[:, : x.shape[1]]
    made = loops.forward(unit, steps, gates, weight, (h0, c0), projection)
    results, hidden, cells, active = made
    return steps.scatter(xp, results), steps.scatter(xp, cells), gates, active, hidden


_KEPT = ("Projection", "Cell", "BatchGate", "BatchCellPreAct", "BatchHidden")
_GRAD_SLOTS = ("H0", "C0", "Weight", "ProjWeight", "Bias", *_KEPT, "Projection@GRAD")


def _infer_grad(h0: Any, c0: Any, *others: Any) -> tuple[Spec, ...]:
    weight, proj_weight, bias, _, _, _, gates = others[:7]
    return gates, h0 or weight, c0 or weight, weight, proj_weight, bias


@lstmp.grad(
    *("H0?", "C0?", "Weight", "ProjWeight", "Bias"),
    *("Projection", "Projection@LOD", *_KEPT[1:], "Projection@GRAD"),
    infer=_infer_grad,
    operand_ulps=4,
)
def lstmp_grad(
    xp: Any,
    h0: Any,
    c0: Any,
    weight: Any,
    proj_weight: Any,
    bias: Any,
    results: Any,
    lod: Lod,
    cell: Any,
    gates: Any,
    active: Any,
    hidden: Any,
    d_results: Any,
    loops: Loops = ON_ARRAYS,
    *,
    needs: Sequence[bool] = (True,) * 6,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    cell_clip: float = 0.0,
    proj_clip: float = 0.0,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Steps in the opposite order; products for the weights are done once for all of them."""
    steps = steps_of(lod, is_reverse)
    kinds = gate_activation, cell_activation, candidate_activation
    unit = cell_of(xp, bias, use_peepholes, kinds, cell_clip)
    kind = projection_kind(proj_activation, cell_activation)
    projection = Projection(xp, proj_weight, kind, proj_clip)
    first = steps.first(xp, h0), steps.first(xp, c0)
    kept = Activations(steps.gather(xp, results), gates, steps.gather(xp, cell), active, first)
    d_sums = steps.gather(xp, d_results)
    d_gates, d_cell = loops.backward(unit, steps, kept, weight, d_sums, projection)
    outputs = steps.before(xp, kept.results, first[0]) if needs[3] else None
    return (
        steps.scatter(xp, d_gates) if needs[0] else None,
        steps.spread(xp, d_gates[: steps.running] @ weight.T) if needs[1] else None,
        steps.spread(xp, d_cell) if needs[2] else None,
        loops.products(outputs, d_gates) if needs[3] else None,
        loops.products(hidden, d_sums) if needs[4] else None,
        bias_grad(unit, steps, kept, d_gates) if needs[5] else None,
    )


@lstmp.grad_maker
def _grad_maker(context: GradContext) -> list[GradOp]:
    """The offsets are those of the projection, because Paddle's gradient operator has no Input."""
    made = default_grad_op(context, _GRAD_SLOTS, [slot.name for slot in lstmp_grad.outputs])
    inputs = {**made.inputs, **context.offsets("Projection@LOD", "Input")}
    return [GradOp(made.type, inputs, made.outputs, made.attrs)]
