"""``dgc``, ``dgc_clip_by_norm`` and ``dgc_momentum``: only the largest gradients are sent.

A device accumulates its gradients locally (with momentum) and sends only the few largest sums; the
rest keeps accumulating. The sent sums are a :class:`SelectedRows` of single elements, so that
collectives move and add only those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._optimizers import scalar
from dpexec.engine.ops._shapes import require_shape_of


def _like_param(param: Spec, **others: Spec) -> None:
    for name, spec in others.items():
        require_shape_of(spec, param, name, "Param")


def _infer_dgc(
    u: Spec, v: Spec, grad: Spec, param: Spec, step: Spec, nranks: Spec, *, sparsity: Any = ()
) -> tuple[Spec | None, ...]:
    _like_param(param, U=u, V=v, Grad=grad)
    require(step.size in (1, -1), f"current_step {step} must have one element")
    require(
        len(sparsity) > 0 and all(0 <= share < 1 for share in sparsity),
        f"attribute sparsity is {list(sparsity)}, but must hold numbers from 0 to below 1",
    )
    return u, v, None, grad, Spec((1,), VarType.FP32), None


@op(
    "dgc",
    inputs="U V Grad Param current_step nranks",
    outputs="U_out V_out EncodeGrad? Grad_out k GatherBuff?",
    infer=_infer_dgc,
    no_grad=True,
    own_state=True,
    elements="Grad_out",
    samples=lambda r: [
        Sample(
            {
                "U": np.array([1.0, 0.0, 2.0, 0.0]),
                "V": np.array([0.0, 4.0, 0.0, 0.0]),
                "Grad": np.array([1.0, 0.5, 0.0, 3.0]),
                "Param": np.ones(4),
                "current_step": np.array([1.0], np.float32),
                "nranks": np.array([1.0], np.float32),
            },
            {"m": 0.5, "sparsity": [0.5], "rampup_begin_step": 2.0},
            expected={"Grad_out": np.array([1.0, 0.5, 0.0, 3.0])},
        ),
    ],
)
def dgc(
    xp: Any,
    u: Any,
    v: Any,
    grad: Any,
    param: Any,
    current_step: Any,
    nranks: Any,
    *,
    share: float = 1.0,
    m: float = 0.9,
    use_nesterov: bool = True,
    sparsity: Sequence[float] = (0.999,),
    rampup_begin_step: float = 0.0,
    rampup_step: float = 0.0,
    regular_coeff: float = 0.0,
    regular_type: int = 0,
) -> tuple[Any, ...]:
    """Add the gradient to this device's sums and hand out the largest.

    ``u = m * u + g; v = v + u``, with Nesterov ``u = m * (u + g); v = v + u + g``. The elements of
    ``v`` with the largest sizes, a share of ``1 - sparsity`` of them, are sent, and are zero in
    ``u`` and ``v`` afterwards. Before ``rampup_begin_step`` the gradient is sent unchanged.
    ``nranks`` is not read: gradients are weighted by the device's share of the batch. The other
    outputs of Paddle's operator are buffers of its collectives, which are not needed here.
    Source: Paddle op ``dgc``; Lin et al. 2018.
    """
    kind = param.dtype.type
    if regular_type:
        decay = xp.sign(param) if regular_type == 1 else param
        grad = grad + decay * kind(regular_coeff * share)
    step = int(scalar(current_step)) - int(rampup_begin_step)
    if step < 0:
        return u, v, None, grad, xp.zeros(1, np.float32), None
    local = grad * kind(1 / share)
    if use_nesterov:
        u = (u + local) * kind(m)
        v = v + u + local
    else:
        u = u * kind(m) + local
        v = v + u
    count = max(int(v.size * (1 - _sparsity_at(step, sparsity, rampup_step))), 1)
    chosen = xp.sort(xp.argpartition(xp.abs(v.reshape(-1)), v.size - count)[v.size - count :])
    out = SelectedRows(chosen, v.size, v.reshape(-1)[chosen] * kind(share))
    for sums in (u, v):
        sums.reshape(-1)[chosen] = 0
    return u, v, None, out, xp.full(1, count, np.float32), None


def _sparsity_at(step: int, sparsity: Sequence[float], rampup_step: float) -> float:
    """The sparsity of a step: ``rampup_step`` steps are divided among the numbers of the list."""
    position = int(step * len(sparsity) / max(rampup_step, 1))
    return sparsity[min(position, len(sparsity) - 1)]


@op(
    "dgc_clip_by_norm",
    inputs="X current_step",
    infer=lambda x, step: x,
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"X": np.array([3.0, 4.0]), "current_step": np.array([step], np.float32)},
            {"max_norm": 1.0, "rampup_begin_step": 5.0},
            expected={"Out": np.array(expected)},
        )
        for step, expected in ((4.0, [3.0, 4.0]), (5.0, [0.6, 0.8]), (9.0, [0.6, 0.8]))
    ],
)
def dgc_clip_by_norm(
    xp: Any, x: Any, current_step: Any, *, max_norm: float, rampup_begin_step: float = -1.0
) -> Any:
    """``clip_by_norm`` from ``rampup_begin_step`` on; ``x`` before it.

    Source: Paddle op ``dgc_clip_by_norm``.
    """
    if int(scalar(current_step)) < int(rampup_begin_step):
        return x
    limit = x.dtype.type(max_norm)
    return x * (limit / xp.maximum(xp.sqrt((x * x).sum()), limit))


def _infer_momentum(
    param: Spec, grad: Spec, velocity: Spec, rate: Spec, step: Spec, nranks: Spec
) -> tuple[Spec, Spec, Spec]:
    _like_param(param, Grad=grad, Velocity=velocity)
    for name, spec in (("LearningRate", rate), ("current_step", step)):
        require(spec.size in (1, -1), f"{name} {spec} must have one element")
    return param, velocity, grad


@op(
    "dgc_momentum",
    inputs="Param Grad Velocity LearningRate current_step nranks",
    outputs="ParamOut VelocityOut Grad_out?",
    infer=_infer_momentum,
    inplace={"ParamOut": "Param", "VelocityOut": "Velocity"},
    no_grad=True,
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([1.0]),
                "Grad": np.array([2.0]),
                "Velocity": np.array([4.0]),
                "LearningRate": np.array([0.5]),
                "current_step": np.array([step], np.float32),
                "nranks": np.array([1.0], np.float32),
            },
            {"mu": 0.5, "rampup_begin_step": 1.0},
            expected={"ParamOut": np.array([param]), "VelocityOut": np.array([4.0])},
        )
        for step, param in ((0.0, -1.0), (1.0, 0.0))
    ],
    updates="whole",
)
def dgc_momentum(
    xp: Any,
    param: Any,
    grad: Any,
    velocity: Any,
    rate: Any,
    current_step: Any,
    nranks: Any,
    *,
    mu: float,
    use_nesterov: bool = False,
    rampup_begin_step: float = -1.0,
) -> tuple[Any, Any, Any]:
    """``momentum`` before ``rampup_begin_step``, then ``p -= rate * g``: ``dgc`` has the momentum.

    ``nranks`` is not read: the gradients are means already. Source: Paddle op ``dgc_momentum``.
    """
    rate = scalar(rate)
    if isinstance(grad, SelectedRows):
        grad = grad.to_dense(xp).reshape(param.shape)
    if int(scalar(current_step)) < int(rampup_begin_step):
        velocity *= param.dtype.type(mu)
        velocity += grad
        step = velocity * param.dtype.type(mu) + grad if use_nesterov else velocity
        param -= step * rate
    else:
        param -= grad * rate
    return param, velocity, grad
