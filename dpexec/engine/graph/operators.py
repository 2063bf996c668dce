"""The operators of a program while passes rewrite them, before they are replicated.

A pass puts new :class:`~dpexec.engine.ir.operator.Operator` objects in the place of old ones; the
program itself stays as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.signature import RUNTIME_ARGUMENTS

__all__ = ["Operators", "Uses", "acts", "pure", "seeds_gradient"]


def seeds_gradient(op: Operator) -> bool:
    """Whether the operator becomes ``Scale LossGrad`` on every device."""
    return op.role == roles.BACKWARD | roles.LOSS


def acts(op: Operator) -> bool:
    """Whether running the operator has a side effect, such as raising for invalid values."""
    definition = op.definition
    may_fail = definition.by_executor or definition.checks_values
    return bool(definition.acts or op.bodies or may_fail)


def pure(op: Operator) -> bool:
    """Whether equal inputs always give equal results, without side effects."""
    special = op.definition.kernel_arguments & (RUNTIME_ARGUMENTS - {"needs", "as_rows"})
    particular = op.role_var or seeds_gradient(op) or op.definition.lazy or op.fills_rows
    return not (acts(op) or special or particular)


class Operators:
    """The operators of the global block, in order.

    Args:
        program: whose operators they are.
        kept: names of fetched variables, whose values must be computed.

    Attributes:
        left: the pairs of operators that a pass would have fused, and what forbids it.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.extend import Operators
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.layers.scale(fluid.data("x", [None, 4]), 2.0))
        >>> [op.type for op in Operators(main).ops]
        ['scale', 'relu']
    """

    def __init__(self, program: Program, kept: Iterable[str] = ()) -> None:
        self.block = program.global_block()
        self.ops = list(self.block.ops)
        self.kept = frozenset(kept)
        self.left: dict[tuple[Operator, Operator], str] = {}
        self._uses: Uses | None = None

    def uses(self) -> Uses:
        """An index of the current operators' reads and writes."""
        if self._uses is None or self._uses.ops is not self.ops:
            self._uses = Uses(self)
        return self._uses

    def replace(self, changes: Mapping[Operator, Operator | None]) -> bool:
        """Replace operators by others, or remove them (None); tell whether there were any."""
        if changes:
            made = (changes.get(op, op) for op in self.ops)
            self.ops = [op for op in made if op is not None]
        return bool(changes)

    def expand(self, changes: Mapping[Operator, Sequence[Operator]]) -> bool:
        """Replace operators by several each; tell whether there were any."""
        if changes:
            self.ops = [made for op in self.ops for made in changes.get(op, (op,))]
        return bool(changes)

    @property
    def removed(self) -> frozenset[str]:
        """The variables that the program computes but these operators do not."""
        before = {name for op in self.block.ops for name in op.writes}
        return frozenset(before.difference(*(op.writes for op in self.ops)))


class Uses:
    """The positions of the operators that read and write each variable.

    Args:
        operators: the operators, which must not change while this index is used.
    """

    def __init__(self, operators: Operators) -> None:
        self._vars = operators.block.vars
        self.ops = operators.ops
        self.left = operators.left
        self.readers: defaultdict[str, list[int]] = defaultdict(list)
        self.writers: defaultdict[str, list[int]] = defaultdict(list)
        self._pinned = set(operators.kept)
        for position, op in enumerate(operators.ops):
            reads, writes = op.reads, op.writes
            for name in dict.fromkeys(reads):
                self.readers[name].append(position)
            for name in dict.fromkeys(writes):
                self.writers[name].append(position)
            if op.bodies or op.definition.by_executor or seeds_gradient(op):
                self._pinned.update(reads, writes)
            role_var = op.role_var
            self._pinned.update(role_var)
            if role_var and op.role & roles.BACKWARD:  # a collective changes them afterwards
                for name in set(role_var[1::2]).difference(writes):
                    self.writers[name].append(position)
        self.readers.pop(roles.EMPTY, None)
        self.writers.pop(roles.EMPTY, None)

    def version(self, name: str, position: int) -> int:
        """The version of a variable at a position: the number of operators before that write it."""
        return bisect_left(self.writers[name], position)

    def same(self, names: Iterable[str], first: int, second: int) -> bool:
        """Whether variables have the same values at two positions."""
        return all(self.version(name, first) == self.version(name, second) for name in names)

    def temporary(self, name: str) -> bool:
        """Whether a variable is computed once and used only by later operators of this list.

        No other program, operator body, collective or fetch reads it.
        """
        writers, declared = self.writers[name], self._vars.get(name)
        if declared is None or declared.persistable or name in self._pinned or len(writers) != 1:
            return False
        return all(reader > writers[0] for reader in self.readers[name])

    def why_no_temporary(self, name: str) -> str:
        """Why others than this list's later operators see a variable, or more than one of them."""
        writers, declared = self.writers[name], self._vars.get(name)
        if declared is not None and declared.persistable:
            return f"{name} is a parameter or a state"
        if len(writers) != 1:
            return f"{name} is written {len(writers)} times"
        if len(self.readers[name]) > 1:
            types = ", ".join(dict.fromkeys(self.ops[at].type for at in self.readers[name]))
            return f"{name} is read by {len(self.readers[name])} operators ({types})"
        return f"{name} is fetched, summed over devices, or read by a loop"

    def only_reader(self, name: str) -> int | None:
        """The position of a temporary's only reader; None if it is no temporary or has several."""
        readers = self.readers[name]
        return readers[0] if len(readers) == 1 and self.temporary(name) else None
