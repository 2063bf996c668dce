"""``DynamicRNN``: layers repeated for every time step of sequences of different lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.undo import whole_block
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.arrays import array_read, array_write
from dpexec.layers.build import block_around
from dpexec.layers.comparisons import less_than
from dpexec.layers.constants import fill_constant
from dpexec.layers.control_flow import While
from dpexec.layers.math import increment
from dpexec.layers.rank_tables import array_to_lod_tensor, shrink_memory

__all__ = ["DynamicRNN"]


class _Status(Enum):
    BEFORE = "before"
    INSIDE = "inside"
    AFTER = "after"


class DynamicRNN:
    """A recurrent net: layers that run once per time step of all sequences of a batch.

    Sequences are sorted by length, longest first, so that the unfinished sequences of a step are
    its first rows. Layers are added inside ``with rnn.block():``; calling the object afterwards
    returns the variables passed to :meth:`output` as sequences.

    Args:
        name: prefix of its variables' names.

    See Also:
        :func:`while_loop`: from functions.
        :class:`While`: from a block, with variables that are assigned.
        :class:`StaticRNN`: over steps of equal sequences.
        :func:`dynamic_lstm`: sequences of different lengths.

    Example:
        >>> import dpexec as fluid
        >>> import numpy as np
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 1], lod_level=1)
        ...     rnn = fluid.layers.DynamicRNN()
        ...     with rnn.block():
        ...         number = rnn.step_input(x)
        ...         total = rnn.memory(shape=[1])
        ...         grown = total + number
        ...         rnn.update_memory(total, grown)
        ...         rnn.output(grown)
        ...     column = np.arange(5, dtype="float32").reshape(5, 1)
        ...     feed = {"x": fluid.create_lod_tensor(column, [[2, 3]], fluid.CPUPlace())}
        ...     run = fluid.Executor(fluid.CPUPlace()).run
        ...     (sums,) = run(feed=feed, fetch_list=[rnn()], return_numpy=False)
        ...     np.array(sums).ravel().tolist(), sums.lod()
        ([0.0, 1.0, 2.0, 5.0, 9.0], [[0, 2, 5]])

    Source: ``fluid.layers.DynamicRNN``.
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("dynamic_rnn", name=name)
        self.cond = self.helper.create_variable_for_type_inference("bool")
        self.while_op = While(self.cond)
        self.lod_rank_table: Any = None
        self.max_seq_len: Any = None
        self.step_idx: Any = None
        self.zero_idx: Any = None
        self.outputs: list[Variable] = []
        self._status = _Status.BEFORE
        self._inputs: list[Variable] = []
        """Arrays with an entry per time step."""
        self._memories: dict[str, Variable] = {}
        """For what a step reads of a memory, the array of all its values."""
        self._updates: list[tuple[Variable, Variable]] = []
        self._output_arrays: list[Variable] = []

    # ---- the block of a time step

    @whole_block
    def block(self) -> Iterator[Block]:
        """Add layers to the block of a time step.

        Raises:
            ValueError: the block exists already.
        """
        if self._status != _Status.BEFORE:
            raise ValueError("rnn.block() can only be invoke once")
        self.step_idx = fill_constant([1], "int64", 0, force_cpu=True)
        self.step_idx.stop_gradient = False
        self._status = _Status.INSIDE
        with self.while_op.block() as body:
            yield body
            increment(self.step_idx, value=1.0, in_place=True)
            for value, array in self._updates:
                array_write(value, self.step_idx, array)
            less_than(self.step_idx, self.max_seq_len, force_cpu=True, cond=self.cond)
        self._status = _Status.AFTER
        table = self.lod_rank_table
        self.outputs += [array_to_lod_tensor(array, table) for array in self._output_arrays]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The variables passed to :meth:`output`: a tensor with sequences, or a list of them.

        Raises:
            ValueError: called inside or before the block.
        """
        if self._status != _Status.AFTER:
            raise ValueError("Output of the dynamic RNN can only be visited outside the rnn block.")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    # ---- what goes into a step

    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """The current time step of sequences.

        Args:
            x: a tensor with sequences; the first input determines the number of steps.
            level: the level of sequences to step through; finer levels stay sequences.

        Returns:
            ``(unfinished sequences, ...)``.

        Raises:
            ValueError: called outside the block.
            TypeError: not a variable.
            EnforceNotMet: ``x`` has no such sequences.
        """
        self._require_inside("step_input")
        if not isinstance(x, Variable):
            raise TypeError("step_input() can only take a Variable as its input.")
        parent = block_around()
        if self.lod_rank_table is None:
            self._rank(parent, x, level)
        array = self._outer("dynamic_rnn_input_array", VarType.LOD_TENSOR_ARRAY, x.dtype)
        self._inputs.append(array)
        inputs = {"X": x, "RankTable": self.lod_rank_table}
        parent.append_op("lod_tensor_to_array", inputs, {"Out": array})
        return array_read(array, self.step_idx)

    def _rank(self, parent: Block, x: Variable, level: int) -> None:
        """Let ``x`` determine the number of steps, and the sequences of each step."""
        table = self._outer("lod_rank_table", VarType.LOD_RANK_TABLE)
        table.stop_gradient = True
        parent.append_op("lod_rank_table", {"X": x}, {"Out": table}, {"level": level})
        steps = self._outer("dynamic_rnn_max_seq_len", dtype="int64")
        parent.append_op("max_sequence_len", {"RankTable": table}, {"Out": steps})
        self.cond.stop_gradient = True
        inputs = {"X": self.step_idx, "Y": steps}
        parent.append_op("less_than", inputs, {"Out": self.cond}, {"force_cpu": True})
        self.lod_rank_table, self.max_seq_len = table, steps

    def static_input(self, x: Variable) -> Variable:
        """A value that is the same in every step: one row, or sequence, for every sequence.

        Args:
            x: a tensor with one row, or sequence, for each sequence of the step inputs.

        Returns:
            The rows, or sequences, of the unfinished sequences, the longest first.

        Raises:
            ValueError: called outside the block.
            TypeError: not a variable.
            RuntimeError: called before the first :meth:`step_input`.
        """
        self._require_inside("static_input")
        if not isinstance(x, Variable):
            raise TypeError("static_input() can only take a Variable as its input")
        if self.lod_rank_table is None:
            raise RuntimeError("static_input() must be called after step_input().")
        ordered = self._reordered("dynamic_rnn_static_input_reordered", x)
        return shrink_memory(ordered, self.step_idx, self.lod_rank_table)

    def _reordered(self, name: str, x: Variable) -> Variable:
        ordered = self._outer(name, dtype=x.dtype)
        inputs = {"X": x, "RankTable": self.lod_rank_table}
        block_around().append_op("reorder_lod_tensor_by_rank", inputs, {"Out": ordered})
        return ordered

    # ---- what goes from step to step

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> Variable:
        """A value carried from step to step; :meth:`update_memory` sets its next value.

        Args:
            init: the value in the first step, one row per sequence.
            shape: shape of a row, if there is no ``init``: then all elements start as ``value``.
            value: initial value of all elements, if there is no ``init``.
            need_reorder: ``init`` is in the order of the batch, not sorted by length.
            dtype: element type, if there is no ``init``.

        Returns:
            The value in this step, ``(unfinished sequences, ...)``.

        Raises:
            ValueError: called outside the block, or before the :meth:`step_input` that it requires.
            TypeError: ``init`` is no variable.
        """
        self._require_inside("memory")
        zero = self._zero()
        if init is None:
            init = self._constant(shape or (), value, dtype)
        elif not isinstance(init, Variable):
            raise TypeError("The input arg `init` of memory() must be a Variable")
        elif need_reorder:
            if self.lod_rank_table is None:
                raise ValueError(
                    "If set need_reorder to True, make sure step_input be invoked before "
                    "memory(init=init, need_reordered=True, ...)."
                )
            init = self._reordered("dynamic_rnn_mem_init_reordered", init)
        array = self._outer("dynamic_rnn_mem_array", VarType.LOD_TENSOR_ARRAY, init.dtype)
        block_around().append_op("write_to_array", {"X": init, "I": zero}, {"Out": array})
        before = array_read(array, self.step_idx)
        now = shrink_memory(before, self.step_idx, self.lod_rank_table)
        self._memories[now.name] = array
        return now

    def _constant(self, shape: Sequence[int], value: float, dtype: Any) -> Variable:
        """A row filled with a number for every sequence."""
        if not self._inputs:
            raise ValueError("step_input should be invoked before memory(shape=..., value=...)")
        parent = block_around()
        init = self._outer("mem_init", dtype=dtype)
        first = self._outer("in0", dtype=self._inputs[0].dtype)
        inputs = {"X": self._inputs[0], "I": self._zero()}
        parent.append_op("read_from_array", inputs, {"Out": first})
        attrs = {"shape": [-1, *shape], "value": float(value), "dtype": init.dtype}
        parent.append_op("fill_constant_batch_size_like", {"Input": first}, {"Out": init}, attrs)
        return init

    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """Set a memory's value for the next step.

        Args:
            ex_mem: the memory, as returned by :meth:`memory`.
            new_mem: its next value, the same shape.

        Raises:
            ValueError: called outside the block; ``ex_mem`` is no memory; there is no
                :meth:`step_input`.
            TypeError: an argument is no variable.
        """
        self._require_inside("update_memory")
        for name, var in (("ex_mem", ex_mem), ("new_mem", new_mem)):
            if not isinstance(var, Variable):
                raise TypeError(f"The input arg `{name}` of update_memory() must be a Variable")
        array = self._memories.get(ex_mem.name)
        if array is None:
            raise ValueError("Please invoke memory before update_memory")
        if self.lod_rank_table is None:
            raise ValueError("Please invoke step_input before update_memory")
        self._updates.append((new_mem, array))

    # ---- what comes out of a step

    def output(self, *outputs: Variable) -> None:
        """Mark outputs of the net: their values in all steps become sequences.

        Args:
            outputs: ``(unfinished sequences, ...)`` each.

        Raises:
            ValueError: called outside the block.
        """
        self._require_inside("output")
        for var in outputs:
            name = "_".join([self.helper.name, "output_array", var.name])
            array = self._outer(name, VarType.LOD_TENSOR_ARRAY, var.dtype)
            array_write(var, self.step_idx, array)
            self._output_arrays.append(array)

    # ---- variables around the block

    def _outer(self, name: str, type: VarType = VarType.LOD_TENSOR, dtype: Any = None) -> Variable:
        name = unique_name.generate(name)
        return block_around().create_var(name=name, type=type, dtype=dtype)

    def _zero(self) -> Variable:
        """The index of the first step."""
        if self.zero_idx is None:
            self.zero_idx = self._outer("zero_idx", dtype="int64")
            attrs = {"shape": [1], "dtype": self.zero_idx.dtype, "value": 0.0, "force_cpu": True}
            block_around().append_op("fill_constant", {}, {"Out": self.zero_idx}, attrs)
        return self.zero_idx

    def _require_inside(self, method: str) -> None:
        if self._status != _Status.INSIDE:
            raise ValueError(f"{method} can only be invoked inside rnn block.")
