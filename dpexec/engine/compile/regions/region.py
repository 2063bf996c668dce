"""Operators of a block that run in one call of machine code, in every round of a loop.

A *region* consists of operators, one after another, that have a lowering. Counters and arrays of
tensors stay with Python, between regions. A region becomes code when it first runs, as the shapes
of its inputs are known then. It makes the same calls as
:mod:`dpexec.engine.compile.regions.task`, but its inputs and results are other arrays in every
round. Numbers of rows are left open where possible, since in some loops they change from round to
round.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from dpexec.engine.compile.regions import ran
from dpexec.engine.compile.regions.bodies import Plain, Runnable
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.passing import may_pass, passing
from dpexec.engine.compile.regions.region_code import OpenRegion, RegionCode, SizedRegion
from dpexec.engine.compile.regions.step import Step
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.graph.kinds import ALL_REDUCE
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.sizes import Counts, NeedsNumber, Rows
from dpexec.engine.ir.spec import Spec, array_spec
from dpexec.engine.kernels import implementations

__all__ = ["Region", "regions_of"]

_Shapes = tuple[tuple[int, ...], ...]
_Runner = OpenRegion | Sequence[Runnable]
"""Code of all operators; or single operators, and regions of some of them."""

_LEAST = 2
"""The fewest operators of a region: for fewer, a call costs more than it saves."""


def regions_of(parts: Sequence[Plain], shown: Collection[str]) -> list[Runnable]:
    """Put operators that may become code together to regions.

    Within a region a name stands for one value, since shapes are known by name.

    Args:
        parts: the operators of a block.
        shown: names of the values that are looked at after every round.
    """
    groups: list[list[Plain]] = []
    seen: set[str] | None = None  # names that the last group uses; None: it is not for code
    for part in parts:
        if not _may_be_code(part.op):
            groups.append([part])
            seen = None
            continue
        if seen is None or not seen.isdisjoint(part.op.writes):
            groups.append([])
            seen = set()
        groups[-1].append(part)
        seen.update(part.op.reads, part.op.writes)
    whole = all(_may_be_code(part.op) or may_pass(part.op) for part in parts)
    pays = _serves if whole else _pays
    made = [p for group in groups for p in ([Region(group)] if pays(group) else group)]
    return passing(made, _late(made), shown)


def _serves(parts: Sequence[Plain]) -> bool:
    """Whether code is better where all other operators are code: then rounds need no Python."""
    return _pays(parts) or not all(may_pass(part.op) for part in parts)


def _late(parts: Sequence[Runnable]) -> set[str]:
    """Names of the values that regions compute."""
    return {name for part in parts if isinstance(part, Region) for name in part.results}


def _may_be_code(op: Operator) -> bool:
    if op.definition.inplace or op.bodies or implementations.find(op.type, "code") is None:
        return False
    find = op.block._find_var_recursive
    taken, made = map(find, op.input_arg_names), map(find, op.output_arg_names)
    return all(var is None or var.type in (VarType.LOD_TENSOR, VarType.RAW) for var in taken) and (
        all(var is None or var.type == VarType.LOD_TENSOR for var in made)  # RAW: offsets
    )


def _pays(parts: Sequence[Plain]) -> bool:
    """Whether code is faster than Python: it is not for few operators, or for single numbers."""
    return len(parts) >= _LEAST and any(
        var is not None and math.prod(var.shape) != 1
        for part in parts
        for var in map(part.op.block._find_var_recursive, part.op.writes)
    )


class Region:
    """Operators, one after another, as code; NumPy runs them for shapes that code cannot take.

    Args:
        parts: the operators.

    Attributes:
        reads: names of the values that come from outside.
        results: names of the results that are needed after them.
    """

    def __init__(self, parts: Sequence[Plain]) -> None:
        self._parts = parts
        self._block = parts[0].op.block
        reads: dict[str, None] = {}
        written: set[str] = set()
        for part in parts:
            needed = (name for name in part.op.needs if name != roles.EMPTY)
            reads.update((name, None) for name in needed if name not in written)
            written.update(part.op.writes)
        dropped = {name for part in parts for name in part.drops}
        self.reads = list(reads)
        found = map(self._block._find_var_recursive, self.reads)
        known = [(number, var) for number, var in enumerate(found) if var is not None]
        self._offsets = [number for number, var in known if var.type == VarType.RAW]
        self._empty = {number for number, var in known if var.shape[:1] == (0,)}
        self.results = frozenset(written - dropped)
        self._drops = sorted(dropped - written)
        own = {id(part.op) for part in parts}
        others = [op for op in self._block.ops if id(op) not in own]
        self._own = self.results.difference(*(o.reads for o in others), *(o.writes for o in others))
        self._codes: LimitedCache[Any, list[tuple[Rows, _Runner | None]]] = LimitedCache(
            limit_of("codes of regions")
        )
        self._axes: dict[tuple[int, ...], list[tuple[int, int] | None]] = {}
        self._fits: LimitedCache[Any, SizedRegion | Sequence[Runnable]] = LimitedCache(
            limit_of("sized regions")
        )

    def run(self, env: Env) -> None:
        """Run the operators on the values of a round.

        Args:
            env: the values.

        Raises:
            BodyError: one of them failed.
        """
        try:
            arrays = [env[name] for name in self.reads]
            fit = self._fits.get(tuple([array.shape for array in arrays]))
        except (KeyError, AttributeError):  # a value is missing or has no shape: operators say so
            fit = self._parts
        if fit is None:
            fit = self._fitted(arrays)
        if not isinstance(fit, SizedRegion):
            env.deferred.finish()
            for part in fit:
                part.run(env)
            return
        for number in self._offsets:
            (arrays[number],) = arrays[number].levels
        fit.run(env, arrays, self._refused)
        for name in self._drops:
            env.pop(name, None)

    def _refused(self, around: Env, arrays: list[Any]) -> None:
        """Run the operators with NumPy, so that the one that refuses its values says why."""
        env = Env(around.shard, around)
        env.update(zip(self.reads, arrays, strict=True))
        env.update((self.reads[number], Lod([arrays[number]])) for number in self._offsets)
        for part in self._parts:
            part.run(env)
        types = ", ".join(part.op.type for part in self._parts)
        raise RuntimeError(f"code refused values that its operators take: {types}")

    # ---- code for shapes

    def sized(self, arrays: list[Any]) -> SizedRegion | Sequence[Runnable]:
        """The code for arrays of certain shapes, or the operators if there is none.

        Args:
            arrays: the values that come from outside.
        """
        return self._fits.get(tuple([array.shape for array in arrays])) or self._fitted(arrays)

    def _fitted(self, arrays: list[Any]) -> SizedRegion | Sequence[Runnable]:
        """The code, or the operators, to run for arrays of these shapes."""
        if not all(_is_plain(a) or n in self._empty for n, a in enumerate(arrays)):
            return self._parts
        shapes = tuple([array.shape for array in arrays])
        self._fits[shapes] = found = self._fit(arrays, shapes)
        return found

    def _fit(self, arrays: list[Any], shapes: _Shapes) -> SizedRegion | Sequence[Runnable]:
        open_axes = self._open_axes(tuple(map(len, shapes)))
        numbers: dict[int, int] = {}
        form = tuple(
            [
                shape
                if found is None
                else (
                    numbers.setdefault(shape[found[0]] - found[1], len(numbers)),
                    shape[: found[0]],
                    shape[found[0] + 1 :],
                )
                for shape, found in zip(shapes, open_axes, strict=True)
            ]
        )
        counts = tuple(numbers)
        if counts:
            known = self._codes.setdefault(form, [])
            if not any(counts in rows for rows, _ in known):
                known.append(self._opened(arrays, open_axes, counts))
            for rows, runner in known:
                if runner is not None and counts in rows:
                    with suppress(NeedsNumber):  # these numbers need more memory than others
                        return (
                            SizedRegion(runner, counts)
                            if isinstance(runner, OpenRegion)
                            else runner
                        )
        return self._closed(arrays)

    def _open_axes(self, ranks: tuple[int, ...]) -> list[tuple[int, int] | None]:
        """For every input, the axis whose length the program leaves open; None if there is none.

        The axis comes with the difference between its length and a number of rows: offsets are one
        more than sequences. A step of a StaticRNN sees a slice under the name of the whole tensor,
        which has one more axis. ``XShape``, which stands for a shape, has an axis of 0 in front.
        """
        found = self._axes.get(ranks)
        if found is None:
            found = self._axes[ranks] = []
            for number, (name, rank) in enumerate(zip(self.reads, ranks, strict=True)):
                var, axis = self._block._find_var_recursive(name), int(number in self._empty)
                if number in self._offsets:
                    found.append((0, 1))
                elif var is None or not rank or (*var.shape[-rank:], 0, 0)[axis] != -1:
                    found.append(None)
                else:
                    found.append((axis, 0))
        return found

    @no_cycles_sought()
    def _closed(self, arrays: list[Any]) -> SizedRegion | Sequence[Runnable]:
        """Code for arrays of these shapes, and no others; else the operators."""
        inputs = self._specs(arrays)
        try:
            specs = self._inferred(inputs)
        except EnforceNotMet:  # rules of shapes are broken: the operators will say which
            return self._parts
        runner = self._runner(self._code(specs, None), inputs, ())
        return SizedRegion(runner, ()) if isinstance(runner, OpenRegion) else runner

    def _specs(self, arrays: list[Any]) -> dict[str, Spec]:
        return dict(zip(self.reads, map(array_spec, arrays), strict=True))

    @no_cycles_sought()
    def _opened(
        self, arrays: list[Any], axes: Sequence[tuple[int, int] | None], counts: Counts
    ) -> tuple[Rows, _Runner | None]:
        """Code that leaves numbers of rows open, and their range; None if it needs the numbers."""
        rows = Rows.about(counts, counts)
        sizes = {count: rows.size(index) for index, count in enumerate(counts)}
        inputs = self._specs(arrays)
        for (name, spec), found in zip(inputs.items(), axes, strict=True):
            if found is not None:
                (axis, more), shape = found, list(spec.shape)
                shape[axis] = sizes[shape[axis] - more] + more
                inputs[name] = spec.replace(shape=tuple(shape))
        with suppress(NeedsNumber):
            specs = self._inferred_open(inputs, arrays)
            if specs is not None:
                return rows, self._runner(self._code(specs, rows), inputs, counts)
        return Rows(counts, counts), None

    def _inferred(self, inputs: Mapping[str, Spec]) -> dict[str, Spec]:
        specs = dict(inputs)
        for part in self._parts:
            specs.update(part.op.infer_outputs(specs))
        return specs

    def _inferred_open(
        self, inputs: Mapping[str, Spec], arrays: list[Any]
    ) -> dict[str, Spec] | None:
        """The specs for open numbers of rows; None if the arrays break rules of shapes."""
        try:
            return self._inferred(inputs)
        except EnforceNotMet as error:
            try:
                self._inferred(self._specs(arrays))
            except EnforceNotMet:  # the numbers break a rule, too: the operators will say which
                return None
            raise RuntimeError("shape rules take numbers of rows, but not open ones") from error

    def _code(self, specs: Mapping[str, Spec], rows: Rows | None) -> RegionCode:
        graph = SSAGraph(self._block.program, [CPUPlace()], ALL_REDUCE.name)
        for part in self._parts:
            graph.add_compute(part.op, 0)
        steps = [
            Step(node, part.run, tuple(part.drops))
            for node, part in zip(graph.ops, self._parts, strict=True)
        ]
        return RegionCode(steps, specs, self.results, rows)

    def _runner(self, code: RegionCode, inputs: Mapping[str, Spec], counts: Counts) -> _Runner:
        """What runs the region: one piece of code, or parts if not all operators became code."""
        if code.whole is None:
            return self._divided(code.pieces)
        ran.note(code.task)
        return OpenRegion(code, code.whole, inputs, counts, self._own)

    def _divided(self, pieces: Sequence[int]) -> list[Runnable]:
        """Regions of the operators that became code together, and single operators."""
        groups = itertools.groupby(zip(pieces, self._parts, strict=True), lambda pair: pair[0])
        found: list[Runnable] = []
        for number, group in groups:
            members = [part for _, part in group]
            found += [Region(members)] if number >= 0 and len(members) >= _LEAST else members
        return passing(found, _late(found), ())


def _is_plain(value: Any) -> bool:
    """Whether code takes a value: an array that is not empty, or offsets of one level."""
    if isinstance(value, Lod):
        return len(value.levels) == 1
    return isinstance(value, np.ndarray) and value.size > 0
