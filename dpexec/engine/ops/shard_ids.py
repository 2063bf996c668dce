"""``split_ids``, ``merge_ids`` and ``ref_by_trainer_id``: rows of tables on several servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._rows import last_places
from dpexec.engine.ops._sequences import on_host

_REPEATED = (
    "gives all repetitions of a row the values of the last one; dpexec gives each its own values"
)


def _require_column(spec: Spec, name: str) -> None:
    require(
        spec.dtype == VarType.INT64 and spec.rank == 2 and dims_match(spec.shape[1], 1),
        f"{name} {spec} must be int64 numbers (n, 1)",
    )


def _infer_split(ids: Sequence[Spec]) -> Spec:
    if ids[0].kind == VarType.SELECTED_ROWS:
        require(len(ids) == 1, f"{len(ids)} SelectedRows are given, but one is split at a time")
        return ids[0]
    for spec in ids:
        require(spec.kind == VarType.LOD_TENSOR, f"Ids {spec} must all be LoDTensors")
        _require_column(spec, "Ids")
    return Spec((-1, 1), VarType.INT64)


def _split_samples(r: SampleRng) -> list[Sample]:
    numbers = np.array([[3], [1], [4], [3], [6], [9]])
    rows = SelectedRows(np.array([3, 4, 4, 3]), 10, r.normal((4, 2)))
    return [
        Sample(
            {"Ids": [numbers]},
            expected={"Out": [np.array([[3], [6], [9]]), np.array([[1], [4]]), np.empty((0, 1))]},
            counts={"Out": 3},
        ),
        Sample({"Ids": [numbers, numbers + 2]}, counts={"Out": 2}),
        Sample({"Ids": [r.integers(0, 20, (12, 1))]}, counts={"Out": 4}),
        Sample({"Ids": [rows]}, counts={"Out": 2}, deviates={"Out": _REPEATED}),
        Sample(
            {"Ids": [SelectedRows(np.array([5, 0, 7, 2]), 8, r.normal((4, 3)))]},
            counts={"Out": 2},
        ),
    ]


@op(
    "split_ids",
    inputs="Ids[]",
    outputs="Out[]",
    infer=_infer_split,
    sparse=("Ids",),
    no_grad=True,
    samples=_split_samples,
)
def split_ids(xp: Any, ids: list[Any], *, needs: Sequence[Sequence[bool]]) -> list[Any]:
    """Output ``k`` of ``n`` has the ids with the remainder ``k`` modulo ``n``.

    The ids of all inputs are taken once each, in ascending order, ``(m, 1)``. For ``SelectedRows``
    the rows are divided, in their order and with their values. Source: Paddle op ``split_ids``.
    """
    parts = len(needs[0])
    if isinstance(ids[0], SelectedRows):
        rows = ids[0]
        remainders = on_host(rows.row_array) % parts  # how many there are of each decides shapes
        shards = [xp.asarray(np.flatnonzero(remainders == k)) for k in range(parts)]
        return [
            SelectedRows(rows.row_array[chosen], rows.height_, rows.value[chosen])
            for chosen in shards
        ]
    known = np.unique(np.concatenate([on_host(numbers) for numbers in ids]))
    return [xp.asarray(known[known % parts == k].reshape(-1, 1)) for k in range(parts)]


def _infer_merge(ids: Sequence[Spec], rows: Sequence[Spec], x: Sequence[Spec]) -> list[Spec]:
    require(
        len(rows) == len(x), f"Rows are {len(rows)} and X {len(x)} variables, but they go in pairs"
    )
    for name, specs in (("Ids", ids), ("Rows", rows)):
        for spec in specs:
            _require_column(spec, name)
    for spec in x:
        require(
            spec.rank == 2
            and spec.dtype == x[0].dtype
            and dims_match(spec.shape[1], x[0].shape[1]),
            f"X {spec} must be rows like X {x[0]}",
        )
    for numbers, spec in zip(rows, x, strict=True):
        require(
            dims_match(numbers.shape[0], spec.shape[0]),
            f"X {spec} must have a row for each {numbers}",
        )
    width = x[0].shape[1]
    return [Spec((spec.shape[0], width), x[0].dtype, lod_level=spec.lod_level) for spec in ids]


def _merge_samples(r: SampleRng) -> list[Sample]:
    def column(*numbers: int) -> Any:
        return np.array(numbers).reshape(-1, 1)

    return [
        Sample(
            {
                "Ids": [column(3, 1, 4, 3)],
                "Rows": [column(4), column(1, 3)],
                "X": [np.array([[4.0, 40.0]]), np.array([[1.0, 10.0], [3.0, 30.0]])],
            },
            expected={"Out": [np.array([[3.0, 30], [1, 10], [4, 40], [3, 30]])]},
        ),
        Sample(
            {
                "Ids": [column(5, 2), column(2, 2, 0, 7)],
                "Rows": [column(0, 2), column(5, 7)],
                "X": [r.normal((2, 3)), r.normal((2, 3))],
            }
        ),
        Sample({"Ids": [column(8, 6)], "Rows": [column(6, 7, 8)], "X": [r.normal((3, 1))]}),
    ]


@op(
    "merge_ids",
    inputs="Ids[] Rows[] X[]",
    outputs="Out[]",
    infer=_infer_merge,
    no_grad=True,
    checks_values=True,
    samples=_merge_samples,
)
def merge_ids(xp: Any, ids: list[Any], rows: list[Any], x: list[Any]) -> list[Any]:
    """Each output has the rows of ``X`` for the numbers in an input of ``Ids``, found in ``Rows``.

    Source: Paddle op ``merge_ids``.

    Raises:
        ValueError: ``Rows`` does not have a number.
    """
    numbers, values = np.concatenate([on_host(part) for part in rows]), xp.concatenate(x)
    found = []
    for wanted in map(on_host, ids):
        places = last_places(numbers, wanted)
        if (places < 0).any():
            number = wanted[places < 0][0]
            raise ValueError(f"Ids has number {number}, which Rows does not have")
        found.append(values[xp.asarray(places)])
    return found


def _infer_ref(x: Sequence[Spec], trainer: Spec) -> Spec:
    require(
        trainer.dtype == VarType.INT64 and dims_match(trainer.size, 1),
        f"TrainerId {trainer} must be one int64 number",
    )
    return x[0].replace(lod_level=0)


@op(
    "ref_by_trainer_id",
    inputs="X[] TrainerId",
    infer=_infer_ref,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": [r.normal((2, 3)), r.normal((2, 3))], "TrainerId": np.array([1])}),
        Sample({"X": [r.normal((4,))], "TrainerId": np.array([0])}),
        Sample(
            {"X": [np.array([1.0]), np.array([2.0]), np.array([3.0])], "TrainerId": np.array([2])},
            expected={"Out": np.array([3.0])},
        ),
    ],
)
def ref_by_trainer_id(xp: Any, x: list[Any], trainer: Any) -> Any:
    """A copy of ``x[trainer]``. Source: Paddle op ``ref_by_trainer_id``.

    Raises:
        ValueError: there is no such variable.
    """
    number = int(on_host(trainer)[0])
    if not 0 <= number < len(x):
        raise ValueError(f"TrainerId is {number}, but X has {len(x)} variables")
    return x[number].copy()
