"""``sync_batch_norm``: batch normalization with the statistics of the batch on all devices."""

from __future__ import annotations

from dpexec.engine.graph.operators import Operators
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator, op_error

__all__ = ["SyncBatchNorm"]

_OWN = ("momentum", "epsilon", "data_layout")


class SyncBatchNorm:
    """Split ``batch_norm`` and its gradient at the point where sums over all devices are needed.

    Replication puts an ``all_sum`` collective between the halves. N devices then compute, up to
    rounding, the result of one device on the whole batch; unlike other passes, this one is meant to
    change numbers. Operators that only use moving statistics are not changed.
    """

    name = "sync_batch_norm"

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed.

        Raises:
            EnforceNotMet: there is an ``inplace_abn``, which cannot be split.
        """
        changes: dict[Operator, list[Operator]] = {}
        of_output: dict[str, str] = {}
        for op in operators.ops:
            if op.type == "batch_norm" and _of_batch(op):
                sums = op.outputs["SavedMean"][0] + "@SUMS"
                of_output[op.outputs["SavedMean"][0]] = sums
                changes[op] = _forward(op, sums)
            elif op.type == "inplace_abn" and _of_batch(op):
                problem = "sync_batch_norm does not split it: use batch_norm and an activation"
                raise op_error(op, problem, {})
            elif op.type == "batch_norm_grad" and op.inputs["SavedMean"][0] in of_output:
                changes[op] = _backward(op, of_output[op.inputs["SavedMean"][0]])
        return operators.expand(changes)


def _of_batch(op: Operator) -> bool:
    frozen = op.attrs.get("is_test") and not op.attrs.get("trainable_statistics")
    by_tensor = op.inputs.get("MomentumTensor")
    return not (op.attrs.get("use_global_stats") or frozen or by_tensor)


def _forward(op: Operator, sums: str) -> list[Operator]:
    inputs = {slot: op.inputs[slot] for slot in ("X", "Scale", "Bias", "Mean", "Variance")}
    outputs = {slot: names for slot, names in op.outputs.items() if slot != "ReserveSpace"}
    return [
        _made(op, "sync_batch_norm_sums", {"X": inputs["X"]}, {"Sums": [sums]}, summed=[sums]),
        _made(op, "sync_batch_norm", {**inputs, "Sums": [sums]}, outputs),
    ]


def _backward(op: Operator, sums: str) -> list[Operator]:
    shared = {slot: op.inputs[slot] for slot in ("X", "SavedMean", "SavedVariance", "Y@GRAD")}
    grad_sums = f"{sums}@GRAD"
    of_state = {slot: op.outputs.get(slot, []) for slot in ("Scale@GRAD", "Bias@GRAD")}
    made = {"Sums": [grad_sums], **of_state}
    found = [_made(op, "sync_batch_norm_grad_sums", shared, made, summed=[grad_sums])]
    if op.outputs.get("X@GRAD"):
        inputs = {**shared, "Scale": op.inputs["Scale"], "Sums": [sums], "GradSums": [grad_sums]}
        outputs = {"X@GRAD": op.outputs["X@GRAD"]}
        found.append(_made(op, "sync_batch_norm_grad", inputs, outputs))
    return found


def _made(
    op: Operator,
    type: str,
    inputs: dict[str, list[str]],
    outputs: dict[str, list[str]],
    summed: list[str] | None = None,
) -> Operator:
    attrs = op.origin_attrs() | {name: op.attrs[name] for name in _OWN if name in op.attrs}
    if summed is not None:
        attrs |= {"sum_over_devices": summed, roles.ROLE_VAR: op.role_var}
    return Operator(op.block, type, inputs, outputs, attrs, op.callsite)
