"""``sample_logits``: scores of the true classes and of a few sampled ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops import _samplers
from dpexec.engine.ops._rows import added_rows, check_rows
from dpexec.engine.ops._shapes import require_float, same_dims

LOWEST = 1e20
"""Subtracted from the score of a drawn class that happens to be a true one."""


def _infer(
    logits: Spec,
    labels: Spec,
    samples: Spec | None,
    probabilities: Spec | None,
    *,
    num_samples: int,
    use_customized_samples: bool = False,
    uniq: bool = True,
) -> tuple[Spec, ...]:
    require_float(logits, "Logits")
    require(logits.rank == 2, f"Logits {logits} must be (N, classes)")
    require(
        labels.dtype == VarType.INT64
        and labels.rank == 2
        and dims_match(labels.shape[0], logits.shape[0]),
        f"Labels {labels} must be int64 with a row for each row of Logits {logits}",
    )
    require(num_samples > 0, f"num_samples is {num_samples}, but must be positive")
    require(
        uniq or use_customized_samples,
        "uniq=False is not supported: samples are drawn without repetition",
    )
    require(
        logits.shape[1] < 0 or use_customized_samples or num_samples <= logits.shape[1],
        f"num_samples is {num_samples}, but Logits {logits} have fewer classes",
    )
    true = labels.shape[1]
    shape = (logits.shape[0], -1 if true < 0 else true + num_samples)
    if use_customized_samples:
        for name, spec in (("Samples", samples), ("Probabilities", probabilities)):
            require(
                spec is not None and same_dims(spec.shape, shape),
                f"Customized{name} {spec} must have the shape {list(shape)}",
            )
    numbers = labels.replace(shape=shape, lod_level=0)
    scores = logits.replace(shape=shape, lod_level=0)
    shapes = (spec.replace(shape=(*spec.shape, 0), lod_level=0) for spec in (logits, labels))
    return numbers, scores, *shapes, scores, labels.replace(lod_level=0)


def _samples(r: SampleRng) -> list[Sample]:
    def inputs(true: int = 1) -> dict[str, Any]:
        return {"Logits": r.normal((3, 8)), "Labels": r.integers(0, 8, (3, true))}

    custom = {
        "Logits": r.normal((3, 8)),
        "Labels": np.array([[0, 1], [2, 3], [1, 0]]),
        "CustomizedSamples": np.array([[0, 1, 5, 6, 5], [2, 3, 7, 4, 0], [1, 0, 3, 6, 2]]),
        "CustomizedProbabilities": r.uniform(0.1, 0.9, (3, 5)),
    }
    chosen = {"use_customized_samples": True, "num_samples": 3}
    return [
        Sample({**inputs(), "Labels": np.array([[3], [5], [7]])}, {"num_samples": 4, "seed": 1}),
        Sample(inputs(), {"num_samples": 4, "seed": 1}, grad=()),
        Sample(inputs(2), {"num_samples": 3, "seed": 3, "remove_accidental_hits": False}),
        Sample(custom, chosen, grad=("Logits",)),
        Sample(custom, {**chosen, "remove_accidental_hits": False}, grad=("Logits",)),
        Sample(
            {**custom, "CustomizedSamples": np.array([[4, 1, 4, 0, 1], [2, 3, 2, 2, 0], [5] * 5])},
            chosen,
            grad=(),
        ),
    ]


def _draw(
    sampler: _samplers.LogUniform, count: int, seed: int, rng: RandomStream
) -> tuple[Any, int]:
    """``count`` different classes, and the number of draws."""
    seed = seed or rng.integer()
    draws = 4 * count + 64
    while True:
        classes = sampler.draw(_samplers.random_words(sampler, seed, (draws,), rng))
        first = np.sort(np.unique(classes, return_index=True)[1])[:count]
        if len(first) == count:
            return classes[first], int(first[-1]) + 1
        draws *= 4


def _chances(sampler: _samplers.LogUniform, classes: Any, count: int, draws: int) -> Any:
    """The probability of each class to be among the ``count`` that were found by ``draws``."""
    probability = sampler.probability(classes)
    if draws == count:
        return probability * np.float32(count)
    return -np.expm1(np.float32(draws) * np.log1p(-probability))


@op(
    "sample_logits",
    inputs="Logits Labels CustomizedSamples? CustomizedProbabilities?",
    outputs="Samples Probabilities LogitsDim LabelsDim SampledLogits SampledLabels",
    infer=_infer,
    attrs={"uniq": True},
    inplace={"Samples": "CustomizedSamples", "Probabilities": "CustomizedProbabilities"},
    checks_values=True,
    samples=_samples,
)
def sample_logits(
    xp: Any,
    logits: Any,
    labels: Any,
    samples: Any,
    probabilities: Any,
    *,
    num_samples: int,
    use_customized_samples: bool = False,
    remove_accidental_hits: bool = True,
    seed: int = 0,
    rng: RandomStream,
) -> tuple[Any, ...]:
    """Scores of the true classes, then of drawn ones, less the logarithms of probabilities.

    ``num_samples`` different classes are drawn for the whole batch, log-uniformly, or all classes
    are given, the true ones first, whatever ``Labels`` holds. 1e20 is subtracted from drawn classes
    that are true ones. The classes and their probabilities are returned, too, and, as labels of the
    new scores, the positions of the true classes. With a ``seed`` the classes are those of the real
    Paddle. Source: Paddle op ``sample_logits``; Jean and others, 2015.

    Raises:
        ValueError: there is no such class.
    """
    check_rows(xp, labels, logits.shape[1], "Labels")
    rows, true = labels.shape
    if not use_customized_samples:
        sampler = _samplers.LogUniform(logits.shape[1])
        drawn, draws = _draw(sampler, num_samples, seed, rng)
        host = labels if isinstance(labels, np.ndarray) else labels.get()
        classes = np.concatenate([host, np.tile(drawn, (rows, 1))], axis=1)
        chances = _chances(sampler, classes, num_samples, draws).astype(logits.dtype)
        samples, probabilities = xp.asarray(classes), xp.asarray(chances)
    check_rows(xp, samples, logits.shape[1], "CustomizedSamples")
    picked = xp.take_along_axis(logits, samples, axis=1)
    if remove_accidental_hits:
        hits = (samples[:, true:, None] == samples[:, None, :true]).any(axis=2)
        picked[:, true:] -= hits * logits.dtype.type(LOWEST)
    picked -= xp.log(probabilities)
    positions = xp.broadcast_to(xp.arange(true), labels.shape).astype(labels.dtype)
    empty = [xp.empty((*array.shape, 0), dtype=array.dtype) for array in (logits, labels)]
    return samples, probabilities, *empty, picked, positions


@sample_logits.grad(
    "LogitsDim LabelsDim Samples SampledLogits@GRAD",
    outputs="Logits@GRAD",
    infer=lambda logits, labels, samples, d_picked: logits.replace(shape=logits.shape[:-1]),
)
def sample_logits_grad(xp: Any, logits: Any, labels: Any, samples: Any, d_picked: Any) -> Any:
    """The gradients of all copies of a score, added up."""
    rows, classes = logits.shape[:2]
    flat = (samples + classes * xp.arange(rows)[:, None]).reshape(-1)
    return added_rows(xp, flat, d_picked, (rows * classes,)).reshape(rows, classes)
