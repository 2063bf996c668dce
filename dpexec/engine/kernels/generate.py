"""Kernels generated from a single expression, compiled when they are first needed.

An expression names its operands and factors. They are float32, as are ``zero``, ``one``, ``two``,
``half`` and constants written ``F(...)``. The loops around expressions are generated: over all
elements, over broadcast dimensions, or over reduced groups.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.sizes import real
from dpexec.engine.kernels import math as functions
from dpexec.engine.kernels.compiling import apart
from dpexec.engine.kernels.lowering import Code, Value
from dpexec.engine.kernels.machine import Count, Floats, Integers, Kernel, Number, Octets, Words
from dpexec.engine.kernels.math import lanes
from dpexec.engine.kernels.strides import OUTER, groups, merged, strides

__all__ = ["Pointwise", "Recorder", "Reduction", "compiled", "single"]

_NAMES = {
    "Count": Count,
    "Floats": Floats,
    "Integers": Integers,
    "Number": Number,
    "Octets": Octets,
    "Words": Words,
    "against": functions.against,
    "apart": apart,
    "F": np.float32,
    "bell": functions.bell,
    "exp": functions.exp,
    "exp_bounded": functions.exp_bounded,
    "expm1": functions.expm1,
    "gate": functions.gate,
    "half": np.float32(0.5),
    "lanes": lanes,
    "largest": functions.largest,
    "log": functions.log,
    "log1p": functions.log1p,
    "log1p_of_any": functions.log1p_of_any,
    "np": np,
    "one": np.float32(1),
    "sigmoid": functions.sigmoid,
    "norm": functions.norm,
    "erf": functions.erf,
    "erf_slope": functions.erf_slope,
    "normal": functions.normal,
    "smallest": functions.smallest,
    "sqrt": np.sqrt,
    "steepness": functions.steepness,
    "tanh": functions.tanh,
    "tanh_shrink": functions.tanh_shrink,
    "two": np.float32(2),
    "zero": np.float32(0),
}


def compiled(
    name: str, source: str, apart: bool = False, each: str = "", parts: str = ""
) -> Kernel:
    """A kernel from its source, a function ``name``; each name must be unique.

    Args:
        name: of the kernel.
        source: of a function as :class:`~dpexec.engine.kernels.machine.Kernel` takes it.
        apart: its pointer arguments never alias, and it returns nothing.
        each: names of arrays that it reads element by element.
        parts: how threads may divide its work.
    """
    names: dict[str, Any] = {**_NAMES, "__name__": __name__}
    exec(compile(source, __file__, "exec"), names)
    return Kernel(names[name], apart, source, each, parts=parts)


def single(*values: Value | None) -> bool:
    """Whether all values hold float32 numbers; None does not count."""
    return all(value is None or value.dtype == "float32" for value in values)


def _indented(lines: str, by: int) -> str:
    return "\n".join(" " * by + line for line in lines.splitlines())


class Recorder(Code):
    """Code that records expressions, several of which may become one kernel."""

    def each(
        self,
        apply: Pointwise,
        out: Value,
        operands: Sequence[Value],
        factors: Sequence[float] = (),
        shapes: Sequence[Sequence[int]] = (),
        shape: Sequence[int] = (),
    ) -> None:
        """Record an expression at every element.

        Args:
            apply: the expression.
            out: the result.
            operands: the operands.
            factors: the numbers.
            shapes: of the operands as they lie in memory; empty if they have as many elements as
                the result.
            shape: of the result, as it lies in memory.
        """
        raise NotImplementedError

    def reduce(
        self, apply: Reduction, x: Value, out: Value, shape: Sequence[int], kept: Sequence[bool],
        factor: float,
    ) -> None:  # fmt: skip
        """Record a reduction, see :meth:`Reduction.emit`."""
        raise NotImplementedError


class Pointwise:
    """``out = expression`` at every element.

    Args:
        name: of the kernels.
        operands: names of the operands, one or two if they are broadcast.
        expression: in terms of operands and factors.
        factors: names of numbers.
    """

    def __init__(self, name: str, operands: str, expression: str, factors: str = "") -> None:
        self.name = f"each_{name}"
        self.operands = operands.split()
        self.expression = expression
        self.factors = factors.split()
        self._kernels: dict[str, Kernel] = {}

    def emit(
        self,
        code: Code,
        out: Value,
        *values: Value,
        factors: Sequence[float] = (),
        reuse: bool = False,
    ) -> None:
        """Emit a call for operands that have as many elements as the result.

        Args:
            code: takes the call.
            out: the result.
            values: the operands.
            factors: the numbers.
            reuse: the result may take the memory of an operand that nobody reads later.
        """
        if isinstance(code, Recorder):
            code.each(self, out, values, factors)
            return
        takes = (i for i, value in enumerate(values) if reuse and code.reuse(out, value))
        onto = next(takes, -1)
        places = values if onto >= 0 else (*values, out)
        code.emit(self.flat(onto), out.size, *places, *map(real, factors))

    def add_to(self, code: Code, first: Value, *values: Value) -> None:
        """Overwrite the first operand with the result."""
        if isinstance(code, Recorder):
            code.each(self, first, (first, *values))
            return
        code.emit(self.flat(0), first.size, first, *values)

    def flat(self, onto: int) -> Kernel:
        """The kernel for arrays of one size; it overwrites operand ``onto``, if that is not -1."""
        name = f"{self.name}_{onto}" if onto >= 0 else self.name
        arrays = [f"a_{operand}" for operand in self.operands]
        target = arrays[onto] if onto >= 0 else "out"
        arrays += [] if onto >= 0 else ["out"]
        typed = ["n: Count", *(f"{a}: Floats" for a in arrays)]
        typed += [f"{factor}: Number" for factor in self.factors]
        body = [f"{operand} = a_{operand}[i]" for operand in self.operands]
        source = (
            f"def {name}({', '.join(typed)}):\n    for i in range(n):\n"
            + _indented("\n".join([*body, f"{target}[i] = {self.expression}"]), 8)
            + "\n    return 0\n"
        )
        return self._compiled(name, source, f"n:{' '.join(reversed(arrays))}")

    def _compiled(self, name: str, source: str, parts: str) -> Kernel:
        if name not in self._kernels:
            self._kernels[name] = compiled(name, source, parts=parts)
        return self._kernels[name]

    def broadcast(
        self,
        code: Code,
        out: Value,
        x: Value,
        y: Value,
        shapes: tuple[Sequence[int], Sequence[int]],
        shape: Sequence[int],
        reuse: bool = False,
    ) -> None:
        """Emit a call for two operands that are broadcast to the shape of the result.

        Args:
            code: takes the call.
            out: the result.
            x: the first operand.
            y: the second operand.
            shapes: shapes of both operands as they lie in memory, with all dimensions.
            shape: of the result, as it lies in memory; :func:`regular` with both.
            reuse: the result may take the memory of an operand that nobody reads later.
        """
        if shapes[0] == shapes[1]:
            self.emit(code, out, x, y, reuse=reuse)
            return
        if isinstance(code, Recorder):
            code.each(self, out, (x, y), (), shapes, shape)
            return
        sizes, steps = merged(shape, strides(shape), *(strides(s, shape) for s in shapes))
        missing = OUTER + 1 - len(sizes)
        places = [[0] * missing + found for found in steps[1:]]
        onto = reuse and x.size == out.size and code.reuse(out, x)
        target = () if onto else (out,)
        ones = [1] * missing
        code.emit(self.strided(onto), *ones, *sizes, x, *places[0], y, *places[1], *target)

    def strided(self, onto: bool) -> Kernel:
        """The kernel for two operands with strides; it overwrites the first one if ``onto``."""
        name = f"{self.name}_strided" + "_0" * onto
        x, y = self.operands
        target = f"a_{x}" if onto else "out"
        names = {
            "name": name,
            "x": x,
            "y": y,
            "target": target,
            "out": "" if onto else "out: Floats",
        }
        ways = (f"{n}:{{}}a_{x}*x{i} a_{y}*y{i}" for i, n in enumerate(("n0", "n1", "n2", "n")))
        ends = "*n1*n2*n", "*n2*n", "*n", ""
        parts = (
            way.format("" if onto else f"out{end} ") for way, end in zip(ways, ends, strict=True)
        )
        source = _STRIDED.format(**names, expression=self.expression)
        return self._compiled(name, source, ";".join(parts))


_STRIDED = """\
def {name}(
    n0: Count, n1: Count, n2: Count, n: Count,
    a_{x}: Floats, x0: Count, x1: Count, x2: Count, x3: Count,
    a_{y}: Floats, y0: Count, y1: Count, y2: Count, y3: Count, {out}
):
    for a in range(n0):
        for b in range(n1):
            for c in range(n2):
                i = a * x0 + b * x1 + c * x2
                j = a * y0 + b * y1 + c * y2
                k = ((a * n1 + b) * n2 + c) * n
                if y3 == 0:
                    {y} = a_{y}[j]
                    for d in range(n):
                        {x} = a_{x}[i + d]
                        {target}[k + d] = {expression}
                elif x3 == 0:
                    {x} = a_{x}[i]
                    for d in range(n):
                        {y} = a_{y}[j + d]
                        {target}[k + d] = {expression}
                else:
                    for d in range(n):
                        {x} = a_{x}[i + d]
                        {y} = a_{y}[j + d]
                        {target}[k + d] = {expression}
    return 0
"""


class Reduction:
    """Elements combined along some dimensions.

    Args:
        name: of the kernel.
        start: expression for the initial total.
        combined: expression of ``total`` and ``value``.
        row: expression for ``n`` elements of ``x`` from ``at`` on; empty: a loop is generated.
    """

    def __init__(self, name: str, start: str, combined: str, row: str = "") -> None:
        self.name, self.start, self.combined, self.row = name, start, combined, row

    def emit(
        self, code: Code, x: Value, out: Value, shape: Sequence[int], kept: Sequence[bool],
        factor: float = 1.0,
    ) -> bool:  # fmt: skip
        """Combine the elements of ``x``.

        Args:
            code: takes the call.
            x: the elements.
            out: the result, in the order of the kept dimensions.
            shape: of ``x``.
            kept: for every dimension, whether it is kept.
            factor: factor of the result.

        Returns:
            False if kept and reduced dimensions alternate too often.
        """
        found = groups(shape, kept)
        if len(found) > 4:
            return False
        if isinstance(code, Recorder):
            code.reduce(self, x, out, shape, kept, factor)
            return True
        before, n, middle, inner = found + [1] * (4 - len(found))
        if middle == 1:
            code.emit(self.rows, before, 1, 1, n * inner, x, out, real(factor))
        elif inner == 1:
            code.emit(self.columns, before, n, middle, x, out, real(factor))
        else:
            code.emit(self.rows, before, n, middle, inner, x, out, real(factor))
        return True

    @functools.cached_property
    def rows(self) -> Kernel:
        """The kernel that combines contiguous elements. Arguments: see the source."""
        parts = "before:x*n*kept*inner out*kept"
        return self._compiled(f"{self.name}_rows", _ROWS, parts)

    @functools.cached_property
    def columns(self) -> Kernel:
        """The kernel that combines rows with each other. Arguments: see the source."""
        return self._compiled(f"{self.name}_columns", _COLUMNS, "before:x*n*kept out*kept")

    @property
    def of_row(self) -> str:
        """The source of ``<name>_of(x, at, n)``, which combines contiguous elements."""
        source = _ROW_AT_ONCE if self.row else _ROW
        return source.format(name=self.name, start=self.start, combined=self.combined, row=self.row)

    def _compiled(self, name: str, source: str, parts: str) -> Kernel:
        head = Reduction(name, self.start, self.combined, self.row).of_row
        body = source.format(name=name, start=self.start, combined=self.combined)
        return compiled(name, head + body, parts=parts)


_ROW = """\
@lanes
def {name}_of(x, at, n):
    total = {start}
    for i in range(n):
        value = x[at + i]
        total = {combined}
    return total

"""
_ROW_AT_ONCE = """\
@lanes
def {name}_of(x, at, n):
    return {row}

"""
_ROWS = """\
def {name}(
    before: Count, n: Count, kept: Count, inner: Count, x: Floats, out: Floats, factor: Number
):
    for a in range(before):
        for b in range(kept):
            total = {start}
            for r in range(n):
                value = {name}_of(x, ((a * n + r) * kept + b) * inner, inner)
                total = {combined}
            out[a * kept + b] = total * factor
    return 0
"""
_COLUMNS = """\
def {name}(before: Count, n: Count, kept: Count, x: Floats, out: Floats, factor: Number):
    for a in range(before):
        for b in range(kept):
            out[a * kept + b] = {start}
        for r in range(n):
            for b in range(kept):
                total, value = out[a * kept + b], x[(a * n + r) * kept + b]
                out[a * kept + b] = {combined}
        if factor != one:
            for b in range(kept):
                out[a * kept + b] *= factor
    return 0
"""
