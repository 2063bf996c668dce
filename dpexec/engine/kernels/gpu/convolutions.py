"""Convolutions by cuDNN, through the graph API of ``nvidia-cudnn-frontend``.

A graph is one convolution, or one of its gradients, for given sizes and strides, so both image
layouts work without a copy. Its plan is built for each new size by cuDNN's heuristics, and cached.
Operands are not rounded and sums are in float32, unless ``BuildStrategy.product_precision`` is set:
tensor cores round to TensorFloat-32 themselves; bfloat16 operands are rounded beforehand. With
``FLAGS_cudnn_deterministic``, nondeterministic plans are not used. Without cuDNN, or without a plan
for the sizes, a convolution is a matrix product, as declared in :mod:`dpexec.engine.ops.conv2d`.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.flags import asks_for_equal_runs
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.kernels.gpu.bfloat16 import rounded, widen
from dpexec.engine.kernels.gpu.products import precision_of
from dpexec.engine.kernels.implementations import implementation
from dpexec.engine.ops._convolution import Window
from dpexec.engine.ops._small_convolution import SCALING
from dpexec.engine.ops._windows import has_channels_last, image_shape

__all__ = ["library"]

_enqueuing = threading.Lock()  # a handle has one stream at a time

_RESULTS = {"float32": ["FLOAT"], "tf32": ["FLOAT"], "bfloat16": ["FLOAT", "BFLOAT16"]}
"""Types of results that are tried in turn, by precision, until there is a plan."""


@functools.cache
def library() -> Any | None:
    """The module ``cudnn``; None if it, or cuDNN itself, is not installed."""
    try:
        found = importlib.import_module("cudnn")
        found.backend_version()
    except (ImportError, RuntimeError, OSError):
        return None
    return found


def _there() -> bool:
    return library() is not None


@implementation("conv2d", "depthwise_conv2d", backend="gpu", where=_there)
def _forward(
    xp: Any, image: Any, weight: Any, *others: Any,
    fuse_relu_before_depthwise_conv: bool = False, fuse_activation: str = "",
    fuse_alpha: float = 0.0, fuse_residual_connection: bool = False, **attrs: Any,
) -> Any:  # fmt: skip
    """Supports float32, sizes with a plan, and no fused activation."""
    fused = fuse_activation or any(other is not None for other in others)
    if fuse_relu_before_depthwise_conv or fused or image.dtype.kind != "f":
        return None
    attrs = {name: value for name, value in attrs.items() if name not in SCALING}
    operands = _operands(xp, image, weight)
    if operands is None:
        return None
    window = Window.of(image.shape, weight.shape[2:], **attrs)
    shape = image_shape(image.shape[0], weight.shape[0], window.output, window.layout)
    return _convolved(xp, "conv_fprop", operands, shape, window)


@implementation("conv2d_grad", "depthwise_conv2d_grad", backend="gpu", where=_there)
def _gradients(
    xp: Any, image: Any, weight: Any, *others: Any, needs: Sequence[bool],
    fuse_relu_before_depthwise_conv: bool = False, **attrs: Any,
) -> Any:  # fmt: skip
    """Supports float32, and sizes with a plan."""
    if fuse_relu_before_depthwise_conv or any(other is not None for other in others[:-1]):
        return None
    operands = _operands(xp, image, weight, others[-1])
    if operands is None:
        return None
    window = Window.of(image.shape, weight.shape[2:], **attrs)
    (x, w, d_out), made = operands, []
    for needed, kind, pair, shape in (
        (needs[0], "conv_dgrad", (d_out, w), image.shape),
        (needs[1], "conv_wgrad", (x, d_out), weight.shape),
    ):
        made.append(_convolved(xp, kind, pair, shape, window) if needed else None)
        if needed and made[-1] is None:
            return None
    return (*made, *[None] * (len(needs) - 2))


def _operands(xp: Any, *arrays: Any) -> Sequence[Any] | None:
    """The operands for cuDNN, rounded if asked for; None if it does not support them."""
    if any(array.dtype != "float32" or not array.size for array in arrays):
        return None
    if precision_of(xp) == "bfloat16":
        return [rounded(xp, array) for array in arrays]
    return arrays


def _convolved(xp: Any, kind: str, operands: Sequence[Any], shape: Any, window: Window) -> Any:
    """Enqueue a convolution on the current stream; None if there is no plan for it."""
    if window.crops:
        return None
    cudnn = library()
    assert cudnn is not None
    out = xp.empty(shape, np.float32)
    names = _NAMES[kind]
    seen = [_channels_first(a, n, window) for a, n in zip((*operands, out), names, strict=True)]
    forms = tuple((a.shape, tuple(step // a.itemsize for step in a.strides)) for a in seen)
    device, precision = xp.cuda.Device().id, precision_of(xp)
    with _enqueuing:
        handle = _handle(cudnn, device)
        cudnn.set_stream(handle=handle, stream=xp.cuda.get_current_stream().ptr)
        plan = _plan(cudnn, device, kind, forms, window, precision, asks_for_equal_runs())
        if plan is None:
            return None
        made = xp.empty(shape, np.uint16) if plan.rounds else out
        # addresses: CuPy has no bfloat16, and makes the null stream wait for arrays that it passes
        addresses = [array.data.ptr for array in (*operands, made)]
        workspace = xp.empty(max(plan.workspace, 1), np.uint8)
        given = dict(zip(plan.tensors, addresses, strict=True))
        plan.graph.execute(given, workspace.data.ptr, handle=handle)
    if plan.rounds:
        widen(xp, made, out)
    return out


_NAMES = {
    "conv_fprop": ("image", "weight", "out"),
    "conv_dgrad": ("loss", "filter", "image"),
    "conv_wgrad": ("image", "loss", "weight"),
}
"""cuDNN's names of the operands of each kind; the last one is the result."""


def _channels_first(array: Any, name: str, window: Window) -> Any:
    """A view of images with the channels before height and width, for any memory layout."""
    is_image = name not in ("weight", "filter")
    return array.transpose(0, 3, 1, 2) if is_image and has_channels_last(window.layout) else array


@functools.cache
def _handle(cudnn: Any, device: int) -> Any:
    """The handle of a GPU, which must be current."""
    return cudnn.create_handle()


@dataclass(frozen=True)
class _Plan:
    """A graph that has been built.

    Args:
        graph: the library's graph.
        tensors: its operands and its result.
        workspace: bytes of temporary memory.
        rounds: whether its result is bfloat16.
    """

    graph: Any
    tensors: Sequence[Any]
    workspace: int
    rounds: bool


@functools.cache
def _plan(
    cudnn: Any, device: int, kind: str, forms: Any, window: Window, precision: str,
    equal_runs: bool,
) -> _Plan | None:  # fmt: skip
    """The plan of a convolution on a GPU; None if cuDNN has none."""
    notes = cudnn.numerical_note
    unwanted = [notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION]
    unwanted += [notes.TENSOR_CORE] * (precision == "float32")
    unwanted += [notes.NONDETERMINISTIC] * equal_runs
    given = cudnn.data_type.BFLOAT16 if precision == "bfloat16" else cudnn.data_type.FLOAT
    for result in _RESULTS[precision]:
        types = given, getattr(cudnn.data_type, result)
        graph, tensors = _graph(cudnn, device, kind, forms, window, types)
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            graph.deselect_numeric_notes(unwanted)
            graph.check_support()
            graph.build_plans()
        except cudnn.cudnnGraphNotSupportedError:
            continue
        return _Plan(graph, tensors, graph.get_workspace_size(), result == "BFLOAT16")
    return None


def _graph(
    cudnn: Any, device: int, kind: str, forms: Any, window: Window, types: tuple[Any, Any]
) -> tuple[Any, list[Any]]:
    """A convolution of operands of one type, with a result of another, and its tensors."""
    kinds = dict.fromkeys(
        ("io_data_type", "intermediate_data_type", "compute_data_type"), cudnn.data_type.FLOAT
    )
    graph = cudnn.pygraph(handle=_handle(cudnn, device), **kinds)
    operands = {
        name: graph.tensor(dim=list(sizes), stride=list(steps), data_type=types[0])
        for name, (sizes, steps) in zip(_NAMES[kind][:2], forms, strict=False)
    }
    before, after = (list(pads) for pads in zip(*window.pads, strict=True))
    out = getattr(graph, kind)(
        **operands, pre_padding=before, post_padding=after, stride=list(window.strides),
        dilation=list(window.dilations),
    )  # fmt: skip
    sizes, steps = forms[2]
    out.set_output(True).set_data_type(types[1]).set_dim(list(sizes)).set_stride(list(steps))
    return graph, [*operands.values(), out]
