"""Sequences that are fed to variables which were declared without: the original takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpexec.core.tensors import LoDTensor
from dpexec.ir.program import Program

__all__ = ["FedLevels"]


@dataclass(frozen=True)
class FedLevels:
    """How many levels of sequences variables get that are declared without.

    Args:
        levels: names of variables, each with a number of levels.
    """

    levels: tuple[tuple[str, int], ...]

    @classmethod
    def find(cls, program: Program, feed: Any) -> FedLevels | None:
        """What a feed of a program has; None, as usual, if everything is as declared.

        Args:
            program: which is fed.
            feed: a dict, or a list of dicts; something else is refused where feeds are checked.
        """
        known = program.global_block().vars
        levels = {
            name: len(value.lod())
            for each in (feed if isinstance(feed, (list, tuple)) else [feed])
            if isinstance(each, Mapping)
            for name, value in each.items()
            if isinstance(value, LoDTensor) and value.lod()
            if name in known and not known[name].lod_level
        }
        return cls(tuple(sorted(levels.items()))) if levels else None

    def of(self, program: Program) -> Program:
        """A copy of the program in which the variables are declared so."""
        declared = program.clone()
        known = declared.global_block().vars
        for name, levels in self.levels:
            if name in known:
                known[name].lod_level = levels
        return declared
