"""``gru``: a gated recurrent unit over sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._costs import GRU_CELL, from_gates
from dpexec.engine.ops._edges import STATES, smaller
from dpexec.engine.ops._gru import ON_ARRAYS, GruCell, weight_grad
from dpexec.engine.ops._recurrent import (
    EMPTY,
    THREE,
    UNSET,
    Loops,
    one_level,
    require_activations,
    require_shape,
    saturated,
    steps_of,
)
from dpexec.engine.ops._shapes import require_float


def infer_gru(
    x: Spec,
    lod: Spec | None,
    h0: Spec | None,
    weight: Spec,
    bias: Spec | None,
    *,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
) -> tuple[Spec, Spec, Spec, Spec]:
    """The specs of all outputs of ``gru``."""
    require_float(x, "Input")
    require(
        x.rank == 2 and x.shape[1] > 0 and x.shape[1] % 3 == 0,
        f"Input {x} must be (rows, 3 * size)",
    )
    size = x.shape[1] // 3
    wide = weight.shape[-1] if weight.rank == 2 and weight.shape[1] == 3 * weight.shape[0] else 0
    require(
        wide in (0, 3 * size),
        f"Input {x} has columns for {size} units, but Weight {weight} is for {wide // 3}: the "
        f"input must have {wide} columns, as those of layers.fc(..., size={wide})",
    )
    require_shape("Weight", weight, (size, 3 * size), x)
    require_shape("Bias", bias, (1, 3 * size), x)
    require_shape("H0", h0, (one_level(lod), size), x)
    require_activations(activation=activation, gate_activation=gate_activation)
    out = x.replace(shape=(x.shape[0], size))
    batch = out.replace(lod_level=0)
    return x.replace(lod_level=0), batch, batch, out


def _sample(r: Any, lod: Lod, size: int, slots: Sequence[str] = (), **attrs: Any) -> Sample:
    inputs = {"Input": r.normal((lod.rows, 3 * size)), "Input@LOD": lod}
    if "H0" in slots:
        inputs["H0"] = r.normal((lod.sequences, size))
    inputs["Weight"] = r.normal((size, 3 * size))
    if "Bias" in slots:
        inputs["Bias"] = r.normal((1, 3 * size))
    unset = "H0" in slots and lod is EMPTY
    return Sample(inputs, attrs, deviates={"*": UNSET} if unset else {})


def _samples(r: Any) -> list[Sample]:
    return [
        _sample(r, THREE, 3, ("Bias",)),
        _sample(r, EMPTY, 2, ("H0", "Bias"), origin_mode=True),
        _sample(r, EMPTY, 2, ("Bias",), origin_mode=True),
        _sample(r, THREE, 2, ("H0",), is_reverse=True),
        _sample(r, THREE, 2, (), is_reverse=True, origin_mode=True),
        _sample(r, THREE, 2, ("H0", "Bias"), activation="identity", gate_activation="tanh"),
        smaller(
            _sample(r, THREE, 3, ("Bias",)),
            1e-13,
            "Hidden BatchHidden BatchResetHiddenPrev",
            STATES,
        ),
        saturated(r, _sample(r, Lod([[0, 20, 29]]), 3, ("H0",)), "Input", "H0"),
    ]


@op(
    "gru",
    inputs="Input Input@LOD H0? Weight Bias?",
    outputs="BatchGate BatchResetHiddenPrev BatchHidden Hidden",
    infer=infer_gru,
    samples=_samples,
    operand_ulps=4,
    macs=from_gates("Input"),
    flops=per_element("Hidden", GRU_CELL),
)
def gru(
    xp: Any,
    x: Any,
    lod: Lod,
    h0: Any,
    weight: Any,
    bias: Any,
    loops: Loops = ON_ARRAYS,
    *,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    is_reverse: bool = False,
    origin_mode: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """A gated recurrent unit; its input must already be multiplied by the input weights.

    Columns of ``Input`` are for update gate, reset gate and candidate. In the memory of ``Weight``
    ``(size, 3 * size)``, the first ``2 * size ** 2`` numbers are a matrix for the two gates, the
    rest a matrix for the candidate. The states become ``before + update * (candidate - before)``;
    in ``origin_mode`` with ``1 - update``. The outputs ``Batch...`` are for the gradient, with rows
    ordered by step.
    Source: Paddle op ``gru``; Cho et al., 2014 (origin_mode); Chung et al., 2014.
    """
    steps = steps_of(lod, is_reverse)
    unit = GruCell(xp, weight, gate_activation, activation, origin_mode)
    gates = steps.gather(xp, x)
    if bias is not None:
        gates += bias
    seen, states = loops.forward(unit, steps, gates, steps.first(xp, h0))
    return gates, seen, states, steps.scatter(xp, states)


def _infer_grad(
    x: Spec, lod: Spec | None, h0: Spec | None, weight: Spec, bias: Spec | None, *_: Spec
) -> tuple[Spec, ...]:
    return x.replace(lod_level=0), h0 or x, weight, bias or x


@gru.grad(
    "Input Input@LOD H0? Weight Bias?",
    "BatchGate BatchResetHiddenPrev BatchHidden Hidden Hidden@GRAD",
    infer=_infer_grad,
    operand_ulps=4,
)
def gru_grad(
    xp: Any,
    x: Any,
    lod: Lod,
    h0: Any,
    weight: Any,
    bias: Any,
    gates: Any,
    seen: Any,
    states: Any,
    hidden: Any,
    d_hidden: Any,
    loops: Loops = ON_ARRAYS,
    *,
    needs: Sequence[bool] = (True,) * 4,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    is_reverse: bool = False,
    origin_mode: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """Steps in the opposite order; products for the weights are done once for all of them."""
    steps = steps_of(lod, is_reverse)
    unit = GruCell(xp, weight, gate_activation, activation, origin_mode)
    before = steps.before(xp, states, steps.first(xp, h0))
    d_states = steps.gather(xp, d_hidden)
    d_gates, d_first = loops.backward(unit, steps, gates, before, d_states)
    return (
        steps.scatter(xp, d_gates) if needs[0] else None,
        steps.spread(xp, d_first) if needs[1] else None,
        weight_grad(unit, before, seen, d_gates, loops) if needs[2] else None,
        d_gates.sum(axis=0, keepdims=True) if needs[3] else None,
    )
