"""fluid's ``PassBuilder``: the passes of a BuildStrategy as a list that programs edit."""

from __future__ import annotations

from typing import Any, NoReturn

from dpexec.engine.core.errors import EnforceNotMet, similar
from dpexec.engine.passes import PASSES, REWRITES, OperatorPass, Pass
from dpexec.engine.passes.graph_viz import GraphViz
from dpexec.engine.strategy.fields import Strategy

__all__ = ["ListedPass", "PassBuilder"]

_OF_FLUID = {
    "enable_auto_fusion": "fusion_group_pass",
    "enable_sequential_execution": "sequential_execution_pass",
    "fuse_all_optimizer_ops": "fuse_optimizer_op_pass",
    "fuse_all_reduce_ops": "fuse_all_reduce_op_pass",
    "fuse_bn_act_ops": "fuse_bn_act_pass",
    "fuse_elewise_add_act_ops": "fuse_elewise_add_act_pass",
}
"""fluid's names of passes whose names differ from their BuildStrategy field."""


_BUILT_IN: tuple[type[OperatorPass] | type[Pass], ...] = (*REWRITES, *PASSES)


class ListedPass:
    """An entry of the list of passes.

    Args:
        step: the pass, or the class of a built-in one.
    """

    def __init__(self, step: OperatorPass | Pass | type[OperatorPass] | type[Pass]) -> None:
        self.step = step

    def type(self) -> str:
        """Fluid's name of the pass, if it has one."""
        name = self.step.name
        return _OF_FLUID.get(name, f"{name}_pass") if isinstance(self.step, type) else name

    def has(self, attribute: str) -> bool:
        """Always False: only ``graph_viz_pass`` has attributes."""
        return False

    def set(self, attribute: str, value: Any) -> NoReturn:
        """Reject an attribute.

        Raises:
            EnforceNotMet: always.
        """
        raise EnforceNotMet(f"{self.type()} has no attribute {attribute}")


class PassBuilder:
    """The return value of ``BuildStrategy._finalize_strategy_and_create_passes()``.

    Built-in passes run in a fixed order; a user's passes run after the built-in ones of their kind.

    Args:
        strategy: the BuildStrategy with these passes; changes here change it.
        appended: the user's passes: over operators, and over graphs.
    """

    def __init__(self, strategy: Strategy, appended: tuple[list[OperatorPass], list[Pass]]) -> None:
        self._strategy, self._appended = strategy, appended

    def all_passes(self) -> list[ListedPass | GraphViz]:
        """The enabled passes, in the order in which they run."""
        rewrites, passes = self._appended
        on = [step for step in REWRITES if self._is_on(step)], rewrites
        behind = [step for step in PASSES if self._is_on(step)], passes
        return [
            step if isinstance(step, GraphViz) else ListedPass(step)
            for steps in (*on, *behind)
            for step in steps
        ]

    def append_pass(self, name: str) -> ListedPass | GraphViz:
        """Add a pass.

        Args:
            name: ``"graph_viz_pass"``, or a built-in one, which is switched on.

        Raises:
            EnforceNotMet: there is no such pass, or a program was compiled with the strategy.
        """
        self._check_open()
        if name == GraphViz.name:
            made = GraphViz()
            self._appended[1].append(made)
            return made
        found = {ListedPass(step).type(): step for step in _BUILT_IN}
        if name not in found:
            hint = similar(name, [*found, GraphViz.name])
            raise EnforceNotMet(
                f"Pass {name} has not been registered{hint}; BuildStrategy.append_pass takes "
                "passes of one's own"
            )
        self._strategy._values[found[name].name] = True
        return ListedPass(found[name])

    def insert_pass(self, index: int, name: str) -> ListedPass | GraphViz:
        """Add a pass at a position, which must be the end.

        Args:
            index: the number of passes so far.
            name: as for :meth:`append_pass`.

        Raises:
            EnforceNotMet: as for :meth:`append_pass`, or the position is not the end.
        """
        end = len(self.all_passes())
        if index != end:
            raise EnforceNotMet(
                f"{name} cannot be inserted at {index}: passes have their order; insert it at "
                f"{end}, behind all of them"
            )
        return self.append_pass(name)

    def remove_pass(self, index: int) -> None:
        """Remove a pass; a built-in one is switched off.

        Args:
            index: position in :meth:`all_passes`.

        Raises:
            EnforceNotMet: no pass has this position, or a program was compiled with the strategy.
        """
        self._check_open()
        passes = self.all_passes()
        if not 0 <= index < len(passes):
            raise EnforceNotMet(f"there is no pass {index}, only {len(passes)}")
        listed = passes[index]
        step = listed.step if isinstance(listed, ListedPass) else listed
        if isinstance(step, type):
            self._strategy._values[step.name] = False
            return
        for added in self._appended:
            if step in added:
                added.remove(step)  # type: ignore[arg-type]

    def _is_on(self, step: type[OperatorPass] | type[Pass]) -> bool:
        return bool(getattr(self._strategy, step.name))

    def _check_open(self) -> None:
        if self._strategy.was_compiled():
            self._strategy._check_open("its list of passes")
