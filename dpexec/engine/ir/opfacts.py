"""Facts that an operator declares for passes, plans and views; sample calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.ir.cost import Call, Count, counted

if TYPE_CHECKING:
    from dpexec.engine.ir.operator import Operator
    from dpexec.engine.ir.spec import Spec

__all__ = ["INHERITED", "OpFacts", "Passing", "RoundValues", "Sample", "SampleRng"]

INHERITED = ("capturable", "fuses", "grad_lod", "host_inputs")
"""Facts that the gradient operator inherits unless it overrides them."""

_NAMES = (
    *("elements", "host_inputs", "longs", "quantized", "shape_inputs", "single", "sparse"),
    "statistics",
)
"""Facts that are sets of names, given as text separated by spaces."""

_WORDS = {
    "grad_lod": ("own", "flow"),
    "precision": ("white", "black", "gray"),
    "quantized": ("weights", "inputs", "outputs"),
    "updates": ("rows", "whole"),
}


class RoundValues(Protocol):
    """The values that an operator of a block sees in a round, by variable name."""

    deferred: Any

    def __getitem__(self, name: str, /) -> Any: ...

    def __setitem__(self, name: str, value: Any, /) -> None: ...

    def get(self, name: str, /) -> Any:
        """The value of this round; None if there is none."""

    def find(self, name: str) -> Any:
        """The value, of this round or from around; None if there is none."""


@dataclass(frozen=True)
class Passing:
    """How an operator of a block passes arrays on, without the work of a kernel's call.

    Code of earlier operators may wait meanwhile: nobody looks at the numbers in the arrays.

    Args:
        make: returns, for one operator, the function that does it for the values of a round. The
            function returns False, and has done nothing, where only the kernel can do it. A
            KeyError or AttributeError, from a value that is missing or of another kind, counts as
            False.
        looks_at: input slots whose numbers it looks at.
        unseen: the output slot whose arrays come from somewhere unknown; "" for none.
        code: what does it in machine code that has all rounds of a loop, an instruction of
            :mod:`dpexec.engine.kernels.rounds`; "" for nothing.
        slots: its inputs and outputs, in the order in which the instruction takes them.
    """

    make: Callable[[Operator], Callable[[RoundValues], bool]]
    looks_at: tuple[str, ...] = ()
    unseen: str = ""
    code: str = ""
    slots: tuple[str, ...] = ()


@dataclass(kw_only=True)
class OpFacts:
    """The keywords of :func:`~dpexec.engine.ir.opdef.op` that most declarations leave out.

    Args:
        inplace: outputs that overwrite an input when the program gives both the same variable.
        sparse: input slots that also take ``SelectedRows``.
        elements: output slots that are dense in some steps and, in others, ``SelectedRows`` of
            single elements: height ``numel``, in the order of the dense tensor.
        host_inputs: input slots whose values the kernel needs on the host, such as shapes; the
            host would have to wait for a GPU to read them.
        shape_inputs: input slots of which the kernel reads only the shape.
        makes_numbers: whether it runs on the host when all its inputs are such numbers and its
            results are used only as such numbers.
        tells_numbers: whether ``infer`` tells the elements of a result where they follow from
            shapes alone (``Spec.numbers``).
        no_grad: gradients stop here, by definition.
        checks_values: the kernel may refuse values (ids out of range), not only shapes.
        lazy: the kernel gets None for inputs without a value, since it may not read them. So no
            zero gradients need to be made for its optional slots.
        leaves_out: whether its inputs tell which of its outputs get a value.
        by_executor: no kernel runs: the executor itself does what the operator stands for.
        acts: running it has a side effect, such as writing a file.
        repeats: for a loop, the input slot that is looked at before every round of its block.
        branches: whether it runs its block once, if a condition holds, and else not at all.
        hands_on: whether it hands the variables of ``X`` to the operators of its block, and does
            nothing else with them.
        stacks: whether its outputs are what the rounds of its block make, stacked.
        passes: how it passes arrays on in a block whose code waits.
        own_state: whether its state differs from replica to replica.
        ends_loops: its kernel may raise to end a loop, such as a reader at the end of its data or
            a user's own function.
        ulps: error bound of an elementwise operator, on NumPy and in machine code, in units in the
            last place of the exact result, or of the largest term where terms cancel. Results
            below 2**-116 may be 0. None: no bound.
        operand_ulps: error bound of an operator that sums many elements. The unit is the change of
            the result when each operand and the result itself change by one unit in the last place.
            It holds for sums of some thousand elements while squares and products of operands are
            neither infinite nor denormal.
        capturable: whether a CUDA graph can replay its launches, since they neither read values on
            the host nor take any from it; or a function that decides this for one operator.
        fuses: whether its lowering consists of expressions, so that a ``fusion_group`` can take it.
        merges: the operator of which it does several at once, with a list in every slot; that
            operator's ``merged_by`` names this one.
        merged_by: the operator that does several of it at once.
        copies: whether ``Out`` equals ``X`` when both have the same type; or a function that
            decides this for one operator.
        folds: whether it works element by element with IEEE rounding, so that passes may evaluate
            it on constants.
        precision: in mixed precision, "white" runs in float16, "black" in float32, "gray" in the
            precision of its inputs. None: float32.
        quantized: what quantization may treat: its "weights" or all its "inputs"; "outputs" if
            inference engines want scales of its outputs.
        grad_lod: the sequences of its gradients (or of those its gradient operator makes): "own",
            those of the variable; "flow", those of the first incoming gradient. None: none.
        updates: for an optimizer's update: "rows" if it does not touch rows that a sparse gradient
            lacks; "whole" if it reads the whole parameter, for instance for its norm.
        looks_up: whether ids pick rows of its input ``W``: a sparse gradient has a row for each.
        fills: whether it fills ``Out`` with values that do not depend on its size.
        macs: number of multiply-adds. A gradient operator makes as many for each gradient, for two
            at most.
        flops: number of other floating point operations. The default is one per result element if
            ``ulps`` is declared, and the forward operator's count for each of two gradients; else
            the number is unknown. A multiply-add counts as two operations.
        bytes: bytes read and written; by default the bytes of all inputs and outputs.
        joins: tells, of an operator and the rank of its result, whether the result has the
            sequences of all variables of the first slot, one after another, or those of the first
            input; None if only a run tells. Without it, the result has those of the first input.
        rows_stay: for an operator that keeps sequences if it keeps the number of rows: tells, of
            the operator and the specs of X and Out, whether it does; None if only a run tells.
        rows_by_run: whether only a run tells how many rows its result has, although its shape is
            declared.
        shapes_by_run: whether only a run tells the shapes of its results: those that are declared
            are what a user expects of a function.
        grows: the input slot of a table that it adds rows to unless ``is_test`` is set. Programs
            lack the output slot for it, which is called like the input with ``Out`` behind.
        single: slots that stay float32 when the operator runs in float16.
        statistics: input slots of running statistics, which the operator updates in training.
        keeps: tells whether an operator leaves variables that it both reads and writes as they are,
            such as running statistics when it tests. They are not stored again then.
        parts: of a fused operator, the types of what it does, in that order.
        formula: of a fused operator, what it computes, as a text.
        longs: attributes whose integers Paddle stores in 64 bits.

    Raises:
        ValueError: a fact has a value that is not listed above.
    """

    inplace: Mapping[str, str] = field(default_factory=dict)
    sparse: Set[str] = frozenset()
    elements: Set[str] = frozenset()
    host_inputs: Set[str] = frozenset()
    shape_inputs: Set[str] = frozenset()
    makes_numbers: bool = False
    tells_numbers: bool = False
    no_grad: bool = False
    checks_values: bool = False
    by_executor: bool = False
    lazy: bool = False
    leaves_out: bool = False
    acts: bool = False
    repeats: str = ""
    branches: bool = False
    hands_on: bool = False
    stacks: bool = False
    passes: Passing | None = None
    own_state: bool = False
    ends_loops: bool = False
    ulps: int | None = None
    operand_ulps: int | None = None
    capturable: bool | Callable[[Operator], bool] = False
    fuses: bool = False
    merges: str = ""
    merged_by: str = ""
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
    joins: Callable[[Operator, int], bool | None] | None = None
    rows_stay: Callable[[Operator, Spec, Spec], bool | None] | None = None
    rows_by_run: bool = False
    shapes_by_run: bool = False
    grows: str = ""
    single: Set[str] = frozenset()
    statistics: Set[str] = frozenset()
    keeps: Callable[[Operator], bool] | None = None
    parts: Callable[[Operator], list[str]] | None = None
    formula: Callable[[Operator], str] | None = None
    longs: Set[str] = frozenset()
    forward: OpFacts | None = field(default=None, init=False)
    """The operator whose gradient operator this one is."""

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
        """How many multiply-adds a call makes."""
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
    """A gradient operator's work as a multiple of the forward operator's."""
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
        deviates: by slot, why outputs or gradients (``X@GRAD``) differ from the real Paddle's;
            ``*`` where Paddle cannot run this call at all. Each text is a row for users in
            docs/differences.md: ``"what Paddle does; dpexec does something else"``.
        counts: number of variables per output slot, where inputs and attributes do not tell it.
        smooth: False at a kink, where finite differences do not give the gradient.

    Example:
        >>> import numpy as np
        >>> from dpexec.extend import Sample
        >>> sample = Sample({"X": np.array([1.0, 2.0])}, expected={"Out": np.array([2.0, 4.0])})
        >>> sample.inputs["X"].shape, sample.smooth
        ((2,), True)
    """

    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    grad: tuple[str, ...] | None = None
    expected: Mapping[str, Any] = field(default_factory=dict)
    deviates: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    smooth: bool = True
