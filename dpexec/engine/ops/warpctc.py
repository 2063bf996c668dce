"""``warpctc``: the CTC loss: the likelihood of tags over all alignments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.runs import add_at
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._ctc import NEVER, States, Ways
from dpexec.engine.ops._sequences import offsets_or_lengths, on_host, sequence_count
from dpexec.engine.ops._shapes import require_float


def _infer(
    logits: Spec,
    lod: Spec | None,
    label: Spec,
    label_lod: Spec | None,
    logits_length: Spec | None,
    label_length: Spec | None,
    *,
    blank: int = 0,
) -> tuple[Spec, Spec]:
    require_float(logits, "Logits")
    require(label.dtype == VarType.INT32, f"Label {label} must hold int32")
    classes = logits.shape[-1]
    require(
        blank >= 0 and (classes < 0 or blank < classes),
        f"blank must be a class of Logits {logits}, but is {blank}",
    )
    if logits_length is None or label_length is None:
        require(logits_length is label_length, "LogitsLength and LabelLength must come together")
        require(logits.rank == 2, f"Logits {logits} must be (rows, classes)")
        require(label.rank == 2 and dims_match(label.shape[1], 1), f"Label {label} must be (n, 1)")
        batch, steps = sequence_count(lod), -1
    else:
        require(logits.rank == 3, f"Logits {logits} must be (T, batch, classes): it has lengths")
        require(label.rank == 2, f"Label {label} must be (batch, tags): it has lengths")
        steps, batch = logits.shape[:2]
        for name, spec in (("LogitsLength", logits_length), ("LabelLength", label_length)):
            require(
                dims_match(spec.size, batch),
                f"{name} {spec} must have a number for each sequence of Logits {logits}",
            )
    plain = logits.replace(lod_level=0)
    return plain.replace(shape=(steps, batch, classes)), plain.replace(shape=(batch, 1))


_FLOOR = dict.fromkeys(
    ("Loss", "WarpCTCGrad", "Logits@GRAD"),
    "raises probabilities to at least 1.2e-38, so unlikely tags have too small a loss and wrong "
    "gradients; dpexec works with logarithms of the probabilities",
)


def _samples(r: Any) -> list[Sample]:
    lods = {"Logits@LOD": Lod([[0, 4, 5, 11]]), "Label@LOD": Lod([[0, 2, 3, 5]])}
    tags = np.array([[1], [1], [3], [2], [3]], np.int32)
    padded = {
        "Logits": r.normal((5, 3, 4)),
        "Label": np.array([[1, 2, 0], [2, 2, 3], [3, 1, 3]], np.int32),
        "LogitsLength": np.array([4, 3, 5]),
        "LabelLength": np.array([2, 2, 3]),
    }
    return [
        Sample({"Logits": r.normal((11, 4)), "Label": tags, **lods}),
        Sample(
            {"Logits": r.normal((11, 4)), "Label": tags, **lods},
            {"norm_by_times": True},
            smooth=False,
        ),
        Sample({**padded, "LogitsLength": np.array([1, 2, 5]), "LabelLength": np.array([2, 2, 0])}),
        Sample(
            {
                "Logits": np.array([[0.0, 0.0], [0.0, 0.0]]),
                "Logits@LOD": Lod([[0, 2]]),
                "Label": np.array([[1]], np.int32),
                "Label@LOD": Lod([[0, 1]]),
            },
            expected={"Loss": np.log(np.array([[4 / 3]]))},
        ),
        Sample(padded),
        Sample({**padded, "Logits": 300 * r.normal((5, 3, 4))}, deviates=_FLOOR),
        Sample(
            {**padded, "Label": np.array([[1, 2, 0], [1, 1, 0], [2, 0, 2]], np.int32)},
            {"blank": 3, "norm_by_times": True},
            smooth=False,
        ),
    ]


def _rows(
    shape: tuple[int, ...], lod: Lod | None, length: Any
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The rows of the sequences' steps.

    Args:
        shape: shape of the tensor; ``(T, batch, ...)`` if it is padded.
        lod: offsets, if there are no lengths.
        length: lengths of padded sequences, or None.

    Returns:
        Numbers of the rows ``(steps, batch)``, arbitrary after the end of a sequence; lengths.

    Raises:
        ValueError: a length is negative or greater than T, or there are no rows at all.
    """
    if length is None:
        lod = offsets_or_lengths(lod, "Logits", "LogitsLength")
        if not lod.rows:
            raise ValueError("Logits have no rows")
        steps = np.arange(lod.lengths.max(initial=0))[:, None]
        return lod.offsets[:-1] + np.minimum(steps, lod.lengths - 1), lod.lengths
    lengths = on_host(length)
    if lengths.min(initial=0) < 0 or lengths.max(initial=0) > shape[0]:
        raise ValueError(f"LogitsLength {lengths.tolist()} must be between 0 and {shape[0]}")
    return np.arange(shape[0] * shape[1]).reshape(shape[:2]), lengths


def _tags(label: Any, lod: Lod | None, length: Any, classes: int) -> tuple[Any, Any]:
    """Tags ``(batch, most tags)`` and lengths.

    Raises:
        ValueError: there is no such tag, or a length is greater than the width.
    """
    tags = on_host(label)
    if length is None:
        lod = offsets_or_lengths(lod, "Label", "LabelLength")
        lengths, most = lod.lengths, lod.lengths.max(initial=0)
        place = lod.offsets[:-1, None] + np.arange(most)
        tags = np.append(tags, 0)[np.minimum(place, len(tags))]
    else:
        lengths, tags = on_host(length), tags.reshape(label.shape)
        most = tags.shape[1]
        if lengths.min(initial=0) < 0 or lengths.max(initial=0) > most:
            raise ValueError(f"LabelLength {lengths.tolist()} must be between 0 and {most}")
    given = tags[np.arange(most) < lengths[:, None]]
    if given.size and (given.min() < 0 or given.max() >= classes):
        raise ValueError(f"Label must be tags from 0 to {classes - 1}, but one is outside")
    return tags, lengths


@op(
    "warpctc",
    inputs="Logits Logits@LOD? Label Label@LOD? LogitsLength? LabelLength?",
    outputs="WarpCTCGrad Loss",
    infer=_infer,
    attrs={"norm_by_times": False},
    checks_values=True,
    samples=_samples,
    operand_ulps=2,
    grad_lod="own",
)
def warpctc(
    xp: Any,
    logits: Any,
    lod: Lod | None,
    label: Any,
    label_lod: Lod | None,
    logits_length: Any,
    label_length: Any,
    *,
    needs: Sequence[bool] = (True, True),
    blank: int = 0,
) -> tuple[Any, Any]:
    """The negative log-likelihood of tags over all alignments, ``(sequences, 1)``.

    ``Logits`` has a row of unnormalised scores of all classes, including ``blank``, for each step.
    The inputs have sequences, or with lengths they are padded: ``Logits``
    ``(T, batch, classes)`` and ``Label`` ``(batch, tags)``. The loss is 0 if there are too few
    steps for the tags. ``WarpCTCGrad`` is its gradient, padded.
    Source: Paddle op ``warpctc``; Graves et al., 2006.

    Raises:
        ValueError: there is no such tag, or a length is greater than the width.
    """
    classes = logits.shape[-1]
    rows, lengths = _rows(logits.shape, lod, logits_length)
    states = States.of(*_tags(label, label_lod, label_length, classes), blank)
    flat = logits.reshape(-1, classes)
    scores = (flat - flat.max(axis=1, keepdims=True)).astype(np.float64)
    scores -= xp.log(xp.exp(scores).sum(axis=1, keepdims=True))
    scores = scores[xp.asarray(rows)]
    picked = xp.take_along_axis(scores, xp.asarray(states.classes)[None], axis=2)
    ends = xp.asarray(np.maximum(lengths - 1, 0))
    ways = Ways(xp, picked, xp.asarray(states.skip), xp.asarray(states.last), ends)
    until = ways.until()
    total = ways.total(until)
    fits = ~(total <= NEVER / 2) & xp.asarray(lengths > 0)  # true for NaN, which stays NaN
    loss = xp.where(fits, -total, 0).astype(logits.dtype)[:, None]
    if not needs[0]:
        return None, loss
    counted = fits & (xp.arange(len(rows))[:, None] <= ends)
    likely = xp.exp(until + ways.after() - total[:, None])
    grad = xp.exp(scores) - _per_class(xp, likely, states.classes, classes)
    return xp.where(counted[..., None], grad, 0).astype(logits.dtype), loss


def _per_class(xp: Any, values: Any, numbers: np.ndarray[Any, Any], classes: int) -> Any:
    """Sums over the states of each class, ``(steps, batch, classes)``."""
    steps, batch, _ = values.shape
    places = xp.arange(steps * batch).reshape(steps, batch, 1) * classes + xp.asarray(numbers)
    sums = xp.zeros(steps * batch * classes, values.dtype)
    add_at(xp, sums, places, values)
    return sums.reshape(steps, batch, classes)


@warpctc.grad(
    "Logits Logits@LOD? LogitsLength? WarpCTCGrad Loss@GRAD",
    outputs="Logits@GRAD",
    operand_ulps=1,
)
def warpctc_grad(
    xp: Any,
    logits: Any,
    lod: Lod | None,
    logits_length: Any,
    grad: Any,
    d_loss: Any,
    *,
    norm_by_times: bool = False,
) -> Any:
    """The gradient stored by the operator, times that of the loss."""
    rows, lengths = _rows(logits.shape, lod, logits_length)
    factor = d_loss.reshape(-1)
    if norm_by_times:
        factor = factor / xp.asarray(np.maximum(lengths, 1)).astype(logits.dtype)
    counted = np.arange(len(rows))[:, None] < lengths
    out = xp.zeros_like(logits)
    values = (grad * factor[:, None]).reshape(-1, logits.shape[-1])
    chosen = values[xp.asarray(np.flatnonzero(counted))]
    out.reshape(-1, logits.shape[-1])[xp.asarray(rows[counted])] = chosen
    return out
