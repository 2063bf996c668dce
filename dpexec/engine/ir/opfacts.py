"""What an operator declares beside shapes and kernel: facts for passes, plans, views; samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpexec.engine.ir.cost import Call, Count, counted

if TYPE_CHECKING:
    from dpexec.engine.ir.operator import Operator

__all__ = ["INHERITED", "OpFacts", "Sample", "SampleRng"]

INHERITED = ("capturable", "fuses", "grad_lod", "host_inputs")
"""Facts that the gradient operator shares, unless it declares others."""

_NAMES = ("elements", "host_inputs", "longs", "quantized", "shape_inputs", "sparse")
"""Facts that are sets of names, given with spaces between them."""

_WORDS = {
    "grad_lod": ("own", "flow"),
    "precision": ("white", "black", "gray"),
    "quantized": ("weights", "inputs", "outputs"),
    "updates": ("rows", "whole"),
}


@dataclass(kw_only=True)
class OpFacts:
    """The keywords of :func:`~dpexec.engine.ir.opdef.op` that most declarations leave out.

    Args:
        inplace: outputs that overwrite an input when the program gives both the same variable.
        sparse: input slots that also take ``SelectedRows``.
        elements: output slots with dense values that, in some steps, are ``SelectedRows`` of single
            elements instead: of height ``numel``, in the order of the dense one.
        host_inputs: input slots whose values the kernel needs as numbers of the host, such as
            shapes: the host would wait for a GPU to have them.
        shape_inputs: input slots of which the kernel reads the shape alone.
        makes_numbers: whether the host computes it, where its results are nothing but such numbers
            and so are its inputs.
        no_grad: gradients stop here, by definition.
        checks_values: the kernel may refuse values (ids out of range), not only shapes.
        lazy: the kernel gets None for inputs without a value: it may never look at them. So
            nothing need make gradients for its optional slots.
        by_executor: stands in programs for something that the executor does itself, so no kernel
            runs.
        acts: running it does more than to compute its results, such as to write a file.
        ends_loops: its kernel may raise to end a loop: there is no more to read, or a user's own.
        ulps: of an operator that works element by element: by how many units in the last place a
            result may differ from the exact one, on NumPy and in machine code; of the largest term,
            where terms cancel. Results below 2**-116 may be 0. None: nothing is promised.
        operand_ulps: of one that adds up many elements: by how many times as much as the result
            changes when each operand, and the result itself, changes by one unit in its last
            place. It holds for sums of some thousand elements while squares and products of
            operands are neither infinite nor denormal.
        capturable: whether a CUDA graph can repeat its launches, since they look at no values on
            the host and take none from it; or a function that says it of one operator.
        fuses: whether its lowering consists of expressions, so that it may join others in a
            ``fusion_group``.
        merges: the operator that it does several of, with a list in every slot.
        copies: whether ``Out`` is ``X`` where both have one type; or a function that says it of one
            operator.
        folds: whether it computes every element alone and rounds as the standard says, so that
            passes may compute it where its inputs are constants.
        precision: in mixed precision, "white": runs in float16; "black": in float32; "gray": as the
            operators that its inputs come from. None: in float32.
        quantized: what quantization may do for it: with its "weights", with all its "inputs", and
            whether engines want scales of its "outputs".
        grad_lod: which sequences the gradients show that it (or its gradient operator) makes:
            "own", of what they are gradients of; "flow", of the first one that arrives. None: none.
        updates: of an optimizer's update: "rows", if it leaves rows alone for which a sparse
            gradient has nothing; "whole", if it looks at all of a parameter, at norms for instance.
        looks_up: whether ids pick rows of its input ``W``: a sparse gradient has a row for each.
        fills: whether it fills ``Out`` with what does not depend on how much there is.
        macs: multiplications whose results are added up. Gradient operators make as many for each
            gradient, for two at most.
        flops: floating point operations besides. By default one for each element of the results
            where ``ulps`` is declared, and as many as the forward operator for each of two
            gradients; else nobody knows. A multiplication and its addition are two operations.
        bytes: bytes that it reads and writes; by default those of all inputs and outputs.
        longs: attributes whose integers Paddle stores in 64 bits.

    Raises:
        ValueError: a word is none of those above.
    """

    inplace: Mapping[str, str] = field(default_factory=dict)
    sparse: Set[str] = frozenset()
    elements: Set[str] = frozenset()
    host_inputs: Set[str] = frozenset()
    shape_inputs: Set[str] = frozenset()
    makes_numbers: bool = False
    no_grad: bool = False
    checks_values: bool = False
    by_executor: bool = False
    lazy: bool = False
    acts: bool = False
    ends_loops: bool = False
    ulps: int | None = None
    operand_ulps: int | None = None
    capturable: bool | Callable[[Operator], bool] = False
    fuses: bool = False
    merges: str = ""
    copies: bool | Callable[[Operator], bool] = False
    folds: bool = False
    precision: Literal["white", "black", "gray"] | None = None
    quantized: Set[str] = frozenset()
    grad_lod: Literal["own", "flow"] | None = None
    updates: Literal["rows", "whole"] | None = None
    looks_up: bool = False
    fills: bool = False
    macs: Count | None = None
    flops: Count | None = None
    bytes: Count | None = None
    longs: Set[str] = frozenset()
    forward: OpFacts | None = field(default=None, init=False)
    """The operator of which this one is the gradient operator."""

    def __post_init__(self) -> None:
        for name in _NAMES:
            given = getattr(self, name)
            setattr(self, name, frozenset(given.split() if isinstance(given, str) else given))
        for name, words in _WORDS.items():
            given = getattr(self, name)
            wrong = (given if isinstance(given, frozenset) else {given}) - {*words, None}
            if wrong:
                raise ValueError(f"{name} is one of {', '.join(words)}, not {sorted(wrong)}")

    def count_macs(self, call: Call) -> int:
        """How many multiplications of a call are added up."""
        if self.macs is None and self.forward is not None:
            return _passes(call) * self.forward.count_macs(call)
        return counted(self.macs, call)

    def count_flops(self, call: Call) -> int | None:
        """How many floating point operations a call makes; None if that is not declared."""
        if self.flops is not None or self.macs is not None:
            return 2 * self.count_macs(call) + counted(self.flops, call)
        forward = self.forward or self
        if forward.flops is not None or forward.macs is not None:
            return _passes(call) * (forward.count_flops(call) or 0)
        return None if self.ulps is None and forward.ulps is None else call.made


def _passes(call: Call) -> int:
    """How many times the work of its forward operator a gradient operator does."""
    return min(call.gradients, 2)


class SampleRng:
    """Deterministic sample inputs, float64 and int64."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def normal(self, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """Standard normal numbers."""
        return self._rng.standard_normal(tuple(shape))

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """Uniform numbers in [low, high)."""
        return self._rng.uniform(low, high, tuple(shape))

    def integers(self, low: int, high: int, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """Uniform integers in [low, high)."""
        return self._rng.integers(low, high, tuple(shape))

    def away_from(
        self, value: float, shape: Sequence[int], gap: float = 0.1
    ) -> np.ndarray[Any, Any]:
        """Normal numbers at least ``gap`` away from ``value``: for functions with a kink there."""
        offset = self.normal(shape)
        return value + offset + np.copysign(gap, offset)

    def distinct(self, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """Numbers that differ pairwise by at least 0.1: for functions that choose by order."""
        return self._rng.permutation(int(np.prod(shape))).reshape(shape) * 0.1


@dataclass(frozen=True, slots=True)
class Sample:
    """One legal call of an op, for the contract test and the documentation.

    Args:
        inputs: array, list of arrays (for ``[]`` slots) or SelectedRows per slot.
        attrs: attributes that differ from their defaults.
        grad: input slots whose gradient is checked; None for all float ones, () for none.
        expected: outputs by slot, where they are known independently.
        deviates: why outputs or gradients (``X@GRAD``) are not those of the real Paddle, by slot;
            ``*`` where it cannot run this call at all. Each is a row for users in
            docs/differences.md: ``"what Paddle does; dpexec does something else"``.
        counts: variables in an output slot, where neither inputs nor attributes tell.
        smooth: False at a kink, where finite differences do not give the gradient.
    """

    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    grad: tuple[str, ...] | None = None
    expected: Mapping[str, Any] = field(default_factory=dict)
    deviates: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    smooth: bool = True
