"""Matrix products: by oneDNN if it is installed, else by NumPy's OpenBLAS.

The rule is this simple because oneDNN won for all measured shapes. Times in us on one core of an
AMD EPYC with AVX-512, minima of interleaved repetitions; x.T means transposed; OpenBLAS uses its
AVX2 kernels on this processor:

| product               | OpenBLAS | oneDNN: sgemm | matmul | packed + packing | halves + cost |
|-----------------------|---------:|--------------:|-------:|-----------------:|--------------:|
| 32x784 . 784x200      |       93 |            44 |     45 |          44 + 14 |       30 + 10 |
| 32x200 . (784x200).T  |       98 |            50 |     51 |          43 + 41 |       26 + 10 |
| (32x784).T . 32x200   |       88 |            46 |     46 |           45 + 2 |        26 + 3 |
| 32x200 . 200x10       |      2.9 |           2.1 |    1.8 |        1.7 + 1.1 |     1.4 + 1.1 |
| 512x1024 . 1024x1024  |     8883 |          4591 |   4823 |       4422 + 195 |    2360 + 195 |
| 512x1024 . same.T     |     9050 |          4875 |   4687 |       4484 + 515 |    2325 + 165 |
| (512x1024).T . same   |     8996 |          4713 |   4869 |        4559 + 98 |    2422 + 113 |
| 64x256 . 256x2000     |      595 |           267 |    274 |         263 + 49 |               |
| 256x400 . 400x400     |      668 |           341 |    331 |         326 + 17 |               |
| 512x256 . 256x1024    |     2242 |          1175 |   1119 |        1089 + 46 |      553 + 26 |
| 512x256 . 256x8000    |    18507 |          8844 |   8883 |       8866 + 629 |    4791 + 285 |
| 32 of 64x64 . 64x64   |      292 |               |     68 |          68 + 11 |       36 + 52 |
| 256x400 . 400x1       |       15 |             4 |     15 | as a row: 7      |               |
| (256x400).T . 256x1   |       16 |             3 |     25 | as a row: 3      |               |

A primitive (matmul) takes 0.15 to 0.8 ms to create, for each batch size; sgemm needs none. So sgemm
is used unless it is slower. It is slower for long products, where primitives pay, and for products
with a large transposed right operand, which sgemm copies to transpose it (64x2000 . (256x2000).T:
391 us, matmul 290). If rows are long and the left operand is far smaller, the left operand and the
result are transposed instead, in about 300 us.

Packing weights at every step does not pay. Halves are bfloat16 operands of products that are summed
in float32; every operand is rounded once, however many products read it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.sizes import Counts, Rows, at
from dpexec.engine.kernels import layouts, onednn, onednn_calls, onednn_rows
from dpexec.engine.kernels.blas import gemm, sgemm_address
from dpexec.engine.kernels.lowering import Code, Sized, Value, lowering
from dpexec.engine.kernels.onednn_epilogues import Epilogue
from dpexec.engine.kernels.onednn_threads import product_threads, with_threads
from dpexec.engine.kernels.packing import GAP, collide, half, is_packed, repays, spread
from dpexec.engine.ops.matmul import scale_of

__all__ = ["layer_product", "matrix_product"]


@dataclass(frozen=True, eq=False)
class _Product:
    """A product of matrices; :func:`matrix_product` describes the fields."""

    a: Any  # a value, or a constant where it was spread
    b: Any
    out: Value
    sizes: tuple[int, int, int]
    flips: tuple[bool, bool]
    alpha: float
    times: int
    apart: tuple[bool, bool, bool]
    gaps: tuple[int, int] = (0, 0)

    @property
    def steps(self) -> tuple[Any, Any, Any]:
        """Elements of a, b and out from one matrix to the next."""
        m, n, k = self.sizes
        a, b, out = self.apart
        return m * k * a, k * n * b, m * n * out

    def spread(self, code: Code) -> _Product:
        """The product of copies whose rows do not push each other out of the caches."""
        m, n, k = self.sizes
        made = self
        if self.times > 1 or code.halves:
            return made
        if self.flips[0] and collide(m) and n >= repays(k, m):
            made = replace(made, a=spread(code, self.a, k, m), gaps=(GAP, 0))
        if not self.flips[1] and collide(n) and m >= repays(k, n):
            made = replace(made, b=spread(code, self.b, k, n), gaps=(made.gaps[0], GAP))
        return made

    def turned(self, out: Value) -> _Product:
        """The product ``b.T @ a.T``, which is the transposed result."""
        m, n, k = self.sizes
        flips = not self.flips[1], not self.flips[0]
        apart = self.apart[1], self.apart[0], self.apart[2]
        gaps = self.gaps[::-1]
        return replace(
            self, a=self.b, b=self.a, out=out, sizes=(n, m, k), flips=flips, apart=apart, gaps=gaps
        )


def matrix_product(
    code: Code,
    a: Value,
    b: Value,
    out: Value,
    sizes: tuple[int, int, int],
    flips: tuple[bool, bool] = (False, False),
    alpha: float = 1.0,
    times: int = 1,
    apart: tuple[bool, bool, bool] = (True, True, True),
) -> bool:
    """``out = alpha * a @ b`` for row-major matrices, ``times`` one after another.

    Args:
        code: takes the calls.
        a: ``(m, k)``, or ``(k, m)`` if flipped.
        b: ``(k, n)``, or ``(n, k)`` if flipped.
        out: ``(m, n)``.
        sizes: ``(m, n, k)``.
        flips: whether a and b are transposed.
        alpha: factor of the product.
        times: number of matrices in each array.
        apart: for a, b and out, whether each product has its own matrix. If not, an operand is the
            same matrix for all products, and a result is the sum of all products.

    Returns:
        Whether it was possible; without a bias it always is.
    """
    some = all(size > 0 for size in (*sizes, times))
    library = onednn.available() and some and (times == 1 or apart[2])
    if code.bias and not (library and code.bias.shape == (sizes[1],) != (1,) and alpha == 1.0):
        return False  # the library would scale the bias, too
    product = _Product(a, b, out, sizes, flips, alpha, times, apart)
    if library:
        _by_onednn(code, product.spread(code))
    else:
        _by_blas(code, product)
    return True


def _by_onednn(code: Code, product: _Product) -> None:
    if product.times == 1 and not code.halves and _without_primitive(code, product):
        return
    if product.sizes[1] == 1:  # a column is computed as a row
        product = product.turned(product.out)
    left, right = product.a, product.b
    if code.halves:
        left, right = half(code, left), half(code, right)
    bias = {onednn.BIAS: code.bias} if code.bias else {}
    arguments = {onednn.SRC: left, onednn.WEIGHTS: right, **bias, onednn.DST: product.out}
    number = onednn.HALF if code.halves else onednn.FLOAT32
    make = functools.partial(_primitive, product, number, bool(bias), code.threads)
    rows = Rows.of(*product.sizes, product.times)
    if product.times == 1 or number != onednn.FLOAT32:
        onednn_calls.emit(code, arguments, make, rows)
        return

    def some(count: Counts, times: int) -> onednn.Primitive:
        return _primitive(replace(product, times=times), number, bool(bias), 1, count)

    work = math.prod((*product.sizes, product.times))
    parts = onednn_rows.Parts(product.times, product.steps, work, some, fewest=1)
    onednn_rows.emit(code, arguments, make, parts, rows)


def _primitive(
    product: _Product, number: int, biased: bool, threads: int, count: Counts
) -> onednn.Primitive:
    """The library's matmul for a number of rows.

    Args:
        product: what it computes.
        number: type of the numbers of its operands.
        biased: whether a bias is added to every row.
        threads: how many may work on it.
        count: the numbers of rows of the batch, if sizes depend on them.
    """
    m, n, k = product.sizes

    def laid(
        rows: int, columns: int, many: bool, flip: bool, number: int = onednn.FLOAT32, gap: int = 0
    ) -> onednn.Handle:
        shape, order = [at(rows, count), at(columns, count)], [1, 0] if flip else [0, 1]
        if product.times > 1:
            shape = [at(product.times, count) if many else 1, *shape]
            order = [0, *(axis + 1 for axis in order)]
        return onednn.described(shape, order, number, gap)

    ends = (
        laid(m, k, product.apart[0], product.flips[0], number, product.gaps[0]),
        laid(k, n, product.apart[1], product.flips[1], number, product.gaps[1]),
        laid(m, n, True, False),
        laid(1, n, False, False) if biased else None,
        Epilogue(factor=product.alpha),
    )
    if threads == 1 or number != onednn.FLOAT32:
        return onednn.product(*ends)
    work = math.prod(at(size, count) for size in (*product.sizes, product.times))
    return with_threads(
        onednn.product(*ends), threads, work, lambda: onednn.product(*ends, threads)
    )


def _without_primitive(code: Code, product: _Product) -> bool:
    """Multiply by the library's sgemm; False if a primitive is faster."""
    m, n, k = product.sizes
    flipped = product.flips[1]
    if _needs_no_primitive(m, n, k, flipped):
        _by_sgemm(code, product, code.bias)
        return True
    if code.bias or not flipped or not _has_long_rows(m, n, k):
        return False
    turned = code.scratch(n, m)
    _by_sgemm(code, product.turned(turned), None)
    code.emit(layouts.turn, 1, n, m, turned, product.out)
    return True


def layer_product(
    code: Code,
    operands: tuple[Value, Value, Value],
    sizes: tuple[int, int, int],
    bias: Value | None,
    relu: bool,
) -> None:
    """``out = relu(a @ b + bias)`` by the library's sgemm.

    Args:
        code: takes the calls.
        operands: ``(m, k)``, ``(k, n)`` and ``(m, n)``.
        sizes: ``(m, n, k)``.
        bias: a number for every column; None: none is added.
        relu: whether relu is applied.
    """
    whole, (m, n, k) = (True, True, True), sizes
    product = _Product(*operands, sizes, (False, False), alpha=1.0, times=1, apart=whole)
    if is_packed(code, operands[1]) and collide(n) and m > 1:
        product = replace(product, b=spread(code, operands[1], k, n), gaps=(0, GAP))
    _by_sgemm(code, product, bias, relu)


def _by_sgemm(code: Code, product: _Product, bias: Value | None, relu: bool = False) -> None:
    (m, n, k), flips = product.sizes, product.flips
    code.emit(
        onednn_calls.product,
        *(*onednn.thread_functions(), _team(product, code.threads), onednn_calls.noted(code)),
        onednn.sgemm_address(),
        *(*flips, m, n, k, float(product.alpha)),
        *(product.a, (m if flips[0] else k) + product.gaps[0]),
        *(product.b, (k if flips[1] else n) + product.gaps[1], product.out),
        *(bias is not None, 0 if bias is None else bias, relu),
    )


def _team(product: _Product, threads: int) -> int | Sized:
    """How many threads work on a product."""
    if threads == 1:
        return 1

    def team(count: Counts) -> int:
        m, n, k = (at(size, count) for size in product.sizes)
        return product_threads((m, n, k), product.flips, threads)

    return Sized(team)


_FEW, _MORE, _MANY = 2**22, 2**24, 2**26
_IN_CACHE = 2**18
"""Elements of a matrix whose copy takes hardly any time, as it fits into the cache."""


def _needs_no_primitive(m: int, n: int, k: int, flipped: bool) -> bool:
    """Whether sgemm is as fast as a primitive, or the product too short to pay for making one."""
    if not flipped:
        return n == 1 or m * n * k <= _MANY
    return n == 1 or m * n * k <= (_MORE if n * k <= _IN_CACHE else _FEW)


def _has_long_rows(m: int, n: int, k: int) -> bool:
    """Whether transposing the left operand and the result is faster than the right operand."""
    return m <= n and k >= 4 * n and m * n * k <= _MANY


def _by_blas(code: Code, product: _Product) -> None:
    (m, n, k), flips, steps = product.sizes, product.flips, product.steps
    rows = (m if flips[0] else k, k if flips[1] else n)

    def emit(first: int, times: int, beta: float) -> None:
        code.emit(
            gemm,
            *(sgemm_address(), first, times, *flips, m, n, k, float(product.alpha)),
            *(product.a, rows[0], steps[0], product.b, rows[1], steps[1]),
            *(beta, product.out, n, steps[2]),
        )

    added = product.times > 1 and not product.apart[2]
    emit(0, 1 if added else product.times, 0.0)
    if added:
        emit(1, product.times, 1.0)


def _all_single(*values: Value | None) -> bool:
    return sgemm_address() != 0 and all(v is None or v.dtype == "float32" for v in values)


def _sizes(x: Value, y: Value, x_dims: int, y_dims: int) -> tuple[int, int, int]:
    return math.prod(x.shape[:x_dims]), math.prod(y.shape[y_dims:]), math.prod(x.shape[x_dims:])


@lowering("mul")
def mul(
    code: Code, x: Value, y: Value, out: Value, *, x_num_col_dims: Any, y_num_col_dims: Any
) -> Any:
    """One product."""
    if not _all_single(x, y):
        return False
    return matrix_product(code, x, y, out, _sizes(x, y, x_num_col_dims, y_num_col_dims))


@lowering("mul_grad")
def mul_grad(
    code: Code, x: Value, y: Value, d_out: Value, dx: Value | None, dy: Value | None,
    *, x_num_col_dims: Any, y_num_col_dims: Any,
) -> Any:  # fmt: skip
    """``d_out @ y.T`` and ``x.T @ d_out``."""
    if not _all_single(x, y, d_out):
        return False
    m, n, k = _sizes(x, y, x_num_col_dims, y_num_col_dims)
    if dx is not None:
        matrix_product(code, d_out, y, dx, (m, k, n), (False, True))
    if dy is not None:
        matrix_product(code, x, d_out, dy, (k, n, m), (True, False))


# ---- batches of matrices


class _Matmul:
    """Both operands of ``matmul`` as batches of matrices.

    Args:
        x: the left operand.
        y: the right operand.
        flips: whether they are transposed.
    """

    def __init__(self, x: Value, y: Value, flips: tuple[bool, bool]) -> None:
        self.flips = flips
        left = (1, *x.shape) if len(x.shape) == 1 else x.shape
        right = (*y.shape, 1) if len(y.shape) == 1 else y.shape
        self.m, self.k = left[-2:][::-1] if flips[0] else left[-2:]
        self.n = right[-2] if flips[1] else right[-1]
        self.batches = len(left) > 2, len(right) > 2
        self.times = math.prod((left if self.batches[0] else right)[:-2])
        if self.batches == (True, False) and not flips[0]:  # one product of all rows
            self.m, self.times, self.batches = self.m * self.times, 1, (False, False)

    @property
    def apart(self) -> tuple[bool, bool, bool]:
        """Whether X, Y and Out hold many matrices."""
        return (*self.batches, any(self.batches))


@lowering("matmul")
def matmul(
    code: Code, x: Value, y: Value, out: Value,
    *, transpose_X: Any, transpose_Y: Any, alpha: float, head_number: Any, use_mkldnn: bool,
    force_fp32_output: bool, Scale_x: float, Scale_y: float, Scale_out: float,
) -> Any:  # fmt: skip
    """One product, or one for each matrix of a batch."""
    if not _all_single(x, y) or head_number > 1:
        return False
    alpha *= scale_of(use_mkldnn, force_fp32_output, Scale_x, Scale_y, Scale_out)
    made = _Matmul(x, y, (bool(transpose_X), bool(transpose_Y)))
    sizes = made.m, made.n, made.k
    return matrix_product(code, x, y, out, sizes, made.flips, alpha, made.times, made.apart)


@lowering("matmul_grad")
def matmul_grad(
    code: Code, x: Value, y: Value, d_out: Value, dx: Value | None, dy: Value | None,
    *, transpose_X: Any, transpose_Y: Any, alpha: float, head_number: Any,
) -> Any:  # fmt: skip
    """``d_out @ y.T`` and ``x.T @ d_out``, transposed where the operand was."""
    if not _all_single(x, y, d_out) or head_number > 1:
        return False
    made = _Matmul(x, y, (bool(transpose_X), bool(transpose_Y)))
    m, n, k, (flip_x, flip_y) = made.m, made.n, made.k, made.flips
    many_x, many_y, many_out = made.apart
    if dx is not None and not flip_x:
        apart = many_out, many_y, many_x
        flips = False, not flip_y
        matrix_product(code, d_out, y, dx, (m, k, n), flips, alpha, made.times, apart)
    elif dx is not None:
        apart = many_y, many_out, many_x
        matrix_product(code, y, d_out, dx, (k, m, n), (flip_y, True), alpha, made.times, apart)
    if dy is not None and not flip_y:
        apart = many_x, many_out, many_y
        flips = not flip_x, False
        matrix_product(code, x, d_out, dy, (k, n, m), flips, alpha, made.times, apart)
    elif dy is not None:
        apart = many_out, many_x, many_y
        matrix_product(code, d_out, x, dy, (n, k, m), (True, flip_x), alpha, made.times, apart)
