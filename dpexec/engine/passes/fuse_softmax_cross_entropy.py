"""``fuse_softmax_with_cross_entropy``: a softmax and its cross entropy become one operator."""

from __future__ import annotations

from dpexec.engine.graph.operators import Operators, Uses
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.passes.pairs import fused

__all__ = ["FuseSoftmaxCrossEntropy"]

Changes = dict[Operator, Operator | None]


class FuseSoftmaxCrossEntropy:
    """Replace ``softmax`` and ``cross_entropy2`` by ``softmax_with_cross_entropy``.

    Their gradients are fused if nothing else contributes to the gradient of the softmax. Softmax
    and loss keep their bits. The gradient becomes ``softmax - label``, without dividing and
    multiplying by the softmax: it differs by rounding, 1e-6 relative, and it is finite where the
    softmax is 0. fluid's users get the same by calling ``layers.softmax_with_cross_entropy``.
    """

    name = "fuse_softmax_with_cross_entropy"

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        uses = operators.uses()
        changes: Changes = {}
        for position, op in enumerate(uses.ops):
            if op.type == "softmax" and _along_last_axis(op):
                changes.update(_together(uses, position))
        return operators.replace(changes)


def _along_last_axis(op: Operator) -> bool:
    (name,) = op.inputs["X"]
    found = op._variables([name])
    return name in found and op.attrs.get("axis", -1) in (-1, len(found[name].shape) - 1)


def _together(uses: Uses, position: int) -> Changes:
    """The replacements for a softmax, its loss and their gradients; none if they cannot fuse."""
    softmax = uses.ops[position]
    (result,) = softmax.outputs["Out"]
    losses = [r for r in uses.readers[result] if uses.ops[r].type == "cross_entropy2"]
    if len(losses) != 1 or len(uses.writers[result]) != 1:
        return {}
    (reader,) = losses
    loss = uses.ops[reader]
    (out,), (match,) = loss.outputs["Y"], loss.outputs["MatchX"]
    steady = uses.same(loss.inputs["Label"], position, reader) and softmax.role == loss.role
    once = len(uses.writers[out]) == 1 and all(r > reader for r in uses.readers[out])
    if not steady or not once or not uses.temporary(match):
        return {}
    changes = _gradients(uses, loss, result)
    if changes is None:
        return {}
    inputs = {"Logits": softmax.inputs["X"], "Label": loss.inputs["Label"]}
    outputs = {"Softmax": [result], "Loss": [out]}
    attrs = {"soft_label": False, "ignore_index": loss.attrs.get("ignore_index", -100)}
    made = fused(softmax, loss, "softmax_with_cross_entropy", inputs, outputs, attrs)
    return {**changes, softmax: made, loss: None}


def _gradients(uses: Uses, loss: Operator, result: str) -> Changes | None:
    """The replacements for both gradients; None if others read the gradient between them."""
    shared = [name for slot in ("MatchX", "XShape") for name in loss.outputs.get(slot, [])]
    readers = {reader for name in roles.present(shared) for reader in uses.readers[name]}
    if not readers:
        return {}
    first = min(readers)
    one = uses.ops[first]
    if len(readers) > 1 or one.type != "cross_entropy_grad2":
        return None
    second = uses.only_reader(one.outputs["X@GRAD"][0])
    if second is None:
        return None
    other = uses.ops[second]
    read = [*one.inputs["Label"], *one.inputs["Y@GRAD"], result]
    if other.type != "softmax_grad" or other.inputs["Out"] != [result] or one.role != other.role:
        return None
    if not uses.same(read, first, second):
        return None
    slots = {"Label": one.inputs["Label"], "Loss@GRAD": one.inputs["Y@GRAD"]}
    attrs = {"soft_label": False, "ignore_index": one.attrs.get("ignore_index", -100)}
    made = fused(
        one,
        other,
        "softmax_with_cross_entropy_grad",
        {"Softmax": [result], **slots},
        {"Logits@GRAD": other.outputs["X@GRAD"]},
        attrs,
    )
    return {one: None, other: made}
