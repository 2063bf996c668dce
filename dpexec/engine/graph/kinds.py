"""The kinds of nodes in the SSA graph: each kind of operator or collective is declared once.

Other code decides by a kind's declared properties, not by its name. So a collective declared
elsewhere, such as by a user's pass, runs like the ones here. Graph files contain its name; views,
which only read these files, show no more of it.
"""

from __future__ import annotations

from typing import Literal, get_args

from dpexec.engine.core.light_dataclasses import dataclass
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
    """A kind of node of the graph: an operator, or a collective with its properties.

    Args:
        name: the name in graph files, traces and keys of tasks.
        effect: ``"computes"`` runs an operator of the program; ``"seeds"`` makes the gradient of
            the loss. For collectives: ``"combines"`` makes one value of the same shape from
            several, ``"copies"`` sends a value to other devices, ``"splits"`` divides the rows of a
            value among devices, ``"joins"`` concatenates the rows of devices.
        result: which devices hold the result: ``"all"``, the ``"root"`` only, or a ``"part"`` each.
        runs_on: the device of the first ``"source"`` or ``"target"``; ``"all"``: no single device,
            so workers and threads may share its work.
        of_gradients: whether it aggregates gradients of parameters. Such collectives run in buckets
            during the backward pass, and a graph uses one kind for all gradients.
        reduction: how values are combined. Duplicate rows of a sparse value stand for their sum, so
            sparse values can only be summed or copied.

    Raises:
        ValueError: a field has an invalid value.

    Example:
        >>> from dpexec.extend import Kind, Reduction
        >>> largest = Reduction("max", "largest value", "maximum", "NCCL_MAX")
        >>> kind = Kind("max_reduce", "combines", "all", of_gradients=True, reduction=largest)
        >>> kind.name, kind.reduction.name
        ('max_reduce', 'max')
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
        """Whether it moves or combines values between devices."""
        return self.effect not in ("computes", "seeds")

    @property
    def computes(self) -> bool:
        """Whether it runs an operator of the program."""
        return self.effect == "computes"

    @property
    def seeds(self) -> bool:
        """Whether it makes the gradient of the loss, without inputs."""
        return self.effect == "seeds"

    @property
    def combines(self) -> bool:
        """Whether it combines the values of several devices into one."""
        return self.effect == "combines"

    @property
    def copies(self) -> bool:
        """Whether it copies a value to other devices."""
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
        """Whether only one device holds the result."""
        return self.result == "root"

    @property
    def takes_sparse(self) -> bool:
        """Whether it accepts sparse values."""
        return self.copies or (self.combines and self.reduction == SUM)

    @property
    def text(self) -> str:
        """Its name in pictures."""
        return self.name.replace("_", "-")

    @property
    def title(self) -> str:
        """Its name as a fluid ``ReduceStrategy``."""
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
"""Kinds by their names in graph files."""

MODES = {kind.name: kind for kind in KINDS.values() if kind.of_gradients}
"""How gradients are aggregated in each mode: for all devices, or at the parameter's owner."""
