"""cuBLASLt: matrix products with an epilogue in the same launch.

CuPy wraps only cuBLAS. cuBLAS itself uses cuBLASLt, so the library is installed; its C interface
has kept its names and numbers since CUDA 10.1 and is called by ctypes. Python wrappers change
faster (nvmath-python calls its bindings experimental). cuda-pathfinder, a dependency of CuPy, finds
the library.

Matrices are in BLAS's column-major order.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass

__all__ = ["BIAS", "BIAS_GRADIENT", "BIAS_RELU", "Library", "Product", "library", "multiply"]

BIAS, BIAS_RELU, BIAS_GRADIENT = 4, 6, 256
"""Epilogues: add the vector to every column; add it and apply relu; write a's row sums to it."""

_KINDS = {"float32": 0, "float16": 2}  # cudaDataType
_TURNED_A, _TURNED_B, _EPILOGUE, _VECTOR = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t
_NOT_SUPPORTED = 15
_MOST_WORKSPACE = 2**25
_ARGUMENTS = {
    "Create": [c_void_p],
    "MatmulDescCreate": [c_void_p, c_int, c_int],
    "MatmulDescSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "MatrixLayoutCreate": [c_void_p, c_int, c_uint64, c_uint64, c_int64],
    "MatmulPreferenceCreate": [c_void_p],
    "MatmulPreferenceSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "MatmulPreferenceDestroy": [c_void_p],
    "MatmulAlgoGetHeuristic": [c_void_p] * 7 + [c_int, c_void_p, c_void_p],
    "Matmul": [c_void_p] * 14 + [c_size_t, c_void_p],
}
_enqueuing = threading.Lock()  # a product has one vector at a time
_plans: dict[Any, _Plan | None] = {}


class LibraryError(RuntimeError):
    """A call failed.

    Args:
        name: of the function.
        status: ``cublasStatus_t``.
    """

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"{name} failed with status {status}")
        self.status = status


class Library:
    """The functions of the library that are used here.

    Args:
        functions: the library as a ctypes object.
    """

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Args:
            name: its name without ``cublasLt``.
            arguments: its arguments.

        Raises:
            LibraryError: the call failed.
        """
        function = getattr(self._functions, f"cublasLt{name}")
        function.argtypes = _ARGUMENTS[name]
        status = function(*arguments)
        if status:
            raise LibraryError(f"cublasLt{name}", status)

    def made(self, kind: str, *arguments: Any) -> int:
        """Make an object; returns its address.

        Args:
            kind: the kind of object.
            arguments: the arguments of the function that makes it.
        """
        made = c_void_p()
        self(f"{kind}Create", byref(made), *arguments)
        assert made.value is not None
        return made.value

    def set(self, kind: str, owner: int, attribute: int, value: Any) -> None:
        """Give an object an attribute.

        Args:
            kind: of the object.
            owner: its address.
            attribute: number of the attribute.
            value: a ctypes object.
        """
        self(f"{kind}SetAttribute", owner, attribute, byref(value), ctypes.sizeof(value))


@functools.cache
def library() -> Library | None:
    """The library that CuPy's cuBLAS calls; None if it is not found."""
    try:
        finder = importlib.import_module("cuda.pathfinder")
        return Library(ctypes.CDLL(finder.load_nvidia_dynamic_lib("cublasLt").abs_path))
    except (ImportError, RuntimeError, OSError):
        return None


@dataclass(frozen=True)
class Product:
    """A product ``a @ b`` of matrices without gaps, added up in float32.

    Args:
        kind: type of all numbers, ``float32`` or ``float16``.
        shape: rows and columns of the result, and columns of ``a``.
        turned: whether ``b`` is stored as its transpose.
        epilogue: the epilogue; its vector has an element for each row.
        compute: ``cublasComputeType_t``.
    """

    kind: str
    shape: tuple[int, int, int]
    turned: bool
    epilogue: int
    compute: int

    @property
    def stored(self) -> list[tuple[int, int]]:
        """Rows and columns of a, b and the result, as they are stored."""
        rows, columns, depth = self.shape
        return [(rows, depth), (columns, depth) if self.turned else (depth, columns),
                (rows, columns)]  # fmt: skip


class _Algorithm(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("data", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@dataclass(frozen=True)
class _Plan:
    """The plan of a product.

    Args:
        operation: the descriptor of the operation.
        layouts: the layouts of a, b and the result.
        algorithm: the algorithm that the heuristics chose.
    """

    operation: int
    layouts: list[int]
    algorithm: _Algorithm


def multiply(xp: Any, product: Product, a: Any, b: Any, out: Any, vector: Any) -> bool:
    """Enqueue a product on the current stream.

    Args:
        xp: ``cupy``.
        product: the product.
        a: the left matrix.
        b: the right matrix.
        out: takes the result.
        vector: the vector that the epilogue adds or, for a gradient, writes.

    Returns:
        Whether the library can compute it; if not, nothing was enqueued.
    """
    lt = library()
    assert lt is not None
    device, addresses = xp.cuda.Device().id, [array.data.ptr for array in (a, b, out, vector)]
    alignments = tuple(min(address & -address, 256) for address in addresses)
    key = lt, device, product, alignments
    with _enqueuing:
        handle = _handle(lt, device)
        if key not in _plans:
            _plans[key] = _planned(lt, handle, product, alignments, addresses[3])
        plan = _plans[key]
        if plan is None:
            return False
        lt.set("MatmulDesc", plan.operation, _VECTOR, c_uint64(addresses[3]))
        workspace = xp.empty(max(plan.algorithm.workspace, 1), np.uint8)
        (left, right, made), factors = plan.layouts, (byref(c_float(1)), byref(c_float(0)))
        lt(
            "Matmul", handle, plan.operation, factors[0], addresses[0], left, addresses[1], right,
            factors[1], addresses[2], made, addresses[2], made, byref(plan.algorithm),
            workspace.data.ptr, plan.algorithm.workspace, xp.cuda.get_current_stream().ptr,
        )  # fmt: skip
    return True


@functools.cache
def _handle(lt: Library, device: int) -> int:
    """The handle of a GPU, which must be current."""
    return lt.made("")


def _planned(
    lt: Library, handle: int, product: Product, alignments: tuple[int, ...], vector: int
) -> _Plan | None:
    """The plan that cuBLASLt's heuristics prefer; None if there is none."""
    operation = lt.made("MatmulDesc", product.compute, _KINDS["float32"])
    for attribute, value in (
        (_TURNED_A, c_int32(0)),
        (_TURNED_B, c_int32(product.turned)),
        (_EPILOGUE, c_uint32(product.epilogue)),
        (_VECTOR, c_uint64(vector)),  # the heuristics read its alignment
    ):
        lt.set("MatmulDesc", operation, attribute, value)
    kind = _KINDS[product.kind]
    layouts = [lt.made("MatrixLayout", kind, *form, form[0]) for form in product.stored]
    algorithm, count = _Algorithm(), c_int()
    preference = lt.made("MatmulPreference")
    lt.set("MatmulPreference", preference, _WORKSPACE, c_uint64(_MOST_WORKSPACE))
    for attribute, which in zip(_ALIGNMENTS, (0, 1, 2, 2), strict=True):
        alignment = alignments[which]
        lt.set("MatmulPreference", preference, attribute, c_uint32(alignment))
    try:
        lt(
            "MatmulAlgoGetHeuristic", handle, operation, *layouts, layouts[2], preference, 1,
            byref(algorithm), byref(count),
        )  # fmt: skip
    except LibraryError as error:
        if error.status != _NOT_SUPPORTED:
            raise
    lt("MatmulPreferenceDestroy", preference)
    return _Plan(operation, layouts, algorithm) if count.value else None
