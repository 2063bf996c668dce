"""The operators of ParallelDo, which the graph expands, so no kernel runs.

They were removed from Paddle with version 0.15; slots and attributes are those of 0.11 to 0.14,
besides ``pre_fetch``, ``keep_parameters``, ``sparse`` and ``device_ids``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Spec, op


@op(
    "get_places",
    inputs="",
    infer=None,
    attrs={"device_count": 0, "device_type": "AUTO"},
    no_grad=True,
    by_executor=True,
)
def get_places(xp: Any) -> None:
    """A list of devices, found when the program is compiled. Source: Paddle op ``get_places``."""


@op(
    "parallel_do",
    inputs="inputs?[] inputs@LOD?[] parameters?[] places",
    outputs="outputs[] outputs@LOD?[] parallel_scopes?",
    infer=None,
    attrs={"use_nccl": False},
    by_executor=True,
)
def parallel_do(xp: Any, inputs: Any, lods: Any, parameters: Any, places: Any) -> None:
    """Run the attribute ``sub_block`` on every place with a part of the rows of ``inputs``.

    Sequences are not divided between places.

    Every place has all ``parameters``; ``outputs`` are the concatenated rows of all places.
    ``pre_fetch`` names the inputs that are split when they are fed; with ``keep_parameters``
    every place has its own parameters. Source: Paddle op ``parallel_do``.
    """


def _infer_grads(
    inputs: Sequence[Spec],
    parameters: Sequence[Spec],
    places: Spec,
    outputs: Sequence[Spec],
    d_outputs: Sequence[Spec],
    scopes: Spec | None,
    *,
    sparse: Sequence[int] | None = None,
) -> tuple[list[Spec], list[Spec]]:
    rows = VarType.SELECTED_ROWS
    grads = [
        spec.replace(kind=rows) if number in (sparse or ()) else spec
        for number, spec in enumerate(parameters)
    ]
    return list(inputs), grads


@op(
    "parallel_do_grad",
    inputs="inputs?[] parameters?[] places outputs[] outputs@GRAD[] parallel_scopes?",
    outputs="inputs@GRAD?[] parameters@GRAD?[]",
    infer=_infer_grads,
    attrs={"use_nccl": False},
    by_executor=True,
)
def parallel_do_grad(
    xp: Any, inputs: Any, parameters: Any, places: Any, outputs: Any, d_outputs: Any, scopes: Any
) -> None:
    """Run the gradients of a ``parallel_do``, the attribute ``sub_block``, on every place.

    The gradients of the outputs are split into the rows of each place. Those of the inputs are
    concatenated, those of the parameters are added up; ``sparse`` has the numbers of sparse ones.
    Source: Paddle op ``parallel_do_grad``.
    """
