"""Decoders, which generate sequences step by step, and the loop that runs them."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.program import default_main_program
from dpexec.engine.ir.variable import Variable
from dpexec.layers.arrays import array_read, array_write, create_array, tensor_array_to_tensor
from dpexec.layers.cells import RNNCell, batch_and_time_swapped
from dpexec.layers.comparisons import less_equal, logical_and, logical_not, logical_or
from dpexec.layers.constants import fill_constant, zeros_like
from dpexec.layers.control_flow import While
from dpexec.layers.decode_helpers import DecodeHelper
from dpexec.layers.elementwise import elementwise_add, elementwise_mul
from dpexec.layers.math import increment
from dpexec.layers.reductions import reduce_all
from dpexec.layers.structures import mapped
from dpexec.layers.tensor import assign, cast

__all__ = ["BasicDecoder", "Decoder", "dynamic_decode"]


class Decoder:
    """Base class: one step of :func:`dynamic_decode`.

    Source: ``fluid.layers.Decoder``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> class Halves(fluid.layers.Decoder):
        ...     "Halves its input in each step, until it is below 1."
        ...     def initialize(self, inits):
        ...         return inits, inits, inits < 1.0
        ...     def step(self, time, inputs, states, **kwargs):
        ...         half = inputs * 0.5
        ...         return half, half, half, half < 1.0
        >>> with fluid.program_guard(fluid.Program()):
        ...     start = fluid.data("start", [2])
        ...     made = fluid.layers.dynamic_decode(Halves(), start, return_length=True)
        ...     feed = {"start": np.array([8, 2], "float32")}
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     rows, steps = exe.run(feed=feed, fetch_list=[made[0], made[2]])
        >>> rows[0].tolist(), steps.tolist()
        ([4.0, 2.0, 1.0, 0.5], [4, 2])
    """

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """Inputs and states of the first step, and which rows are done already (bool).

        Args:
            inits: the argument of :func:`dynamic_decode`.
        """
        raise NotImplementedError

    def step(
        self, time: Variable, inputs: Any, states: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any, Variable]:
        """Outputs of a step, states and inputs of the next step, and which rows are done (bool).

        Args:
            time: number of the step, int64 ``(1,)``.
            inputs: inputs of the step.
            states: states after the previous step.
            kwargs: further arguments of :func:`dynamic_decode`.
        """
        raise NotImplementedError

    def finalize(
        self, outputs: Any, final_states: Any, sequence_lengths: Variable
    ) -> tuple[Any, Any]:
        """Convert the outputs and the last states; without this method they stay as they are.

        Args:
            outputs: outputs of all steps, ``(steps, rows, ...)``.
            final_states: states after the last step.
            sequence_lengths: lengths of all rows, int64.
        """
        raise NotImplementedError


class BasicDecoder(Decoder):
    """Runs a cell; a helper turns its outputs into the next inputs.

    Args:
        cell: computes outputs and states.
        helper: chooses ids from the outputs, and the next inputs.
        output_fn: applied to the cell's outputs.

    Source: ``fluid.layers.BasicDecoder``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [4, 10, 8])  # batch, steps, features
        ...     lengths, start = fluid.data("lengths", [4], "int64"), fluid.data("start", [4, 16])
        ...     helper = fluid.layers.TrainingHelper(words, lengths)
        ...     decoder = fluid.layers.BasicDecoder(fluid.layers.GRUCell(hidden_size=16), helper)
        ...     outputs, states = fluid.layers.dynamic_decode(decoder, inits=start)
        ...     print(outputs.cell_outputs.shape, outputs.sample_ids.shape)
        (4, -1, 16) (4, -1)
    """

    class OutputWrapper(NamedTuple):
        """Outputs of a step: the cell's outputs, and the ids chosen from them."""

        cell_outputs: Any
        sample_ids: Any

    def __init__(self, cell: RNNCell, helper: DecodeHelper, output_fn: Any = None) -> None:
        self.cell = cell
        self.helper = helper
        self.output_fn = output_fn

    def initialize(self, initial_cell_states: Any) -> tuple[Any, Any, Variable]:
        """Inputs of the first step, the states, and which rows are done already (bool).

        Args:
            initial_cell_states: initial states of the cell.
        """
        initial_inputs, initial_finished = self.helper.initialize()
        return initial_inputs, initial_cell_states, initial_finished

    def step(
        self, time: Variable, inputs: Any, states: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any, Variable]:
        """Outputs of a step, states and inputs of the next step, and which rows are done (bool).

        Args:
            time: number of the step, int64 ``(1,)``.
            inputs: inputs of the step.
            states: states of the cell.
            kwargs: passed to the cell.
        """
        outputs, states = self.cell(inputs, states, **kwargs)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        known = {"time": time, "outputs": outputs, "states": states}
        ids = self.helper.sample(**known)
        ids.stop_gradient = True
        finished, next_inputs, next_states = self.helper.next_inputs(**known, sample_ids=ids)
        return self.OutputWrapper(outputs, ids), next_states, next_inputs, finished


def dynamic_decode(
    decoder: Decoder,
    inits: Any = None,
    max_step_num: int | None = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """Repeat the step of a decoder until all rows are done.

    Args:
        decoder: the decoder to run.
        inits: passed to ``decoder.initialize``.
        max_step_num: end after ``max_step_num + 1`` steps at the latest.
        output_time_major: whether the outputs have the layout ``(steps, rows, ...)``.
        impute_finished: whether to keep the states of finished rows unchanged.
        is_test: save memory by keeping no values for gradients.
        return_length: whether to return the lengths, too.
        kwargs: passed to ``decoder.step``.

    Returns:
        The outputs of all steps, ``(rows, steps, ...)`` each, or the outputs that
        ``decoder.finalize`` returns; the last states; with ``return_length`` the rows' lengths,
        int64.

    Source: ``fluid.layers.dynamic_decode``.

    Raises:
        ValueError: ``inits`` holds something that is no variable.

    See Also:
        :func:`beam_search`: one step of a search.
        :func:`beam_search_decode`: its sentences.
        :class:`BeamSearchDecoder`: the decoder that searches.
        :func:`gather_tree`: follows the parents of beams.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     state = fluid.data("state", [None, 16])  # what an encoder ends with
        ...     embed = lambda ids: fluid.embedding(ids, size=[100, 8])
        ...     score = lambda x: fluid.layers.fc(x, 100, num_flatten_dims=2)
        ...     decoder = fluid.layers.BeamSearchDecoder(
        ...         fluid.layers.GRUCell(hidden_size=16), start_token=0, end_token=1, beam_size=3,
        ...         embedding_fn=embed, output_fn=score,
        ...     )
        ...     sentences, _ = fluid.layers.dynamic_decode(decoder, inits=state, max_step_num=10)
        ...     len(sentences.shape)  # batch, steps, beams
        3
    """
    loop = _Loop(decoder, inits, max_step_num, is_test)
    with loop.operator.block():
        loop.step(impute_finished, kwargs)
    outputs, states = loop.results()
    with contextlib.suppress(NotImplementedError):
        outputs, states = decoder.finalize(outputs, states, loop.lengths)
    if not output_time_major:
        outputs = mapped(batch_and_time_swapped, outputs)
    return (outputs, states, loop.lengths) if return_length else (outputs, states)


class _Loop:
    """The loop of :func:`dynamic_decode`.

    For gradients, the inputs and states of every step are stored in arrays; with ``is_test`` they
    are overwritten.

    Args:
        decoder: the decoder to run.
        inits: passed to ``decoder.initialize``.
        most: largest possible number of the last step.
        is_test: save memory by keeping no values for gradients.
    """

    def __init__(self, decoder: Decoder, inits: Any, most: int | None, is_test: bool) -> None:
        self._decoder = decoder
        self._is_test = is_test
        self._inputs, self._states, self._finished = decoder.initialize(inits)
        self._finished.stop_gradient = True
        self._time = fill_constant(shape=[1], dtype="int64", value=0)
        self._going = logical_not(reduce_all(self._finished))
        self._most = None if most is None else fill_constant([1], dtype="int64", value=most)
        self.operator = While(self._going, is_test=is_test)
        self.lengths = cast(zeros_like(self._finished), "int64")
        self.lengths.stop_gradient = True
        self._outputs: Any = None
        if not is_test:
            self._inputs, self._states = mapped(self._written, [self._inputs, self._states])

    def step(self, impute_finished: bool, kwargs: dict[str, Any]) -> None:
        """One iteration, built in the block of the loop."""
        inputs, states = mapped(self._now, [self._inputs, self._states])
        outputs, next_states, next_inputs, finished = self._decoder.step(
            self._time, inputs, states, **kwargs
        )
        finished = logical_or(finished, self._finished)
        counted = cast(logical_not(self._finished), self.lengths.dtype)
        lengths = elementwise_add(self.lengths, counted)
        if impute_finished:
            next_states = mapped(self._kept, states, next_states)
        self._outputs = mapped(lambda x: _array_around(x.dtype), outputs)
        mapped(lambda x, array: array_write(x, i=self._time, array=array), outputs, self._outputs)
        increment(x=self._time, value=1.0, in_place=True)
        mapped(self._store, [next_inputs, next_states], [self._inputs, self._states])
        assign(finished, self._finished)
        assign(lengths, self.lengths)
        self._decide()

    def results(self) -> tuple[Any, Any]:
        """The outputs of all steps, ``(steps, rows, ...)`` each, and the last states."""
        outputs = mapped(
            lambda array: tensor_array_to_tensor(array, axis=0, use_stack=True)[0], self._outputs
        )
        return outputs, mapped(self._now, self._states)

    def _written(self, x: Variable) -> Variable:
        return array_write(x, self._time)

    def _now(self, var: Variable) -> Variable:
        return var if self._is_test else array_read(var, self._time)

    def _store(self, value: Variable, target: Variable) -> None:
        if self._is_test:
            assign(value, target)
        else:
            array_write(value, i=self._time, array=target)

    def _decide(self) -> None:
        """Compute whether there is another iteration."""
        all_done = reduce_all(self._finished)
        if self._most is None:
            logical_not(all_done, self._going)
        else:
            some_left = logical_not(all_done)
            logical_and(some_left, less_equal(self._time, self._most), self._going)

    def _kept(self, state: Variable, new_state: Variable) -> Variable:
        """The new state of unfinished rows, and the old state of finished ones."""
        kind, mask = state.dtype, self._finished
        if kind == VarType.BOOL:
            state, new_state = cast(state, "float32"), cast(new_state, "float32")
        if mask.dtype != state.dtype:
            mask = cast(mask, dtype=state.dtype)
            mask.stop_gradient = True
        made = elementwise_mul(state, mask, axis=0)
        made = made - elementwise_mul(new_state, (mask - 1), axis=0)
        return cast(made, dtype=kind) if kind == VarType.BOOL else made


def _array_around(dtype: Any) -> Variable:
    """An array in the block that encloses the current one."""
    program = default_main_program()
    inside = program.current_block_idx
    program._rollback()
    made = create_array(dtype)
    program.current_block_idx = inside
    return made
