"""``filter_by_instag``: selects the samples that have one of some tags."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._sequences import Ints, offsets_spec, on_host, rows_of
from dpexec.engine.ops._shapes import require_float


def _infer(x: Spec, _: Spec | None, tags: Spec, __: Spec | None, wanted: Spec) -> tuple[Spec, ...]:
    if x.dtype not in (VarType.INT32, VarType.INT64):
        require_float(x, "Ins")
    for name, spec in (("Ins_tag", tags), ("Filter_tag", wanted)):
        require(spec.dtype == VarType.INT64, f"{name} {spec} must hold int64")
    offsets = offsets_spec(-1)
    weight, index = Spec((-1, 1), VarType.FP32), Spec((-1, 3), VarType.INT64)
    return x.replace(shape=(-1, *x.shape[1:]), lod_level=0), weight, index, *[offsets] * 3


def _samples(r: SampleRng) -> list[Sample]:
    inputs = {
        "Ins": r.normal((4, 3)),
        "Ins_tag": np.array([[0], [1], [1], [3], [0], [2], [6]]),
        "Ins_tag@LOD": Lod([[0, 2, 4, 5, 7]]),
        "Filter_tag": np.array([1, 6]),
    }
    rows = inputs | {"Ins": r.normal((6, 2)), "Ins@LOD": Lod([[0, 2, 3, 5, 6]])}
    none = inputs | {"Filter_tag": np.array([9])}
    return [
        Sample(inputs, {"is_lod": False}, grad=("Ins",)),
        Sample(rows, {"is_lod": True}, grad=("Ins",)),
        Sample(none, {"is_lod": False, "out_val_if_empty": 5}, grad=("Ins",)),
        Sample(inputs | {"Ins": r.integers(0, 9, (4, 2))}, {"is_lod": False}, grad=()),
    ]


def _chosen(tags: Ints, lod: Lod, wanted: Ints) -> Ints:
    """The samples that have one of the tags."""
    hits = np.isin(tags, wanted)
    return np.array(
        [number for number, span in enumerate(lod.spans()) if hits[slice(*span)].any()], np.int64
    )


@op(
    "filter_by_instag",
    inputs="Ins Ins@LOD? Ins_tag Ins_tag@LOD Filter_tag",
    outputs="Out LossWeight IndexMap Out@LOD LossWeight@LOD IndexMap@LOD",
    infer=_infer,
    samples=_samples,
    checks_values=True,
    grad_lod="own",
)
def filter_by_instag(
    xp: Any, x: Any, lod: Lod | None, tags: Any, tags_lod: Lod, wanted: Any,
    *, is_lod: bool, out_val_if_empty: int = 0,
) -> tuple[Any, ...]:  # fmt: skip
    """The samples with a tag of ``Filter_tag``, a weight of 1 for each, and their old positions.

    Samples are rows, or sequences with ``is_lod``. ``IndexMap`` has a row for each kept sample: its
    first row in ``Out``, its first row in ``Ins``, and its number of rows. If no sample is kept,
    ``Out`` is a row of ``out_val_if_empty`` with weight 0. Source: Paddle op ``filter_by_instag``.

    Raises:
        ValueError: the numbers of samples and of sequences of tags differ, or there are no
            sequences.
    """
    if is_lod and not lod:
        raise ValueError("Ins holds no sequences, but is_lod is True")
    chosen = _chosen(on_host(tags), tags_lod, on_host(wanted))
    offsets = lod.offsets if is_lod and lod else np.arange(len(x) + 1)
    if len(offsets) != len(tags_lod.offsets):
        raise ValueError(
            f"Ins has {len(offsets) - 1} samples, but Ins_tag {len(tags_lod.offsets) - 1} sequences"
        )
    if not len(chosen):
        one = Lod([[0, 1]])
        out = xp.full((1, *x.shape[1:]), out_val_if_empty, x.dtype)
        index = xp.asarray(np.array([[0, 1, 1]]))
        return out, xp.zeros((1, 1), np.float32), index, one, one, one
    starts, lengths = offsets[chosen], np.diff(offsets)[chosen]
    made = Lod.of_lengths([lengths])
    index = np.stack([made.offsets[:-1], starts, lengths], axis=1)
    samples = Lod([np.arange(len(chosen) + 1)])
    weight = xp.ones((len(chosen), 1), np.float32)
    out = x[xp.asarray(rows_of(starts, lengths))]
    return out, weight, xp.asarray(index), made, samples, samples


@filter_by_instag.grad("IndexMap", "LossWeight", "Ins", "Out@GRAD", outputs="Ins@GRAD", dense=True)
def filter_by_instag_grad(xp: Any, index: Any, weight: Any, x: Any, d_out: Any) -> Any:
    """The gradient of the kept rows; 0 for the others."""
    d_x = xp.zeros_like(x)
    if on_host(weight)[0]:
        _, starts, lengths = on_host(index).reshape(-1, 3).T
        d_x[xp.asarray(rows_of(starts, lengths))] = d_out
    return d_x
