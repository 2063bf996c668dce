"""``gru_unit``: one step of a gated recurrent unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._costs import GRU_CELL, from_gates
from dpexec.engine.ops._gru import ON_ARRAYS, GruCell, weight_grad
from dpexec.engine.ops._recurrent import ACTIVATIONS, require_shape, saturated, unbounded
from dpexec.engine.ops._shapes import require_float

_SIGMOID, _TANH = ACTIVATIONS.index("sigmoid"), ACTIVATIONS.index("tanh")


def _infer(
    x: Spec,
    before: Spec,
    weight: Spec,
    bias: Spec | None,
    *,
    activation: int = _TANH,
    gate_activation: int = _SIGMOID,
) -> tuple[Spec, Spec, Spec]:
    require_float(x, "Input")
    require(before.rank == 2, f"HiddenPrev {before} must be (batch, size)")
    size = before.shape[1]
    require_shape("Input", x, (before.shape[0], 3 * size if size > 0 else -1), x)
    require_shape("HiddenPrev", before, (x.shape[0], size), x)
    require_shape("Weight", weight, (size, 3 * size), x)
    require_shape("Bias", bias, (1, 3 * size), x)
    for name, number in (("activation", activation), ("gate_activation", gate_activation)):
        require(0 <= number < len(ACTIVATIONS), f"{name} must be 0 to 3, but is {number}")
    state = x.replace(shape=(x.shape[0], size), lod_level=0)
    return x.replace(lod_level=0), state, state


def _sample(r: Any, size: int, bias: bool = True, **attrs: Any) -> Sample:
    inputs = {
        "Input": r.normal((4, 3 * size)),
        "HiddenPrev": r.normal((4, size)),
        "Weight": r.normal((size, 3 * size)),
    }
    return Sample(inputs | ({"Bias": r.normal((1, 3 * size))} if bias else {}), attrs)


@op(
    "gru_unit",
    inputs="Input HiddenPrev Weight Bias?",
    outputs="Gate ResetHiddenPrev Hidden",
    infer=_infer,
    samples=lambda r: [
        _sample(r, 3),
        _sample(r, 2, origin_mode=True),
        _sample(r, 2, bias=False, activation=_SIGMOID, gate_activation=_TANH),
        saturated(r, _sample(r, 8, bias=False), "Input"),
    ],
    operand_ulps=4,
    macs=from_gates("Input"),
    flops=per_element("Hidden", GRU_CELL),
)
def gru_unit(
    xp: Any,
    x: Any,
    before: Any,
    weight: Any,
    bias: Any,
    *,
    activation: int = _TANH,
    gate_activation: int = _SIGMOID,
    origin_mode: bool = False,
) -> tuple[Any, Any, Any]:
    """One step of ``gru`` for a batch; activations are 0 identity, 1 sigmoid, 2 tanh, 3 relu.

    Returns activated gates, the states times the reset gate, and the next states.
    Source: Paddle op ``gru_unit``.
    """
    kinds = unbounded(ACTIVATIONS[gate_activation]), unbounded(ACTIVATIONS[activation])
    gates = x.copy() if bias is None else x + bias
    return (gates, *GruCell(xp, weight, *kinds, origin_mode).forward(gates, before))


@gru_unit.grad(
    "Input HiddenPrev Weight Bias? Gate ResetHiddenPrev Hidden@GRAD",
    dense=True,
    operand_ulps=2,
)
def gru_unit_grad(
    xp: Any,
    x: Any,
    before: Any,
    weight: Any,
    bias: Any,
    gates: Any,
    seen: Any,
    d_state: Any,
    *,
    needs: Sequence[bool] = (True,) * 4,
    activation: int = _TANH,
    gate_activation: int = _SIGMOID,
    origin_mode: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """Gradients of gates, states, weight and bias."""
    kinds = unbounded(ACTIVATIONS[gate_activation]), unbounded(ACTIVATIONS[activation])
    unit = GruCell(xp, weight, *kinds, origin_mode)
    d_gates = xp.empty_like(gates)
    d_before = unit.backward(d_state, gates, before, d_gates)
    d_weight = weight_grad(unit, before, seen, d_gates, ON_ARRAYS) if needs[2] else None
    d_bias = d_gates.sum(axis=0, keepdims=True) if needs[3] else None
    return d_gates, d_before, d_weight, d_bias
