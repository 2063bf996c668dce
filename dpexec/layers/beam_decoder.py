"""``BeamSearchDecoder``: a decoder that performs beam search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpexec.checks import check_type
from dpexec.engine.ir.variable import Variable
from dpexec.layers.cells import RNNCell
from dpexec.layers.comparisons import equal, logical_not, logical_or
from dpexec.layers.constants import fill_constant, fill_constant_batch_size_like, zeros_like
from dpexec.layers.decoders import Decoder
from dpexec.layers.elementwise import (
    elementwise_add,
    elementwise_floordiv,
    elementwise_mod,
    elementwise_mul,
)
from dpexec.layers.indexing import gather_nd
from dpexec.layers.joining import expand, stack
from dpexec.layers.manipulation import reshape, transpose, unsqueeze
from dpexec.layers.manipulation import shape as shape_of
from dpexec.layers.nn import softmax
from dpexec.layers.ops import made as _layers
from dpexec.layers.ordering import topk
from dpexec.layers.ranges import range as numbers
from dpexec.layers.sequences import gather_tree
from dpexec.layers.structures import flat, mapped
from dpexec.layers.tensor import assign, cast

__all__ = ["BeamSearchDecoder"]

_log = _layers["log"]
_LOWEST = 1e9
"""The negative of it is the score of what cannot be."""


class BeamSearchDecoder(Decoder):
    """Beam search: keeps the best sequences of every row; the results are ids, best sequence first.

    The cell gets the beams of all rows as one batch, ``(rows * beam_size, ...)``. Other variables
    that it reads must be repeated with :meth:`tile_beam_merge_with_batch`.

    Args:
        cell: computes scores and states.
        start_token: the id that begins every sequence.
        end_token: the id that ends a sequence.
        beam_size: number of sequences kept per row.
        embedding_fn: turns ids ``(rows, beam_size)`` into inputs, such as ``fluid.embedding``; by
            default the ids are the inputs.
        output_fn: turns the cell's outputs, ``(rows, beam_size, ...)``, into scores of all ids.

    Source: ``fluid.layers.BeamSearchDecoder``.

    See Also:
        :func:`beam_search`: one step of a search.
        :func:`beam_search_decode`: its sentences.
        :func:`dynamic_decode`: a whole search, with a decoder.
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

    class OutputWrapper(NamedTuple):
        """Outputs of a step, ``(rows, beam_size)``."""

        scores: Any
        predicted_ids: Any
        parent_ids: Any

    class StateWrapper(NamedTuple):
        """The state of the sequences after a step, ``(rows, beam_size, ...)``."""

        cell_states: Any
        log_probs: Any
        finished: Any
        lengths: Any

    def __init__(
        self,
        cell: RNNCell,
        start_token: int,
        end_token: int,
        beam_size: int,
        embedding_fn: Callable[[Variable], Any] | None = None,
        output_fn: Callable[[Any], Variable] | None = None,
    ) -> None:
        self.cell = cell
        self.embedding_fn = embedding_fn
        self.output_fn = output_fn
        self.start_token = start_token
        self.end_token = end_token
        self.beam_size = beam_size

    @staticmethod
    def tile_beam_merge_with_batch(x: Variable, beam_size: int) -> Variable:
        """Repeat every row ``beam_size`` times: ``(rows * beam_size, ...)``.

        Args:
            x: ``(rows, ...)``.
            beam_size: number of repetitions.

        Raises:
            TypeError: ``x`` is no variable.
        """
        check_type(x, "x", Variable, "BeamSearchDecoder.tile_beam_merge_with_batch")
        x = _repeated(x, beam_size)
        rank = len(x.shape)
        x = transpose(x, [*range(2, rank), 0, 1])
        x = reshape(x, shape=[0] * (rank - 2) + [-1])
        return transpose(x, [rank - 2, *range(rank - 2)])

    def initialize(self, initial_cell_states: Any) -> tuple[Any, StateWrapper, Variable]:
        """Inputs (start tokens), states, and which sequences are done, bool ``(rows, beam_size)``.

        Only one sequence per row counts at first, since all are equal.

        Args:
            initial_cell_states: initial states of the cell, ``(rows, ...)`` each.
        """
        state = flat(initial_cell_states)[0]
        self.batch_size = shape_of(state)[0]
        self.start_token_tensor = fill_constant(shape=[1], dtype="int64", value=self.start_token)
        self.end_token_tensor = fill_constant(shape=[1], dtype="int64", value=self.end_token)
        cell_states = mapped(lambda x: _repeated(x, self.beam_size), initial_cell_states)
        rows = unsqueeze(expand(self.start_token_tensor, [self.batch_size]), [1])
        inputs = expand(rows, [1, self.beam_size])
        scores = np.array([[0.0] + [-_LOWEST] * (self.beam_size - 1)], "float32")
        log_probs = expand(assign(scores), [self.batch_size, 1])
        finished = fill_constant_batch_size_like(
            input=state, shape=[-1, self.beam_size], dtype="bool", value=False, force_cpu=True
        )
        states = self.StateWrapper(cell_states, log_probs, finished, zeros_like(inputs))
        return self._embedded(inputs), states, finished

    def step(
        self, time: Variable, inputs: Any, states: StateWrapper, **kwargs: Any
    ) -> tuple[OutputWrapper, StateWrapper, Any, Variable]:
        """Outputs of a step; states and inputs of the next one; which sequences are done.

        Args:
            time: number of the step, int64 ``(1,)``.
            inputs: ``(rows, beam_size, ...)``.
            states: states of the sequences.
            kwargs: passed to the cell.
        """
        inputs = mapped(_merged, inputs)
        outputs, cell_states = self.cell(inputs, mapped(_merged, states.cell_states), **kwargs)
        outputs, cell_states = mapped(self._split, outputs), mapped(self._split, cell_states)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        chosen, next_states = self._search(outputs, cell_states, states)
        chosen.predicted_ids.stop_gradient = True
        return chosen, next_states, self._embedded(chosen.predicted_ids), next_states.finished

    def finalize(
        self, outputs: Any, final_states: Any, sequence_lengths: Variable
    ) -> tuple[Variable, Any]:
        """The ids of the sequences, int64 ``(steps, rows, beam_size)``; the states as they are.

        Args:
            outputs: outputs of all steps.
            final_states: states after the last step.
            sequence_lengths: lengths of all sequences.
        """
        return gather_tree(outputs.predicted_ids, outputs.parent_ids), final_states

    def _search(
        self, logits: Variable, cell_states: Any, states: StateWrapper
    ) -> tuple[OutputWrapper, StateWrapper]:
        """The best continuations of the sequences of every row."""
        vocabulary = logits.shape[-1]
        size = fill_constant(shape=[1], dtype="int64", value=vocabulary)
        only_end = [-_LOWEST] * vocabulary
        only_end[self.end_token] = 0.0
        end_scores = assign(np.array(only_end, "float32"))
        scores = self._masked(_log(softmax(logits)), states.finished, end_scores, vocabulary)
        log_probs = elementwise_add(x=scores, y=states.log_probs, axis=0)
        candidates = reshape(log_probs, [-1, self.beam_size * vocabulary])
        best, places = topk(input=candidates, k=self.beam_size)
        parents = elementwise_floordiv(places, size)
        ids = elementwise_mod(places, size)
        log_probs = self._taken(reshape(log_probs, [-1, self.beam_size * vocabulary]), places)
        cell_states = mapped(lambda x: self._taken(x, parents), cell_states)
        finished = self._taken(states.finished, parents)
        lengths = self._taken(states.lengths, parents)
        lengths = lengths + cast(logical_not(finished), states.lengths.dtype)
        finished = logical_or(finished, equal(ids, self.end_token_tensor))
        made = self.StateWrapper(cell_states, log_probs, finished, lengths)
        return self.OutputWrapper(best, ids, parents), made

    def _masked(
        self, scores: Variable, finished: Variable, end_scores: Variable, vocabulary: int
    ) -> Variable:
        """Scores of the next ids; finished sequences can only continue with the end token."""
        finished = cast(finished, dtype=scores.dtype)
        repeated = expand(unsqueeze(finished, [2]), [1, 1, vocabulary])
        ended = elementwise_mul(repeated, end_scores, axis=-1)
        return ended - elementwise_mul(scores, (finished - 1), axis=0)

    def _taken(self, x: Variable, indices: Variable) -> Variable:
        """``x[row, indices[row, beam]]`` for every row and beam."""
        rows = self.batch_size
        if rows.dtype != indices.dtype:
            rows = cast(rows, indices.dtype)
        rows.stop_gradient = True
        row = expand(unsqueeze(numbers(0, rows, 1, dtype=indices.dtype), [1]), [1, self.beam_size])
        places = stack([row, indices], axis=2)
        places.stop_gradient = True
        return gather_nd(x, places)

    def _embedded(self, ids: Variable) -> Any:
        return self.embedding_fn(ids) if self.embedding_fn is not None else ids

    def _split(self, x: Variable) -> Variable:
        """``(rows * beam_size, ...)`` as ``(rows, beam_size, ...)``."""
        return reshape(x, shape=[-1, self.beam_size, *x.shape[1:]])


def _merged(x: Variable) -> Variable:
    """``(rows, beam_size, ...)`` as ``(rows * beam_size, ...)``."""
    return reshape(x, shape=[-1, *x.shape[2:]])


def _repeated(x: Variable, beam_size: int) -> Variable:
    """``(rows, ...)`` as ``(rows, beam_size, ...)``."""
    x = unsqueeze(x, [1])
    return expand(x, [1, beam_size, *[1] * (len(x.shape) - 2)])
