"""``box_coder``: boxes encoded by their differences from prior boxes, and decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import require_boxes, sides

_CODES = ("encode_center_size", "decode_center_size")


def _infer(
    prior: Spec,
    variances: Spec | None,
    target: Spec,
    _: Spec | None,
    *,
    code_type: str = "encode_center_size",
    axis: int = 0,
    variance: Sequence[float] = (),
) -> Spec:
    require(code_type in _CODES, f"code_type must be {' or '.join(_CODES)}, not {code_type!r}")
    require(axis in (0, 1), f"axis must be 0 or 1, but is {axis}")
    require(
        not variance or (len(variance) == 4 and variances is None),
        "variance must be four numbers, and is not given together with PriorBoxVar",
    )
    require_boxes(prior, "PriorBox")
    if variances is not None:
        require_boxes(variances, "PriorBoxVar")
    if code_type == _CODES[0]:
        require_boxes(target, "TargetBox")
        return target.replace(shape=(target.shape[0], prior.shape[0], 4))
    require_boxes(target, "TargetBox", 3)
    require(
        dims_match(prior.shape[0], target.shape[1 - axis]),
        f"PriorBox {prior} must have a box for each along axis {1 - axis} of TargetBox {target}",
    )
    return target if axis == 0 else target.replace(lod_level=prior.lod_level)


def _samples(r: Any) -> list[Sample]:
    def boxes(*shape: int) -> Any:
        low = r.uniform(0, 5, (*shape, 2))
        return np.concatenate([low, low + r.uniform(1, 5, (*shape, 2))], axis=-1)

    encoding = {"PriorBox": boxes(3), "TargetBox": boxes(2)}
    decoding = {"PriorBox": boxes(3), "TargetBox": r.normal((2, 3, 4))}
    rows, decode = {"PriorBoxVar": r.uniform(0.1, 1, (3, 4))}, {"code_type": _CODES[1]}
    row = {"variance": [0.1, 0.1, 0.2, 0.2]}
    pixels = {"box_normalized": False}
    return [
        Sample(encoding | rows),
        Sample(encoding | {"TargetBox@LOD": Lod([[0, 1, 2]])}, row | pixels),
        Sample(encoding, pixels),
        Sample(decoding | rows, decode),
        Sample(decoding, decode | row | pixels),
        Sample(
            {"PriorBox": boxes(2), "TargetBox": r.normal((2, 3, 4))}, decode | row | {"axis": 1}
        ),
    ]


@op(
    "box_coder",
    inputs="PriorBox PriorBoxVar? TargetBox TargetBox@LOD?",
    outputs="OutputBox",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def box_coder(
    xp: Any,
    prior: Any,
    variances: Any,
    target: Any,
    _: Lod | None,
    *,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    axis: int = 0,
    variance: Sequence[float] = (),
) -> Any:
    """Centres and sizes of boxes relative to those of prior boxes, or boxes from these.

    Encoding takes all pairs of targets ``(N, 4)`` and priors ``(M, 4)``, and gives ``(N, M, 4)``:
    the difference of the centres divided by the prior's size, and the logarithm of the ratio of
    sizes, each divided by its variance. Decoding takes targets ``(N, M, 4)``, with a prior for each
    along ``1 - axis``. Source: Paddle op ``box_coder``.
    """
    extra = 0.0 if box_normalized else 1.0
    factors = xp.asarray(np.array(variance or [1.0] * 4, prior.dtype))
    factors = factors if variances is None else variances
    sizes = xp.stack(sides(prior, extra), axis=-1)
    middles = prior[:, :2] + sizes / 2
    if code_type == _CODES[0]:
        target_sizes = xp.stack(sides(target, extra), axis=-1)[:, None]
        ways = ((target[:, :2] + target[:, 2:]) / 2)[:, None] - middles
        code = xp.concatenate([ways / sizes, xp.log(abs(target_sizes / sizes))], axis=-1)
        return code / factors
    if axis == 1:
        sizes, middles = sizes[:, None], middles[:, None]
        factors = factors if variances is None else factors[:, None]
    scaled = target * factors
    found = scaled[..., :2] * sizes + middles
    halves = xp.exp(scaled[..., 2:]) * sizes / 2
    return xp.concatenate([found - halves, found + halves - extra], axis=-1)
