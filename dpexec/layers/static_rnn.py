"""``StaticRNN``: layers repeated for every step of sequences of equal length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dpexec.checks import check_type
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.program import default_main_program
from dpexec.engine.ir.undo import whole_block
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import block_around
from dpexec.layers.control_flow import new_body

__all__ = ["StaticRNN"]


@dataclass
class _Memory:
    """A memory of a network.

    Args:
        init: value in the first step.
        before: variable with the value at the beginning of a step.
        after: variable with the value after a step; None before ``update_memory``.
    """

    init: Variable
    before: Variable
    after: Variable | None = None


class StaticRNN:
    """A recurrent network: runs the layers created inside ``with rnn.step():`` once per step.

    Axis 0 of all variables passed to :meth:`step_input` is the axis of the steps.

    Args:
        name: prefix of its variables' names.

    Raises:
        TypeError: the name is no string.

    See Also:
        :func:`while_loop`: from functions.
        :class:`While`: from a block, with variables that are assigned.
        :class:`DynamicRNN`: over sequences of different lengths.

    Example:
        >>> import dpexec as fluid
        >>> import numpy as np
        >>> layers = fluid.layers
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [3, 2, 1], dtype="float32")
        ...     rnn = layers.StaticRNN()
        ...     with rnn.step():
        ...         now = rnn.step_input(x)
        ...         total = rnn.memory(shape=[-1, 1], batch_ref=now)
        ...         added = total + now
        ...         rnn.update_memory(total, added)
        ...         rnn.step_output(added)
        ...     run = fluid.Executor(fluid.CPUPlace()).run
        ...     feed = {"x": np.arange(6, dtype="float32").reshape(3, 2, 1)}
        ...     run(feed=feed, fetch_list=[rnn()])[0].reshape(3, 2)
        array([[0., 1.],
               [2., 4.],
               [6., 9.]], dtype=float32)

    Source: ``fluid.layers.StaticRNN``.
    """

    BEFORE_RNN_BLOCK = 0
    IN_RNN_BLOCK = 1
    AFTER_RNN_BLOCK = 2

    def __init__(self, name: str | None = None) -> None:
        check_type(name, "name", (str, type(None)), "fluid.layers.StaticRNN")
        self.helper = LayerHelper("static_rnn", name=name)
        self.memories: dict[str, _Memory] = {}
        """By the name that a memory has in the block."""
        self.inputs: list[Variable] = []
        self.outputs: list[Variable] = []
        self.status = StaticRNN.BEFORE_RNN_BLOCK
        self.seq_len: int | None = None

    @whole_block
    def step(self) -> Iterator[None]:
        """The layers of this ``with`` block are a step; an exception inside restores the program.

        Raises:
            ValueError: a memory is never updated.
        """
        with new_body(self.helper) as body:
            self.status = StaticRNN.IN_RNN_BLOCK
            try:
                yield
                states = [self._stored(memory) for memory in self.memories.values()]
            finally:
                self.status = StaticRNN.AFTER_RNN_BLOCK
        self._append_operator(body, states)

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """A value carried from each step to the next.

        Args:
            init: value in the first step; by default filled with ``init_value``.
            shape: shape of a memory without ``init``, with -1 for the number of samples.
            batch_ref: a variable that has the number of samples. For a step input, its variable
                outside of the block is used.
            init_value: initial value of a memory without ``init``.
            init_batch_dim_idx: the axis of the samples in the memory.
            ref_batch_dim_idx: the axis of the samples in ``batch_ref``.

        Returns:
            The memory at the beginning of a step.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: called outside of the block, or neither ``init`` nor ``shape`` and
                ``batch_ref`` are given.
        """
        self._require_block("memory")
        layer = "fluid.layers.StaticRNN.memory"
        check_type(init, "init", (Variable, type(None)), layer)
        check_type(shape, "shape", (list, tuple, type(None)), layer)
        check_type(batch_ref, "batch_ref", (Variable, type(None)), layer)
        if init is None:
            if shape is None or batch_ref is None:
                raise ValueError("if init is None, memory at least need shape and batch_ref")
            init = self._filled(shape, batch_ref, init_value, init_batch_dim_idx, ref_batch_dim_idx)
        before = self.helper.create_variable(
            name=unique_name.generate(f"{self.helper.name}@mem"), dtype=init.dtype, shape=init.shape
        )
        self.memories[before.name] = _Memory(init, before)
        return before

    def _filled(
        self, shape: Sequence[int], like: Variable, value: float, axis: int, axis_of_like: int
    ) -> Variable:
        """The initial value of a memory, built in the enclosing block."""
        around = block_around()
        made = around.create_var(
            name=unique_name.generate(f"{self.helper.name}@memory_boot"),
            shape=shape,
            dtype=like.dtype,
        )
        around.append_op(
            "fill_constant_batch_size_like",
            inputs={"Input": [like]},
            outputs={"Out": [made]},
            attrs={
                "value": value,
                "shape": list(made.shape),
                "dtype": made.dtype,
                "input_dim_idx": axis_of_like,
                "output_dim_idx": axis,
            },
        )
        return made

    def step_input(self, x: Variable) -> Variable:
        """The slice of sequences that a step reads.

        Args:
            x: ``(steps, ...)``.

        Returns:
            The slice ``(...)`` of the step, under the same name.

        Raises:
            TypeError: ``x`` is no variable.
            ValueError: called outside of the block, or another sequence has another length.
        """
        self._require_block("step_input")
        check_type(x, "x", Variable, "fluid.layers.StaticRNN.step_input")
        if self.seq_len is None:
            self.seq_len = x.shape[0]
        elif x.shape[0] not in (-1, self.seq_len):
            raise ValueError("Static RNN only take fix seq_len input")
        made = self.helper.create_variable(
            name=x.name, dtype=x.dtype, shape=list(x.shape[1:]), type=x.type
        )
        self.inputs.append(made)
        return made

    def step_output(self, o: Variable) -> None:
        """Make the values of a variable in all steps a result, ``(steps, ...)``.

        Args:
            o: a variable of the block.

        Raises:
            TypeError: ``o`` is no variable.
            ValueError: called outside of the block.
        """
        self._require_block("step_output")
        check_type(o, "o", Variable, "fluid.layers.StaticRNN.step_output")
        made = self._remembered(o)
        stacked = block_around().create_var(
            name=made.name, shape=[self.seq_len, *made.shape], dtype=made.dtype
        )
        self.outputs.append(stacked)

    def output(self, *outputs: Variable) -> None:
        """:meth:`step_output` for several variables."""
        for each in outputs:
            self.step_output(each)

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Set a memory's value for the next step.

        Args:
            mem: the memory, as returned by :meth:`memory`.
            var: its next value: a variable of the block with the shape of ``mem``.

        Raises:
            TypeError: an argument is no variable.
            ValueError: ``var`` is not of the block.
        """
        check_type(mem, "mem", Variable, "fluid.layers.StaticRNN.update_memory")
        check_type(var, "var", Variable, "fluid.layers.StaticRNN.update_memory")
        default_main_program().current_block().var(var.name)
        self.memories[mem.name].after = var

    def __call__(self, *args: Any, **kwargs: Any) -> Variable | list[Variable]:
        """The results: one variable, or a list if there are several.

        Raises:
            ValueError: the block is not finished, or has no outputs.
        """
        if self.status != StaticRNN.AFTER_RNN_BLOCK:
            raise ValueError("RNN output can only be retrieved after rnn block")
        if not self.outputs:
            raise ValueError("RNN has no output")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def _require_block(self, method: str) -> None:
        if self.status != StaticRNN.IN_RNN_BLOCK:
            raise ValueError(f"You must invoke {method} in rnn block")

    def _remembered(self, var: Variable) -> Variable:
        """A value of a step, under the name that the operator expects."""
        made = self.helper.create_variable_for_type_inference(dtype=var.dtype)
        self.helper.append_op(
            "rnn_memory_helper",
            inputs={"X": [var]},
            outputs={"Out": made},
            attrs={"dtype": var.dtype},
        )
        return made

    def _stored(self, memory: _Memory) -> Variable:
        if memory.after is None:
            raise ValueError(f"{memory.init.name} should be updated in every step.")
        return self._remembered(memory.after)

    def _append_operator(self, body: Block, states: list[Variable]) -> None:
        """Append ``recurrent`` to the enclosing block, which is the current one again."""
        around = self.helper.main_program.current_block()
        around.append_op(
            "recurrent",
            inputs={
                "inputs": [var.name for var in self.inputs],
                "initial_states": [memory.init for memory in self.memories.values()],
                "parameters": body._outer_names()[0],
            },
            outputs={
                "outputs": self.outputs,
                "step_scopes": [around.create_var(type=VarType.STEP_SCOPES)],
            },
            attrs={
                "has_states": bool(self.memories),
                "ex_states": list(self.memories),
                "states": [state.name for state in states],
                "sub_block": body,
            },
        )
