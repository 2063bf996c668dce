"""What nodes of the SSA graph do: a kind of operator or of collective is declared here, once.

Whoever treats kinds differently asks for what is declared, not for a name. A collective that is
declared elsewhere, as by a pass of a user, runs as these do; graph files name it, but views, which
read files, know no more of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dpexec.engine.core.reductions import SUM, Reduction

__all__ = [
    "ALL_REDUCE",
    "ALL_SUM",
    "BROADCAST",
    "COMPUTE",
    "KINDS",
    "MERGE",
    "MODES",
    "REDUCE",
    "SCALE_LOSS_GRAD",
    "SPLIT",
    "Effect",
    "Kind",
]

Effect = Literal["computes", "seeds", "combines", "copies", "splits", "joins"]
Result = Literal["all", "root", "part"]
RunsOn = Literal["source", "target", "all"]


@dataclass(frozen=True)
class Kind:
    """A kind of node.

    Args:
        name: in graph files, traces and keys of tasks.
        effect: ``"computes"`` what an operator of the program says; ``"seeds"`` the gradient of the
            loss. Of collectives: ``"combines"`` values to one of the same shape, ``"copies"`` a
            value to others, ``"splits"`` the rows of a value among devices, ``"joins"`` the rows of
            devices one behind the other.
        result: who has it: ``"all"`` devices, the ``"root"`` alone, or each its ``"part"``.
        runs_on: the device of the first ``"source"`` or ``"target"``; ``"all"``: it belongs to no
            device, and workers and threads may share its work.
        of_gradients: whether it brings gradients of parameters together: these come in buckets
            while the backward pass goes on, and a graph aggregates them all by one kind.
        reduction: how values are combined. Rows that repeat in a sparse value stand for their sum,
            so sparse values can only be added up, or copied.

    Raises:
        ValueError: a word that is none of these.
    """

    name: str
    effect: Effect
    result: Result = "part"
    runs_on: RunsOn = "source"
    of_gradients: bool = False
    reduction: Reduction = SUM

    def __post_init__(self) -> None:
        words = {"effect": Effect, "result": Result, "runs_on": RunsOn}
        for field, known in words.items():
            if getattr(self, field) not in get_args(known):
                raise ValueError(
                    f"{field} of the kind {self.name!r} must be one of {get_args(known)}, not "
                    f"{getattr(self, field)!r}"
                )

    @property
    def is_collective(self) -> bool:
        """Whether values of several devices meet."""
        return self.effect not in ("computes", "seeds")

    @property
    def computes(self) -> bool:
        """Whether it runs an operator of the program."""
        return self.effect == "computes"

    @property
    def seeds(self) -> bool:
        """Whether it makes the gradient of the loss, from nothing."""
        return self.effect == "seeds"

    @property
    def combines(self) -> bool:
        """Whether it makes one value of those of several devices."""
        return self.effect == "combines"

    @property
    def copies(self) -> bool:
        """Whether it gives a value to others."""
        return self.effect == "copies"

    @property
    def splits(self) -> bool:
        """Whether it divides rows."""
        return self.effect == "splits"

    @property
    def moves_rows(self) -> bool:
        """Whether rows are divided or joined, so that the result has another shape."""
        return self.is_collective and not (self.combines or self.copies)

    @property
    def has_root(self) -> bool:
        """Whether one device alone has the result."""
        return self.result == "root"

    @property
    def takes_sparse(self) -> bool:
        """Whether sparse values go through it."""
        return self.copies or (self.combines and self.reduction == SUM)

    @property
    def text(self) -> str:
        """What pictures call it."""
        return self.name.replace("_", "-")

    @property
    def title(self) -> str:
        """What fluid calls it as a ``ReduceStrategy``."""
        return "".join(map(str.capitalize, self.name.split("_")))


COMPUTE = Kind("compute", "computes")
SCALE_LOSS_GRAD = Kind("scale_loss_grad", "seeds")
ALL_REDUCE = Kind("all_reduce", "combines", "all", "all", of_gradients=True)
REDUCE = Kind("reduce", "combines", "root", "target", of_gradients=True)
ALL_SUM = Kind("all_sum", "combines", "all")  # between the halves of operators
BROADCAST = Kind("broadcast", "copies", "all")
SPLIT = Kind("split", "splits")  # this and the next one: around the body of a ParallelDo
MERGE = Kind("merge", "joins", "root", "target")

KINDS = {
    kind.name: kind
    for kind in (
        *(COMPUTE, SCALE_LOSS_GRAD),
        *(ALL_REDUCE, ALL_SUM, REDUCE, BROADCAST, SPLIT, MERGE),
    )
}
"""Kinds by the names that graph files have."""

MODES = {kind.name: kind for kind in KINDS.values() if kind.of_gradients}
"""By the name of a mode, how gradients meet: for all devices, or at the owner of a parameter."""
