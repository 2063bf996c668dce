"""``IfElse``: layers for the rows of a batch where a condition is true, others for the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dpexec.checks import check_type
from dpexec.engine.core import unique_name
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.undo import whole_block
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import block_around
from dpexec.layers.control_flow import ConditionalBlock
from dpexec.layers.masks import merge_lod_tensor
from dpexec.layers.tensor import assign

__all__ = ["IfElse"]


class IfElse:
    """Two blocks of layers, each for a part of a batch's rows or sequences.

    Args:
        cond: bool ``(n, 1)``: True for the rows of ``true_block``.
        name: prefix of its variables' names.

    Raises:
        TypeError: ``cond`` is no variable.

    See Also:
        :func:`cond`: two branches, by one condition.
        :func:`case`: the first condition that holds.
        :func:`switch_case`: by a number.
        :func:`while_loop`: repeats while a condition holds.

    Example:
        >>> import dpexec as fluid
        >>> import numpy as np
        >>> layers = fluid.layers
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 1])
        ...     either = layers.IfElse(x > 0.0)
        ...     with either.true_block():
        ...         either.output(layers.log(either.input(x)))
        ...     with either.false_block():
        ...         either.output(either.input(x) * 10.0)
        ...     column = np.array([[1], [-2]], "float32")
        ...     fluid.Executor(fluid.CPUPlace()).run(feed={"x": column}, fetch_list=either())
        [array([[  0.],
               [-20.]], dtype=float32)]

    Source: ``fluid.layers.IfElse``.
    """

    def __init__(self, cond: Variable, name: str | None = None) -> None:
        check_type(cond, "cond", Variable, "fluid.layers.IfElse")
        check_type(name, "name", (str, type(None)), "fluid.layers.IfElse")
        self.helper = LayerHelper("ifelse", name=name)
        self.cond = cond
        self._inside: bool | None = None
        """Which of the blocks is built into."""
        self._inputs: dict[str, tuple[Variable, Variable]] = {}
        """The parts of what :meth:`input` was given: where the condition holds, and where not."""
        self._outputs: dict[bool, list[Variable]] = {True: [], False: []}

    def true_block(self) -> contextlib.AbstractContextManager[Block]:
        """The layers of a ``with`` block work on the rows where the condition is true.

        Raises:
            ValueError: called inside a block, or the block has no output.
        """
        return self._block(True)

    def false_block(self) -> contextlib.AbstractContextManager[Block]:
        """The layers of a ``with`` block work on the rows where the condition is false.

        Raises:
            ValueError: called inside a block, or the block has no output.
        """
        return self._block(False)

    @whole_block
    def _block(self, holds: bool) -> Iterator[Block]:
        if self._inside is not None:
            raise ValueError("You cannot invoke IfElse.block() inside a block")
        self._inside = holds
        try:
            with ConditionalBlock([self.cond]).block() as body:
                yield body
        finally:
            self._inside = None
        if not self._outputs[holds]:
            raise ValueError("Must set output inside block")

    def input(self, x: Variable) -> Variable:
        """The rows, or sequences, of ``x`` that the block works on.

        Args:
            x: one row, or sequence, for each row of the condition.

        Raises:
            ValueError: called outside the blocks.
        """
        if self._inside is None:
            raise ValueError("input must in true/false blocks")
        if x.name not in self._inputs:
            parent, name = block_around(), "ifelse_input" + self.helper.name
            true, false = (self._outer(name, x) for _ in range(2))
            inputs = {"X": x, "Mask": self.cond}
            outputs = {"OutTrue": true, "OutFalse": false}
            parent.append_op("split_lod_tensor", inputs, outputs, {"level": 0})
            self._inputs[x.name] = true, false
        true, false = self._inputs[x.name]
        return true if self._inside else false

    def output(self, *outs: Variable) -> None:
        """Mark results of the block; both blocks must mark the same number.

        Args:
            outs: variables with one row, or sequence, for each that the block works on.

        Raises:
            ValueError: called outside the blocks.
            TypeError: not a variable.
        """
        if self._inside is None:
            raise ValueError("output can only be invoked in the sub-block")
        for out in outs:
            check_type(out, "each output", Variable, "fluid.layers.IfElse.output")
            outside = self._outer(self.helper.name + "_output", out)
            self._outputs[self._inside].append(outside)
            assign(out, outside)

    def __call__(self) -> list[Variable]:
        """The results of both blocks, merged in the order of the batch's rows.

        Raises:
            ValueError: called inside a block, a block is missing, or the numbers of outputs differ.
        """
        if self._inside is not None:
            raise ValueError("IfElse::__call__ must be out of sub-block")
        true, false = self._outputs[True], self._outputs[False]
        if not true and not false:
            raise ValueError("Must invoke true_block/false_block before __call__")
        if not true or not false:
            return true or false
        if len(true) != len(false):
            raise ValueError("The output side must be same")
        return [
            merge_lod_tensor(in_true=one, in_false=other, x=self.cond, mask=self.cond)
            for one, other in zip(true, false, strict=True)
        ]

    def _outer(self, name: str, like: Variable) -> Variable:
        name = unique_name.generate(name)
        return block_around().create_var(name=name, dtype=like.dtype)
