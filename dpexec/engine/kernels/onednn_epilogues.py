"""Post-operations of oneDNN's primitives, before a result is stored: scales, sums, activations."""

from __future__ import annotations

import ctypes
import functools

from dpexec.engine.core.cache import limit_of
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.kernels.onednn_library import Handle, certain, create, entry, passed

__all__ = ["PLAIN", "Epilogue", "attributes", "scales_of"]

# Numbers of the C interface, version 3.
_USER_MEMORY = 1
_RELU, _LINEAR, _CLIP = 0x20, 0x26, 0x2F
_SCALES = 4096
_FUNCTIONS = {"relu": _RELU, "leaky_relu": _RELU, "relu6": _CLIP}


def scales_of(argument: int) -> int:
    """The number of the argument that holds the scales of another one: float32 numbers."""
    return _SCALES | argument


@dataclass(frozen=True)
class Epilogue:
    """What is done with a result, in this order.

    Args:
        scaled: a number for each argument that is multiplied by scales, its channels as the
            library's mask: bit 0 for the first dimension.
        factor: the result is multiplied by it, bias included.
        added: the numbers that lie where the result goes are added, multiplied by it; 0: they are
            overwritten.
        activation: ``relu``, ``leaky_relu`` or ``relu6``; empty: none.
        alpha: slope of ``leaky_relu``, end of ``relu6``.
    """

    scaled: tuple[tuple[int, int], ...] = ()
    factor: float = 1.0
    added: float = 0.0
    activation: str = ""
    alpha: float = 0.0

    @staticmethod
    def knows(activation: str) -> bool:
        """Whether the library's function is the activation of an operator, to its last bits."""
        return activation == "" or activation in _FUNCTIONS


PLAIN = Epilogue()


@functools.lru_cache(limit_of("oneDNN primitives"))
def attributes(epilogue: Epilogue = PLAIN) -> Handle:
    """The library's object for it; the caller of a primitive provides temporary memory."""
    made = certain(create("dnnl_primitive_attr_create"))
    entry("dnnl_primitive_attr_set_scratchpad_mode")(passed(made), _USER_MEMORY)
    for argument, mask in epilogue.scaled:
        entry("dnnl_primitive_attr_set_scales_mask")(passed(made), argument, mask)
    functions = certain(create("dnnl_post_ops_create"))
    if epilogue.factor != 1.0:
        _append(functions, _LINEAR, epilogue.factor, 0.0)
    if epilogue.added:
        entry("dnnl_post_ops_append_sum")(passed(functions), ctypes.c_float(epilogue.added), 0, 0)
    if epilogue.activation:
        clips = epilogue.activation == "relu6"
        slope = 0.0 if clips or epilogue.activation == "relu" else epilogue.alpha
        end = epilogue.alpha if clips else 0.0
        _append(functions, _FUNCTIONS[epilogue.activation], slope, end)
    entry("dnnl_primitive_attr_set_post_ops")(passed(made), passed(functions))
    return made


def _append(functions: Handle, function: int, alpha: float, beta: float) -> None:
    append = entry("dnnl_post_ops_append_eltwise")
    append(passed(functions), function, ctypes.c_float(alpha), ctypes.c_float(beta))
