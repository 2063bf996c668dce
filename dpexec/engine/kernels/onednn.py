"""Convolutions and matrix products of oneDNN, an optional library.

A *primitive* of oneDNN is created for given shapes and layouts when an operator is lowered; the
code then calls it on arrays. It runs in the calling thread, or with threads of the library where
these give the same bits (:mod:`dpexec.engine.kernels.onednn_threads`). So results depend on the
processor's instruction set, but not on the number of cores.

Products may also read *halves*: bfloat16 numbers, each the upper half of a float32.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dpexec.engine.core.cache import limit_of
from dpexec.engine.kernels.onednn_epilogues import PLAIN, Epilogue, attributes
from dpexec.engine.kernels.onednn_library import (
    Handle,
    available,
    certain,
    create,
    engine,
    entry,
    entry_address,
    passed,
    stream,
    version,
)

__all__ = [
    "FLOAT32",
    "HALF",
    "INT8",
    "NUMBERS",
    "UINT8",
    "Primitive",
    "adds_bytes_exactly",
    "available",
    "convolution",
    "copies_operands",
    "described",
    "divided",
    "execute_functions",
    "lacks_halves",
    "product",
    "reorder",
    "rounding",
    "sgemm_address",
    "stream",
    "thread_functions",
    "vector_memory",
    "version",
]

# Numbers of the C interface, version 3.
HALF, FLOAT32, INT8, UINT8 = 2, 3, 5, 6
NUMBERS = {"float32": FLOAT32, "int8": INT8, "uint8": UINT8}
"""By name of an element type, the library's number of it."""
_ANY_LAYOUT, _DIRECT, _TRAINING = 1, 1, 64
_NAME = 8
_HALVES_IN_HARDWARE = 0xE7
_EXACT_BYTES = (0x0F, 0x67)  # AVX2_VNNI, AVX512_VNNI
_AVX512 = 0x27
_OF_ARGUMENT = 255
SRC, DST, WEIGHTS, BIAS, SCRATCHPAD = 1, 17, 33, 41, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS = 129, 145, 161


@contextmanager
def divided(threads: int = 1) -> Iterator[None]:
    """What is made or executed here divides its work for some threads."""
    before = entry("omp_get_max_threads")()
    entry("omp_set_num_threads")(threads)
    try:
        yield
    finally:
        entry("omp_set_num_threads")(before)


def described(
    shape: Sequence[int],
    order: Sequence[int] | None = None,
    number: int = FLOAT32,
    gap: int = 0,
) -> Handle:
    """The layout of an array.

    Args:
        shape: dimensions as oneDNN counts them: batch or filters, channels, height, width.
        order: the dimensions from the slowest to the fastest; None: the library chooses.
        number: type of the numbers.
        gap: how many numbers are unused behind each row, the fastest dimension.
    """
    return _described(tuple(shape), None if order is None else tuple(order), number, gap)


@functools.lru_cache(limit_of("oneDNN primitives"))
def _described(
    shape: tuple[int, ...], order: tuple[int, ...] | None, number: int, gap: int
) -> Handle:
    rank = len(shape)
    if order is None:
        made = create(
            "dnnl_memory_desc_create_with_tag", rank, shape, number, _ANY_LAYOUT,
            kind="memory_desc",
        )  # fmt: skip
        return certain(made)
    strides, step = [0] * rank, 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis] + (gap if step == 1 else 0)
    made = create(
        "dnnl_memory_desc_create_with_strides", rank, shape, number, tuple(strides),
        kind="memory_desc",
    )  # fmt: skip
    return certain(made)


class Layout:
    """How an argument of a primitive lies in memory.

    Args:
        description: the library's descriptor, which belongs to its primitive.
    """

    def __init__(self, description: Any, owner: Any) -> None:
        self.description = description
        self._owner = owner

    @property
    def nbytes(self) -> int:
        """Size in bytes, with padding."""
        size = entry("dnnl_memory_desc_get_size")
        size.restype = ctypes.c_size_t
        return int(size(self.description))

    def is_like(self, other: Layout | Handle) -> bool:
        """Whether two layouts are equal."""
        equal = entry("dnnl_memory_desc_equal")
        description = other.description if isinstance(other, Layout) else passed(other)
        return bool(equal(self.description, description))


class Primitive:
    """A computation of the library for fixed shapes and layouts.

    Args:
        description: a primitive descriptor.
        threads: how many work on it.

    Attributes:
        same: primitives for more threads that give the same bits, by the number that was wanted.
        parts: how many of its rows stay together in parts that give the same bits, and the
            primitives for these parts, by the number of parts.
    """

    def __init__(self, description: Handle, threads: int = 1) -> None:
        self.description, self.threads, self.same = description, threads, dict[int, Primitive]()
        self.parts = dict[int, tuple[int, Sequence[Primitive]]]()
        with divided(threads):
            made = create("dnnl_primitive_create", description)
        self.primitive = certain(made)

    def layout(self, argument: int) -> Layout:
        """The layout that it needs for an argument."""
        query = entry("dnnl_primitive_desc_query_md")
        query.restype = ctypes.c_void_p
        found = query(passed(self.description), _OF_ARGUMENT, argument)
        return Layout(ctypes.c_void_p(found), self)

    @property
    def method(self) -> str:
        """The library's name of the method, such as ``jit:avx2``."""
        return _method(self.description)

    @functools.cached_property
    def scratch(self) -> int:
        """Bytes of temporary memory that it needs."""
        return self.layout(SCRATCHPAD).nbytes

    def memory(self, argument: int) -> Handle:
        """An object for the address of an argument."""
        return _memory(self.layout(argument).description)


def _memory(description: Any) -> Handle:
    return certain(create("dnnl_memory_create", description, engine(), None))


def vector_memory(size: int) -> Handle:
    """An object for the address of some float32 numbers, such as scales."""
    return _memory(described([size], [0]))


# ---- computations


def convolution(
    what: str,
    image: Handle,
    weight: Handle,
    out: Handle,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[tuple[int, int]],
    method: str = "",
    refused: str = "",
    threads: int = 1,
    bias: Handle | None = None,
    epilogue: Epilogue = PLAIN,
) -> Primitive | None:
    """A convolution, or a gradient of it; None if the library cannot compute it.

    Args:
        what: ``forward``, ``backward_data`` or ``backward_weights``.
        image: layout of the images, or of their gradient.
        weight: layout of the filters, or of their gradient: ``(filters, channels, height, width)``,
            or groups before that.
        out: layout of the result, or of its gradient.
        strides: steps of the window.
        dilations: distances between the elements of a filter.
        pads: padding before and after, for each axis.
        method: a word in the name of the library's method. If it is empty, or no method has it, the
            library's preferred method is used.
        refused: a word in the names of methods that are not used; empty: all may be.
        threads: how many work on it.
        bias: layout of the bias that is added going forward.
        epilogue: what is done with the result going forward.
    """
    geometry = (
        tuple(strides),
        tuple(gap - 1 for gap in dilations),
        tuple(before for before, _ in pads),
        tuple(after for _, after in pads),
    )
    with divided(threads):
        forward = create(
            "dnnl_convolution_forward_primitive_desc_create",
            *(
                engine(),
                _TRAINING,
                _DIRECT,
                image,
                weight,
                bias,
                out,
                *geometry,
                attributes(epilogue),
            ),
            kind="primitive_desc",
        )
        if what == "forward" or forward is None:
            return None if forward is None else Primitive(forward, threads)
        no_bias = [None] if what == "backward_weights" else []

        def made() -> Handle | None:
            return create(
                f"dnnl_convolution_{what}_primitive_desc_create",
                *(engine(), _DIRECT, image, weight, *no_bias, out, *geometry, forward),
                attributes(),
                kind="primitive_desc",
            )

        found = (_by(made(), method) if method else None) or made()
        if refused:
            found = _by(found, refused, has=False)
    return None if found is None else Primitive(found, threads)


def _by(description: Handle | None, word: str, has: bool = True) -> Handle | None:
    """The descriptor of a method whose name contains a word, or does not; None: there is none."""
    while description is not None:
        if (word in _method(description)) == has:
            return description
        if entry("dnnl_primitive_desc_next_impl")(passed(description)):
            return None
    return None


def _method(description: Handle) -> str:
    """The library's name of a method, such as ``jit:avx2``."""
    name = ctypes.c_char_p()
    entry("dnnl_primitive_desc_query")(passed(description), _NAME, 0, ctypes.byref(name))
    return (name.value or b"").decode()


@functools.lru_cache(limit_of("oneDNN primitives"))
def product(
    a: Handle, b: Handle, out: Handle, bias: Handle | None = None, epilogue: Epilogue = PLAIN,
    threads: int = 1,
) -> Primitive:  # fmt: skip
    """A matrix product, or a batch of them: arguments SRC, WEIGHTS, BIAS and DST.

    Args:
        a: layout of the left matrix.
        b: layout of the right matrix.
        out: layout of the result.
        bias: layout of the bias that is added.
        epilogue: what is done with the result.
        threads: how many work on it.
    """
    with divided(threads):
        made = create(
            "dnnl_matmul_primitive_desc_create",
            *(engine(), a, b, bias, out, attributes(epilogue)),
            kind="primitive_desc",
        )
    return Primitive(certain(made), threads)


@functools.cache
def sgemm_address() -> int:
    """Address of the library's ``sgemm``, which needs no primitive."""
    return entry_address("dnnl_sgemm")


@functools.cache
def thread_functions() -> tuple[int, int]:
    """Addresses of the functions that get and set the number of the library's threads."""
    return entry_address("omp_get_max_threads"), entry_address("omp_set_num_threads")


@functools.cache
def execute_functions() -> tuple[int, int]:
    """Addresses of the functions that set the address of an array and execute a primitive."""
    return entry_address("dnnl_memory_set_data_handle"), entry_address("dnnl_primitive_execute")


def lacks_halves() -> str:
    """The reason why products of halves are not possible; empty if they are."""
    if not available():
        return "oneDNN is not installed (pip install onednn-cpu-gomp)"
    if entry("dnnl_get_effective_cpu_isa")() & _HALVES_IN_HARDWARE != _HALVES_IN_HARDWARE:
        return "this processor has no instructions for it (AVX512_BF16 or AMX_BF16)"
    return ""


def adds_bytes_exactly() -> bool:
    """Whether sums of products of 8 bits are exact: they saturate in 16 bits without VNNI."""
    if not available():
        return False
    isa = entry("dnnl_get_effective_cpu_isa")()
    return any(isa & wanted == wanted for wanted in _EXACT_BYTES)


@functools.cache
def copies_operands() -> bool:
    """Whether products copy the blocks of their operands: the library does so with AVX-512."""
    return available() and entry("dnnl_get_effective_cpu_isa")() & _AVX512 == _AVX512


def reorder(source: Layout | Handle, target: Layout | Handle) -> Primitive:
    """Convert an array from one layout to another: arguments SRC and DST."""
    ends = [item.description if isinstance(item, Layout) else item for item in (source, target)]
    with divided():
        made = create(
            "dnnl_reorder_primitive_desc_create",
            *(ends[0], engine(), ends[1], engine(), attributes()),
            kind="primitive_desc",
        )
    return Primitive(certain(made))


@functools.lru_cache(limit_of("oneDNN primitives"))
def rounding(size: int) -> Primitive:
    """Round some float32 numbers to halves: arguments SRC and DST."""
    return reorder(described([size], [0]), described([size], [0], HALF))
