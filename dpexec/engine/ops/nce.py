"""``nce``: noise-contrastive estimation: the true class against a few sampled ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.random import RandomStream
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops import _samplers
from dpexec.engine.ops._rows import REMOTE, added_rows, check_rows
from dpexec.engine.ops._shapes import require_same_dtype
from dpexec.engine.ops.sigmoid import sigmoid_array

_UNLIKELY = -60
"""Logits below it have probabilities that may be 0."""


def _infer(
    x: Spec,
    label: Spec,
    weight: Spec,
    bias: Spec | None,
    sample_weight: Spec | None,
    probabilities: Spec | None,
    alias: Spec | None,
    threshold: Spec | None,
    *,
    num_total_classes: int,
    num_neg_samples: int = 10,
    sampler: int = 0,
    custom_neg_classes: Sequence[int] = (),
) -> tuple[Spec, Spec, Spec]:
    require_same_dtype(x, weight, "Input and Weight")
    require(
        x.rank == weight.rank == 2 and dims_match(x.shape[1], weight.shape[1]),
        f"Input {x} and Weight {weight} must be matrices of one width",
    )
    require(
        dims_match(weight.shape[0], num_total_classes),
        f"num_total_classes is {num_total_classes}, but Weight {weight} has another height",
    )
    require(
        label.dtype == VarType.INT64 and label.rank == 2 and dims_match(label.shape[0], x.shape[0]),
        f"Label {label} must be int64 with a row for each row of Input {x}",
    )
    require(
        bias is None or dims_match(bias.shape[0], num_total_classes),
        f"Bias {bias} must have an element for each of the {num_total_classes} classes",
    )
    require(
        sample_weight is None or dims_match(sample_weight.size, x.shape[0]),
        f"SampleWeight {sample_weight} must have an element for each row of Input {x}",
    )
    require(sampler in (0, 1, 2), f"sampler is {sampler}, but must be 0, 1 or 2")
    require(
        sampler != 2 or None not in (probabilities, alias, threshold),
        "sampler 2 needs CustomDistProbs, CustomDistAlias and CustomDistAliasProbs",
    )
    require(
        not custom_neg_classes or len(custom_neg_classes) == num_neg_samples,
        f"custom_neg_classes are {list(custom_neg_classes)}, not {num_neg_samples}",
    )
    columns = label.shape[1]
    taken = -1 if columns < 0 else columns + num_neg_samples
    logits = x.replace(shape=(x.shape[0], taken), lod_level=0)
    cost = logits.replace(shape=(x.shape[0], 1))
    return cost, logits, logits.replace(dtype=VarType.INT64)


def _sampler(number: int, classes: int, custom: Sequence[Any]) -> _samplers.Sampler:
    if number == _samplers.CUSTOM:
        arrays = [array if isinstance(array, np.ndarray) else array.get() for array in custom]
        return _samplers.Custom(*arrays)
    if number == _samplers.LOG_UNIFORM:
        return _samplers.LogUniform(classes - 1)  # so the last class is never drawn, as in Paddle
    return _samplers.Uniform(classes)


def _noise(
    xp: Any, sampler: _samplers.Sampler, classes: Any, o: Any, true: int, noises: int
) -> tuple[Any, Any]:
    """The expected number of noise draws of each class, and whether each is a label."""
    host = classes if isinstance(classes, np.ndarray) else classes.get()
    expected = xp.asarray(sampler.probability(host)).astype(o.dtype) * o.dtype.type(noises)
    return expected, xp.arange(classes.shape[1]) < true


def _samples(r: SampleRng) -> list[Sample]:
    def inputs(bias: bool = True, weights: bool = False, true: int = 1) -> dict[str, Any]:
        made = {
            "Input": r.normal((4, 3)),
            "Label": r.integers(0, 7, (4, true)),
            "Weight": r.normal((7, 3)),
        }
        if bias:
            made["Bias"] = r.normal((7, 1))
        if weights:
            made["SampleWeight"] = r.uniform(0.5, 1.5, (4,))
        return made

    custom = {
        "CustomDistProbs": np.array([0.1, 0.2, 0.1, 0.1, 0.2, 0.2, 0.1]),
        "CustomDistAlias": np.array([1, -1, 1, 4, -1, -1, 5], dtype=np.int32),
        "CustomDistAliasProbs": np.array([0.7, 1.0, 0.7, 0.7, 1.0, 1.0, 0.7]),
    }
    sizes = {"num_total_classes": 7, "num_neg_samples": 3}
    chosen = {**sizes, "custom_neg_classes": [3, 5, 0]}
    trained = ("Input", "Weight", "Bias")
    return [
        Sample(inputs(), {**sizes, "seed": 1}, grad=trained),
        Sample(inputs(), {**sizes, "seed": 5, "sampler": 1}, grad=trained),
        Sample({**inputs(), **custom}, {**sizes, "seed": 3, "sampler": 2}, grad=trained),
        Sample(inputs(weights=True, true=2), chosen, grad=trained),
        Sample(inputs(bias=False), {**chosen, "is_sparse": True}, grad=trained[:2]),
    ]


@op(
    "nce",
    inputs="Input Label Weight Bias? SampleWeight? CustomDistProbs? CustomDistAlias? "
    "CustomDistAliasProbs?",
    outputs="Cost SampleLogits SampleLabels",
    infer=_infer,
    attrs={"is_sparse": False, **REMOTE},
    checks_values=True,
    samples=_samples,
    operand_ulps=4,
)
def nce(
    xp: Any,
    x: Any,
    label: Any,
    weight: Any,
    bias: Any,
    sample_weight: Any,
    *custom: Any,
    num_total_classes: int,
    num_neg_samples: int = 10,
    sampler: int = 0,
    seed: int = 0,
    custom_neg_classes: Sequence[int] = (),
    rng: RandomStream,
) -> tuple[Any, Any, Any]:
    """Noise-contrastive estimation: cost per sample ``(N, 1)``.

    Classes of noise are drawn by ``sampler`` (0 uniform, 1 log-uniform, 2 by CustomDist...) or
    are ``custom_neg_classes``. The probabilities and numbers of all classes that took part are
    returned, too, those of the label first. With a ``seed`` the classes are those of the real
    Paddle. Source: Paddle op ``nce``; Gutmann, Hyvarinen, 2010.

    Raises:
        ValueError: there is no such class.
    """
    check_rows(xp, label, num_total_classes, "Label")
    drawer = _sampler(sampler, num_total_classes, custom)
    shape = (len(x), num_neg_samples)
    if custom_neg_classes:
        drawn = np.broadcast_to(np.array(custom_neg_classes, dtype=np.int64), shape)
    else:
        drawn = drawer.draw(_samplers.random_words(drawer, seed, shape, rng))
    classes = xp.concatenate([label, xp.asarray(drawn)], axis=1)
    check_rows(xp, classes, num_total_classes, "the sampled classes")
    logits = xp.matmul(weight[classes], x[:, :, None])[:, :, 0]
    if bias is not None:
        logits += bias.reshape(-1)[classes]
    o = sigmoid_array(xp, logits)
    b, is_true = _noise(xp, drawer, classes, o, label.shape[1], num_neg_samples)
    costs = xp.log1p(xp.where(is_true, b / o, o / b))
    far = is_true & (logits < _UNLIKELY)
    costs = xp.where(far, xp.log(b) - logits, costs)
    if sample_weight is not None:
        costs *= sample_weight.reshape(-1, 1)
    return costs.sum(axis=1, keepdims=True), o, classes


def _infer_grad(
    x: Spec, label: Spec, weight: Spec, bias: Spec | None, *_: Any, is_sparse: bool = False
) -> tuple[Spec, Spec, Spec]:
    made = weight.replace(kind=VarType.SELECTED_ROWS) if is_sparse else weight
    return x, made, weight if bias is None else bias


@nce.grad(
    "Input Label Weight Bias? SampleLogits SampleLabels SampleWeight? CustomDistProbs?",
    "CustomDistAlias? CustomDistAliasProbs? Cost@GRAD",
    outputs="Input@GRAD Weight@GRAD Bias@GRAD",
    infer=_infer_grad,
    operand_ulps=4,
)
def nce_grad(
    xp: Any,
    x: Any,
    label: Any,
    weight: Any,
    bias: Any,
    o: Any,
    classes: Any,
    sample_weight: Any,
    probabilities: Any,
    alias: Any,
    threshold: Any,
    d_cost: Any,
    *,
    num_total_classes: int = 0,
    num_neg_samples: int = 10,
    sampler: int = 0,
    is_sparse: bool = False,
    needs: tuple[bool, bool, bool],
) -> tuple[Any, Any, Any]:
    """Gradients of the classes that took part; if sparse, only their rows of the weight."""
    drawer = _sampler(sampler, num_total_classes, (probabilities, alias, threshold))
    b, is_true = _noise(xp, drawer, classes, o, label.shape[1], num_neg_samples)
    d_logits = xp.where(is_true, -b, o) * (1 - o) / (o + b) * d_cost
    if sample_weight is not None:
        d_logits *= sample_weight.reshape(-1, 1)
    d_x = d_weight = d_bias = None
    if needs[0]:
        d_x = xp.matmul(d_logits[:, None], weight[classes])[:, 0]
    rows = classes.reshape(-1)
    if needs[1]:
        values = (d_logits[:, :, None] * x[:, None]).reshape(-1, x.shape[1])
        d_weight = SelectedRows(rows, weight.shape[0], values)
        d_weight = d_weight.merged(xp) if is_sparse else d_weight.to_dense(xp)
    if needs[2]:
        d_bias = added_rows(xp, rows, d_logits, (bias.size,)).reshape(bias.shape)
    return d_x, d_weight, d_bias
