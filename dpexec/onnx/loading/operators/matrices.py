"""``MatMul``, ``Gemm``, ``Einsum``, ``Det``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node, common_dims, is_one


@operator("MatMul")
def matmul(node: Node) -> Any:
    """Products of matrices and vectors as in NumPy."""
    left, right = node.var(0), node.var(1)
    if not is_float(left.dtype):
        node.fail("products of integers are not supported")
    made, scalar = multiplied(node, left, right, [node.dims(0), node.dims(1)])
    return node.result(made, scalar)


def multiplied(
    node: Node, left: Variable, right: Variable, dims: list[Any]
) -> tuple[Variable, bool]:
    """A product as of ``numpy.matmul``, and whether it has no dimensions.

    Args:
        node: the node.
        left: matrices or a vector.
        right: matrices or a vector.
        dims: sizes of both.
    """
    vectors = [len(sizes) == 1 for sizes in dims]
    if vectors[0]:
        left, dims[0] = node.unsqueeze(left, [0]), [1, *dims[0]]
    if vectors[1]:
        right, dims[1] = node.unsqueeze(right, [1]), [*dims[1], 1]
    made = product(node, left, right, *dims)
    rank = len(made.shape)
    gone = [axis for axis, vector in zip((rank - 2, rank - 1), vectors, strict=True) if vector]
    return node.squeeze(made, gone), all(vectors) and rank == 2


def product(
    node: Node, left: Variable, right: Variable, first: Sequence[Any], second: Sequence[Any]
) -> Variable:
    """The product of matrices, for each place of the dimensions before the last two.

    Args:
        node: the node.
        left: at least two dimensions.
        right: at least two dimensions.
        first: sizes of ``left``.
        second: sizes of ``right``.
    """
    if len(second) == 2:
        return node.add("mul", {"X": left, "Y": right}, x_num_col_dims=len(first) - 1)
    lead = common_dims([first[:-2], second[:-2]])
    left = node.expand(left, first, [*lead, *first[-2:]])
    right = node.expand(right, second, [*lead, *second[-2:]])
    return node.add("matmul", {"X": left, "Y": right})


@operator("Gemm")
def gemm(node: Node) -> Any:
    """``alpha A B + beta C`` on matrices that may be transposed."""
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    turned = [bool(node.attr(name, 0)) for name in ("transA", "transB")]
    left, right = node.var(0), node.var(1)
    if not is_float(left.dtype):
        node.fail("products of integers are not supported")
    if alpha == 1 and not any(turned):
        made = node.add("mul", {"X": left, "Y": right})
    else:
        made = node.add(
            "matmul",
            {"X": left, "Y": right},
            transpose_X=turned[0],
            transpose_Y=turned[1],
            alpha=float(alpha),
        )
    if node.input(2) is None or beta == 0:
        return made
    return node.binary("elementwise_add", made, node.scaled(node.var(2), beta))


@operator("Einsum")
def einsum(node: Node) -> Any:
    """A chain of products of two tensors; letters of one tensor alone are summed before."""
    equation = node.attrs["equation"].replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    dims = [node.dims(i) for i in range(len(terms))]
    terms, output = _spelled(node, terms, output if arrow else None, dims)
    parts = [node.var(i) for i in range(len(terms))]
    for i, term in enumerate(terms):
        if len({*term}) < len(term):
            parts[i], terms[i], dims[i] = _diagonals(node, parts[i], term, dims[i])
    sizes: dict[str, Any] = {}
    for term, shape in zip(terms, dims, strict=True):
        for letter, size in zip(term, shape, strict=True):
            if letter not in sizes or is_one(sizes[letter]):
                sizes[letter] = size
    made, term = parts[0], terms[0]
    for i in range(1, len(terms)):
        wanted = {*output, *"".join(terms[i + 1 :])}
        made, term = _contract(node, (made, term), (parts[i], terms[i]), wanted, sizes)
    made, term = _summed(node, made, term, {*output})
    return node.result(
        node.transpose(made, [term.index(letter) for letter in output]) if output else made,
        not output,
    )


def _spelled(
    node: Node, terms: list[str], output: str | None, dims: Sequence[Sequence[Any]]
) -> tuple[list[str], str]:
    """Terms with letters for dots, and the output, which is implied if it is not given."""
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if all(c not in term for term in terms)]
    most = max(
        (len(d) - len(t) + 3 for t, d in zip(terms, dims, strict=True) if "..." in t), default=0
    )
    dots = "".join(free[:most])
    spelled = [
        t.replace("...", dots[most - (len(d) - len(t) + 3) :] if "..." in t else "")
        for t, d in zip(terms, dims, strict=True)
    ]
    if output is None:
        letters = "".join(terms).replace(".", "")
        output = dots + "".join(sorted(c for c in {*letters} if letters.count(c) == 1))
    return spelled, output.replace("...", dots)


def _diagonals(
    node: Node, var: Variable, term: str, dims: Sequence[Any]
) -> tuple[Variable, str, list[Any]]:
    """A tensor's elements whose places along axes of one letter are equal; each letter once."""
    dims = list(dims)
    while len({*term}) < len(term):
        letter = next(c for c in term if term.count(c) > 1)
        one = term.index(letter)
        two = term.index(letter, one + 1)
        size = dims[one]
        if not isinstance(size, int) or not isinstance(dims[two], int) or size != dims[two]:
            node.fail(f"diagonals of open or different sizes are not supported ({term})")
        rest = [axis for axis in range(len(term)) if axis not in (one, two)]
        lead = [dims[axis] for axis in rest]
        turned = node.transpose(var, [*rest, one, two])
        flat = node.reshape(turned, [*lead, size * size], [*lead, size, size])
        places = node.builder.constant(np.arange(size) * (size + 1), node.prefix)
        var = node.add("index_select", {"X": flat, "Index": places}, dim=len(rest))
        term, dims = "".join(term[axis] for axis in rest) + letter, [*lead, size]
    return var, term, dims


def _summed(node: Node, var: Variable, term: str, kept: set[str]) -> tuple[Variable, str]:
    """A tensor without the letters that nothing needs."""
    axes = [i for i, letter in enumerate(term) if letter not in kept]
    if not axes:
        return var, term
    every = len(axes) == len(term)
    made = node.add("reduce_sum", {"X": var}, dim=axes, reduce_all=every)
    return made, "".join(letter for letter in term if letter in kept)


def _contract(
    node: Node,
    left: tuple[Variable, str],
    right: tuple[Variable, str],
    wanted: set[str],
    sizes: dict[str, Any],
) -> tuple[Variable, str]:
    """The product of two tensors as products of matrices."""
    x, first = _summed(node, *left, {*right[1]} | wanted)
    y, second = _summed(node, *right, {*left[1]} | wanted)
    both = [c for c in first if c in second]
    lead = [c for c in both if c in wanted]
    inner = [c for c in both if c not in wanted]
    rows = [c for c in first if c not in second]
    columns = [c for c in second if c not in first]
    x = _as_matrices(node, x, first, (lead, rows, inner), sizes)
    y = _as_matrices(node, y, second, (lead, inner, columns), sizes)
    made = node.add("matmul", {"X": x, "Y": y})
    term = [*lead, *rows, *columns]
    return node.reshape(made, [sizes[c] for c in term]), "".join(term)


def _as_matrices(
    node: Node, var: Variable, term: str, groups: Sequence[Sequence[str]], sizes: dict[str, Any]
) -> Variable:
    order = [term.index(letter) for group in groups for letter in group]
    var = node.transpose(var, order)
    return node.reshape(var, [math.prod([sizes[c] for c in group]) for group in groups])


_LARGEST_DETERMINANT = 5


@operator("Det")
def determinant(node: Node) -> Any:
    """Sums of products, for up to 5 rows."""
    size, rank = node.dims(0)[-1], node.value(0).rank
    if not isinstance(size, int) or size > _LARGEST_DETERMINANT:
        node.fail(f"only determinants of up to {_LARGEST_DETERMINANT} rows are supported")
    rows = [node.slice(node.var(0), rank - 2, i, i + 1) for i in range(size)]
    minors: dict[tuple[int, ...], Variable] = {
        (k,): node.slice(rows[0], rank - 1, k, k + 1) for k in range(size)
    }
    for count in range(2, size + 1):
        row = [node.slice(rows[count - 1], rank - 1, k, k + 1) for k in range(size)]
        minors = {
            columns: _expanded(node, row, minors, columns)
            for columns in combinations(range(size), count)
        }
    [made] = minors.values()
    return node.result(node.squeeze(made, [rank - 2, rank - 1]), rank == 2)


def _expanded(
    node: Node,
    row: list[Variable],
    minors: dict[tuple[int, ...], Variable],
    columns: tuple[int, ...],
) -> Variable:
    """The determinant of some columns, from those of one row and column less."""
    total: Any = None
    for place, k in enumerate(columns):
        rest = tuple(c for c in columns if c != k)
        part = node.binary("elementwise_mul", row[k], minors[rest])
        if (len(columns) - 1 + place) % 2:
            part = node.scaled(part, -1.0)
        total = part if total is None else node.binary("elementwise_add", total, part)
    return total
