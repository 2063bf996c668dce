"""Shapes and types of the results of collectives, derived before a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpexec.engine.compile.plans.collectives import sums_of
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.lod import lod_name
from dpexec.engine.feeds.splitting import even_rows
from dpexec.engine.graph.ssa import OpNode, VarNode
from dpexec.engine.ir.opdef import Spec
from dpexec.engine.ir.operator import Operator, op_error

__all__ = ["follow_collective", "samples_of"]

Specs = Sequence[dict[str, Spec]]
Stored = Callable[[Operator, str, int], Spec]


def follow_collective(node: OpNode, specs: Specs, missing: set[VarNode], stored: Stored) -> None:
    """Derive the specs of what a collective writes.

    Args:
        node: the collective.
        specs: specs by name, per device; results are added.
        missing: variables without a value, on idle devices.
        stored: returns the spec of a variable that no earlier node computes, for an operator on a
            device.

    Raises:
        EnforceNotMet: rows cannot be split or merged, a variable has no value, or is sparse and
            does not go through this kind of collective.
    """
    sources = [var for var in node.inputs if var.kind == "var" and var not in missing]
    targets = [var for var in node.outputs if var.kind == "var" and var not in missing]
    for var in sources:
        if node.op is not None and var.name not in specs[var.device]:
            specs[var.device][var.name] = stored(node.op, var.name, var.device)
    if not node.does.takes_sparse:
        _require_dense(node, specs, sources)
    if node.does.moves_rows:
        _FOLLOW[node.does.effect](node, specs, sources, targets)
    else:
        for name, devices, made, receivers, _ in sums_of(node, missing):
            found = [specs[device][name] for device in devices if name in specs[device]]
            for device in receivers if found else ():
                specs[device][made] = found[0]


def _require_dense(node: OpNode, specs: Specs, sources: list[VarNode]) -> None:
    for var in sources:
        spec = specs[var.device].get(var.name)
        if spec is not None and spec.kind == VarType.SELECTED_ROWS:
            problem = f"{node.name} takes no sparse values, but {var.name} is one: {spec}"
            raise EnforceNotMet(problem) if node.op is None else op_error(node.op, problem, {})


def _follow_split(
    node: OpNode, specs: Specs, sources: list[VarNode], targets: list[VarNode]
) -> None:
    whole, *like = (specs[var.device][var.name] for var in sources)
    counts = [-1 if spec.kind == VarType.RAW else spec.shape[0] for spec in like]
    if not like:
        counts = even_rows(_samples(node, sources[0].name, whole, specs), len(targets))
    for out, count in zip(targets, counts, strict=True):
        specs[out.device][out.name] = _with_samples(whole, count)


def samples_of(spec: Spec) -> int:
    """Rows of an array, or sequences that offsets say; -1 if it is unknown, 0 without dimensions.

    Args:
        spec: spec of the array, or of the offsets.
    """
    return max(spec.shape[0] - int(spec.kind == VarType.RAW), -1) if spec.rank else 0


def _with_samples(spec: Spec, count: int) -> Spec:
    if spec.kind != VarType.RAW:
        return spec.replace(shape=(count, *spec.shape[1:]))
    return spec.replace(shape=(count + 1 if count >= 0 else -1, *(-1 for _ in spec.shape[1:])))


def _samples(node: OpNode, name: str, whole: Spec, specs: Specs) -> int:
    """The rows, or sequences, of an input of a ParallelDo: as many as those of its other inputs."""
    assert node.op is not None
    found = {name: whole}
    count = samples_of(whole)
    if count < 1:
        known = "no rows to split" if not count else "unknown rows"
        raise op_error(node.op, f"input {name} of shape {list(whole.shape)} has {known}", found)
    offsets = node.op.inputs.get("inputs@LOD", [])
    for other in node.op.inputs["inputs"]:
        holder = lod_name(other) if lod_name(other) in offsets else other
        parts = [specs[var.device].get(other) for var in node.outputs]
        spec = specs[0].get(holder)
        rows = samples_of(spec) if spec else sum(part.shape[0] for part in parts if part)
        if rows not in (0, count):
            problem = (
                f"its inputs must have the same number of rows (or sequences), but {name} has "
                f"{count} and {other} has {rows}"
            )
            raise op_error(node.op, problem, found if spec is None else {**found, holder: spec})
    return count


def _follow_merge(
    node: OpNode, specs: Specs, sources: list[VarNode], targets: list[VarNode]
) -> None:
    (target,) = targets
    parts = [specs[var.device][var.name] for var in sources]
    first = parts[0]
    counts = [samples_of(part) for part in parts]
    rows = -1 if min(counts) < 0 else sum(counts)
    if first.kind == VarType.RAW:
        specs[target.device][target.name] = _with_samples(first, rows)
        return
    if not first.rank or any(part.shape[1:] != first.shape[1:] for part in parts):
        assert node.op is not None
        shapes = ", ".join(str(list(part.shape)) for part in parts)
        name = sources[0].name
        problem = f"{name} has shapes {shapes} on the devices, whose rows cannot be put together"
        raise op_error(node.op, problem, {})
    specs[target.device][target.name] = _with_samples(first, rows)


_FOLLOW = {"splits": _follow_split, "joins": _follow_merge}
"""Shape rules of collectives that move rows, by effect."""
