"""Passes that join a convolution and the operators after it: bias, sum, batch norm, activation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpexec.engine.graph.operators import Uses
from dpexec.engine.ir.operator import Operator
from dpexec.engine.passes.pairs import fused, pairs
from dpexec.engine.passes.prediction.parameters import Array, Parameters

__all__ = ["ConvActivation", "ConvBatchNorm", "ConvBias", "ConvResidual"]

CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
Changes = dict[Operator, Operator | None]


class ConvBias:
    """A convolution adds the bias."""

    name = "conv_bias_mkldnn_fuse_pass"

    def rewrite(self, parameters: Parameters) -> bool:
        """Rewrite the operators; tell whether anything changed."""
        changes: Changes = {}
        for conv, add in _readers(parameters.operators.uses(), "elementwise_add"):
            bias = _bias(conv, add, parameters)
            if bias is not None and not _is_fused(conv, "bias residual activation"):
                inputs = {**conv.inputs, "Bias": [bias]}
                changes[conv], changes[add] = None, _with(conv, add, inputs)
        return parameters.operators.replace(changes)


class ConvBatchNorm:
    """Filters and bias of a convolution do what the batch norm behind it would do.

    Filters are multiplied by ``scale / sqrt(variance + epsilon)``, so results differ from those of
    two operators in their last bits.
    """

    name = "conv_bn_fuse_pass"

    def rewrite(self, parameters: Parameters) -> bool:
        """Rewrite the operators; tell whether anything changed."""
        changed = False
        for conv, norm in list(_readers(parameters.operators.uses(), "batch_norm")):
            if _is_fused(conv, "residual activation") or not _is_fixed(conv, norm):
                continue
            made = _folded(conv, norm, parameters)
            if made is not None:
                changed = parameters.operators.replace({conv: None, norm: made})
        return changed


class ConvResidual:
    """A convolution adds another value of its result's shape."""

    name = "conv_elementwise_add_mkldnn_fuse_pass"

    def rewrite(self, parameters: Parameters) -> bool:
        """Rewrite the operators; tell whether anything changed."""
        last: dict[Operator, Operator] = {}
        for conv, add in _readers(parameters.operators.uses(), "elementwise_add"):
            if not _is_fused(conv, "residual activation") and _adds_alike(conv, add):
                last[add] = conv
        changes: Changes = {}
        for add, conv in last.items():
            if conv not in changes:
                both = (*add.inputs["X"], *add.inputs["Y"])
                inputs = {**conv.inputs, "ResidualData": [_other(both, conv)]}
                changes[conv] = None
                changes[add] = _with(conv, add, inputs, fuse_residual_connection=True)
        return parameters.operators.replace(changes)


class ConvActivation:
    """A convolution applies ``relu``, ``relu6`` or ``leaky_relu`` to its result."""

    name = "conv_activation_mkldnn_fuse_pass"

    def rewrite(self, parameters: Parameters) -> bool:
        """Rewrite the operators; tell whether anything changed."""
        changes: Changes = {}
        for conv, act in _readers(parameters.operators.uses(), *_ALPHAS):
            if _is_fused(conv, "activation"):
                continue
            slot, usual = _ALPHAS[act.type]
            alpha = float(act.attrs.get(slot, usual))
            if act.type == "relu6" and alpha <= 0.0:
                continue
            attrs = {"fuse_activation": act.type, "fuse_alpha": alpha}
            changes[conv], changes[act] = None, _with(conv, act, conv.inputs, **attrs)
        return parameters.operators.replace(changes)


_ALPHAS = {"relu": ("", 0.0), "relu6": ("threshold", 6.0), "leaky_relu": ("alpha", 0.02)}
"""By activation, the attribute that becomes ``fuse_alpha``, and its default."""


def _readers(uses: Uses, *types: str) -> Iterator[tuple[Operator, Operator]]:
    """Convolutions of real numbers, each with the only reader of its result."""
    for type in CONVOLUTIONS:
        for conv, reader in pairs(uses, type, "Output", types, at_second=True):
            if not conv.attrs.get("fuse_relu_before_depthwise_conv"):
                yield conv, reader


def _is_fused(conv: Operator, what: str) -> bool:
    """Whether some of ``bias``, ``residual`` and ``activation`` are part of a convolution."""
    found = {
        "bias": bool(conv.inputs.get("Bias")),
        "residual": bool(conv.attrs.get("fuse_residual_connection")),
        "activation": bool(conv.attrs.get("fuse_activation")),
    }
    return any(found[word] for word in what.split())


def _with(conv: Operator, behind: Operator, inputs: dict[str, list[str]], **attrs: Any) -> Operator:
    """The convolution that also does the work of the operator behind it."""
    slot = "Y" if behind.type == "batch_norm" else "Out"
    outputs = {"Output": behind.outputs[slot]}
    plain = {**conv.plain_attrs(), "use_mkldnn": True, **attrs}
    return fused(conv, behind, conv.type, inputs, outputs, plain)


def _channel(conv: Operator) -> int:
    return 3 if conv.attrs.get("data_format") == "NHWC" else 1


def _bias(conv: Operator, add: Operator, parameters: Parameters) -> str | None:
    """The name of the bias that an addition adds to every filter's results; None: another sum."""
    (name,) = add.inputs["Y"]
    value = parameters.value(name)
    if add.inputs["X"] != conv.outputs["Output"] or value is None:
        return None
    filters = parameters.value(conv.inputs["Filter"][0])
    if filters is None or filters.ndim != 4 or value.size != filters.shape[0]:
        return None
    channel, axis = _channel(conv), add.attrs.get("axis", -1)
    axis = axis if axis >= 0 else 4 - value.ndim
    shape = [1] * axis + list(value.shape) + [1] * (4 - axis - value.ndim)
    alike = len(shape) == 4 and shape[channel] == value.size
    return (
        (name if value.ndim == 1 else parameters.added(name, value.reshape(-1))) if alike else None
    )


def _is_fixed(conv: Operator, norm: Operator) -> bool:
    """Whether a batch norm is a linear function of every channel, with parameters alone."""
    attrs = norm.attrs
    known = attrs.get("use_global_stats") or (
        attrs.get("is_test") and not attrs.get("trainable_statistics")
    )
    last = attrs.get("data_layout", "NCHW") == "NHWC"
    return bool(known) and not norm.inputs.get("MomentumTensor") and last == (_channel(conv) == 3)


def _folded(conv: Operator, norm: Operator, parameters: Parameters) -> Operator | None:
    """The convolution with other filters and another bias; None: they are not known."""
    names = [conv.inputs["Filter"][0], *conv.inputs.get("Bias", [])]
    read = [parameters.value(name) for name in names]
    slots = ("Scale", "Bias", "Mean", "Variance")
    of_norm = [parameters.value(norm.inputs[slot][0], (norm,)) for slot in slots]
    if any(value is None for value in (*read, *of_norm)):
        return None
    filters, *bias = (_exact(value) for value in read)
    scale, shift, mean, variance = (_exact(value) for value in of_norm)
    if filters.ndim != 4 or any(
        v.shape != filters.shape[:1] for v in (scale, shift, mean, variance)
    ):
        return None
    factor = scale / np.sqrt(variance + norm.attrs.get("epsilon", 1e-5))
    shift = shift + factor * ((bias[0].reshape(-1) if bias else 0.0) - mean)
    inputs = {
        **conv.inputs,
        "Filter": [parameters.replaced(names[0], filters * factor.reshape(-1, 1, 1, 1), conv)],
        "Bias": [parameters.added(names[0] + ".bias", shift)],
    }
    attrs = {}
    if conv.attrs.get("use_quantizer"):  # levels of the filters stay, what they stand for changes
        scales = np.array(conv.attrs["Scale_weights"]) / np.where(factor == 0, np.inf, abs(factor))
        attrs["Scale_weights"] = scales.tolist()
    return _with(conv, norm, inputs, **attrs)


def _exact(value: Array | None) -> Array:
    assert value is not None
    return value.astype(np.float64)


def _adds_alike(conv: Operator, add: Operator) -> bool:
    """Whether an addition adds two values of one shape, only one of them the convolution's."""
    names = [*add.inputs["X"], *add.inputs["Y"]]
    made = conv.outputs["Output"][0]
    if names.count(made) != 1:
        return False
    found = [conv.block._find_var_recursive(name) for name in names]
    if any(var is None for var in found):
        return False
    shapes = {tuple(var.shape) for var in found if var is not None}
    kinds = {(var.dtype, var.type) for var in found if var is not None}
    (shape,) = shapes if len(shapes) == 1 else ((),)
    return len(kinds) == 1 and len(shape) == 4 and -1 not in shape[1:]


def _other(names: tuple[str, ...], conv: Operator) -> str:
    return next(name for name in names if name not in conv.outputs["Output"])
