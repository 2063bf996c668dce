"""``fusion_group``: several operators fused by a pass, stored as a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.graph.group_ops import GroupOp, group_ops, written
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ir.operator import Operator

__all__ = ["fusion_group"]


def _infer(
    inputs: list[Spec], *, parts: Sequence[str] = (), results: Sequence[int] = ()
) -> list[Spec]:
    specs = dict(enumerate(inputs))
    for part in group_ops(parts, results):
        part.infer(specs)
    require(specs.keys() >= set(results), f"no part computes all of the values {list(results)}")
    return [specs[number] for number in results]


def _samples(r: SampleRng) -> list[Sample]:
    gate = [
        GroupOp("elementwise_add", {"X": [0], "Y": [1]}, {"Out": [2]}, {"axis": -1}),
        GroupOp("sigmoid", {"X": [2]}, {"Out": [3]}, {}),
        GroupOp("elementwise_mul", {"X": [3], "Y": [0]}, {"Out": [4]}, {"axis": -1}),
        GroupOp("reduce_sum", {"X": [4]}, {"Out": [5]}, {"dim": [1], "keep_dim": True}),
    ]
    backward = [
        GroupOp("tanh_grad", {"Out": [0], "Out@GRAD": [1]}, {"X@GRAD": [3]}, {}),
        GroupOp(
            "elementwise_add_grad",
            {"X": [0], "Y": [2], "Out@GRAD": [3]},
            {"X@GRAD": [4], "Y@GRAD": [5]},
            {"axis": -1},
        ),
    ]
    x = r.normal((4, 6))
    return [
        Sample({"Inputs": [x, r.normal((6,))]}, {"parts": written(gate), "results": [3, 5]}),
        Sample(
            {"Inputs": [x, r.normal((4, 6)), r.normal((6,))]},
            {"parts": written(backward), "results": [4, 5]},
        ),
    ]


def _parts(op: Operator) -> list[str]:
    return [part.type for part in group_ops(op.attrs["parts"], op.attrs["results"])]


def _formula(op: Operator) -> str:
    values = dict(enumerate(name for names in op.inputs.values() for name in names))
    lines = []
    for part in group_ops(op.attrs["parts"], op.attrs["results"]):
        reads = [values.get(k, f"v{k}") for numbers in part.inputs.values() for k in numbers]
        made = [k for numbers in part.outputs.values() for k in numbers if k >= 0]
        text = f"{part.type}({', '.join(reads)})"
        values.update((k, f"v{k}") for k in made)
        lines.append(f"{', '.join(f'v{k}' for k in made)} = {text}")
    return "; ".join(lines)


@op(
    "fusion_group",
    inputs="Inputs[]",
    outputs="Outs[]",
    infer=_infer,
    no_grad=True,
    samples=_samples,
    capturable=True,
    parts=_parts,
    formula=_formula,
    flops=lambda call: (
        len(call.attrs["parts"])
        * max(
            spec.size for specs in (*call.inputs.values(), *call.outputs.values()) for spec in specs
        )
    ),
)
def fusion_group(
    xp: Any, inputs: list[Any], *, parts: Sequence[str] = (), results: Sequence[int] = ()
) -> list[Any]:
    """The results of a list of operators, run one after another.

    Args:
        xp: numpy or cupy.
        inputs: the input values, numbered from 0.
        parts: the operators as JSON, see :class:`~dpexec.engine.graph.group_ops.GroupOp`.
        results: the numbers of the values that are the outputs.

    Source: Paddle op ``fusion_group``, whose parts are a source text.
    """
    values = dict(enumerate(inputs))
    for part in group_ops(parts, results):
        part.run(xp, values)
    return [values[number] for number in results]
