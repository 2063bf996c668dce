"""Helpers of ``BasicDecoder``: they choose the ids of a step and the inputs of the next step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpexec.checks import check_type
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.layers.comparisons import equal, less_equal
from dpexec.layers.constants import fill_constant, fill_constant_batch_size_like
from dpexec.layers.indexing import slice as slice_of
from dpexec.layers.manipulation import squeeze
from dpexec.layers.nn import softmax
from dpexec.layers.ordering import argmax
from dpexec.layers.padding import pad
from dpexec.layers.random import sampling_id
from dpexec.layers.structures import mapped
from dpexec.layers.tensor import cast

__all__ = [
    "DecodeHelper",
    "GreedyEmbeddingHelper",
    "SampleEmbeddingHelper",
    "TrainingHelper",
]


class DecodeHelper:
    """Base class: chooses the ids of a step and the inputs of the next step.

    Source: ``fluid.layers.DecodeHelper``.

    Example:
        >>> import dpexec as fluid
        >>> class Best(fluid.layers.DecodeHelper):
        ...     def sample(self, time, outputs, states):
        ...         return fluid.layers.argmax(outputs, axis=-1)
        >>> with fluid.program_guard(fluid.Program()):
        ...     print(Best().sample(None, fluid.data("scores", [4, 100]), None).shape)
        (4,)
    """

    def initialize(self) -> tuple[Any, Variable]:
        """Inputs of the first step, and which rows are done before it, bool ``(rows,)``."""
        raise NotImplementedError

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """Choose the ids of a step, int64 ``(rows,)``.

        Args:
            time: number of the step, int64 ``(1,)``.
            outputs: scores of all ids, ``(rows, ids)``.
            states: states of the cell.
        """
        raise NotImplementedError

    def next_inputs(
        self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable
    ) -> tuple[Variable, Any, Any]:
        """Which rows are done, bool ``(rows,)``, and the inputs and states of the next step.

        Args:
            time: number of the step, int64 ``(1,)``.
            outputs: scores of all ids, ``(rows, ids)``.
            states: states of the cell.
            sample_ids: from :meth:`sample`.
        """
        raise NotImplementedError


class _HighestScore(DecodeHelper):
    """Chooses the id with the highest score."""

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """The ids of the highest scores, int64 ``(rows,)``.

        Args:
            time: number of the step, int64 ``(1,)``.
            outputs: scores of all ids, ``(rows, ids)``.
            states: states of the cell.
        """
        return argmax(outputs, axis=-1)


class TrainingHelper(_HighestScore):
    """Teacher forcing: the inputs of all steps are the sequences to learn.

    Args:
        inputs: ``(rows, steps, ...)``, or a structure of such variables.
        sequence_length: ``(rows,)``: number of steps of each row.
        time_major: whether the inputs have the layout ``(steps, rows, ...)``.

    Source: ``fluid.layers.TrainingHelper``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [4, 10, 8])
        ...     helper = fluid.layers.TrainingHelper(words, fluid.data("lengths", [4], "int64"))
        ...     inputs, finished = helper.initialize()
        ...     print(inputs.shape, finished.shape)  # the first step of every row
        (4, 8) (4,)
    """

    def __init__(self, inputs: Any, sequence_length: Variable, time_major: bool = False) -> None:
        self.inputs = inputs
        self.sequence_length = sequence_length
        self.time_major = time_major
        self.inputs_ = mapped(self._with_another_step, inputs)
        """There is always a next step, also after the last one."""

    def _with_another_step(self, x: Variable) -> Variable:
        before = [] if self.time_major else [0, 0]
        behind = [0, 0] * (len(x.shape) - 1 - len(before) // 2)
        return pad(x, paddings=[*before, 0, 1, *behind])

    def initialize(self) -> tuple[Any, Variable]:
        """Inputs of the first step, and which rows have no steps, bool ``(rows,)``."""
        none = fill_constant(shape=[1], dtype=self.sequence_length.dtype, value=0)
        finished = equal(self.sequence_length, none)
        return mapped(lambda x: x[0] if self.time_major else x[:, 0], self.inputs), finished

    def next_inputs(
        self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable
    ) -> tuple[Variable, Any, Any]:
        """Which rows are done, bool ``(rows,)``, the inputs of the next step, and the states.

        Args:
            time: number of the step, int64 ``(1,)``.
            outputs: scores of all ids, ``(rows, ids)``.
            states: states of the cell.
            sample_ids: from :meth:`sample`.
        """
        if time.dtype != VarType.INT32:
            time = cast(time, "int32")
        if self.sequence_length.dtype != time.dtype:
            self.sequence_length = cast(self.sequence_length, time.dtype)
        next_time = time + 1
        finished = less_equal(self.sequence_length, next_time)
        axes = [0 if self.time_major else 1]

        def next_slice(x: Variable) -> Variable:
            found = slice_of(x, axes=axes, starts=[next_time], ends=[next_time + 1])
            return squeeze(found, axes=axes)

        return finished, mapped(next_slice, self.inputs_), states


class GreedyEmbeddingHelper(_HighestScore):
    """Greedy decoding: the next input is the embedding of the id with the highest score.

    Args:
        embedding_fn: turns ids ``(rows,)`` into inputs, such as ``fluid.embedding``.
        start_tokens: the first ids, int64 ``(rows,)``.
        end_token: the id that ends a row.

    Raises:
        TypeError: ``start_tokens`` is no variable.

    Source: ``fluid.layers.GreedyEmbeddingHelper``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     start = fluid.layers.fill_constant([4], "int64", 0)
        ...     def embedding(ids):
        ...         return fluid.embedding(ids, size=[100, 8], param_attr="words")
        ...     helper = fluid.layers.GreedyEmbeddingHelper(embedding, start, end_token=1)
        ...     inputs, finished = helper.initialize()
        ...     print(inputs.shape, finished.shape)  # the embeddings of the start tokens
        (4, 8) (4,)
    """

    def __init__(
        self,
        embedding_fn: Callable[[Variable], Any],
        start_tokens: Variable,
        end_token: int,
    ) -> None:
        check_type(start_tokens, "start_tokens", Variable, type(self).__name__)
        self.embedding_fn = embedding_fn
        self.start_tokens = start_tokens
        self.end_token = fill_constant(shape=[1], dtype="int64", value=end_token)

    def initialize(self) -> tuple[Any, Variable]:
        """Inputs of the first step, and which rows are done (none), bool ``(rows,)``."""
        finished = fill_constant_batch_size_like(
            input=self.start_tokens, shape=[-1], dtype="bool", value=False, force_cpu=True
        )
        return self.embedding_fn(self.start_tokens), finished

    def next_inputs(
        self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable
    ) -> tuple[Variable, Any, Any]:
        """Which rows are done, bool ``(rows,)``, the embedded ids as inputs, and the states.

        Args:
            time: number of the step, int64 ``(1,)``.
            outputs: scores of all ids, ``(rows, ids)``.
            states: states of the cell.
            sample_ids: from :meth:`sample`.
        """
        return equal(sample_ids, self.end_token), self.embedding_fn(sample_ids), states


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Sampling: the next id is drawn with the probabilities ``softmax(scores / temperature)``.

    Args:
        embedding_fn: turns ids ``(rows,)`` into inputs, such as ``fluid.embedding``.
        start_tokens: the first ids, int64 ``(rows,)``.
        end_token: the id that ends a row.
        softmax_temperature: above 0; higher values are more random. 1 by default.
        seed: makes every run draw the same numbers; by default each run draws new ones.

    Source: ``fluid.layers.SampleEmbeddingHelper``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     start = fluid.layers.fill_constant([4], "int64", 0)
        ...     def embedding(ids):
        ...         return fluid.embedding(ids, size=[100, 8], param_attr="words")
        ...     helper = fluid.layers.SampleEmbeddingHelper(
        ...         embedding, start, end_token=1, softmax_temperature=0.5, seed=7
        ...     )
        ...     scores = fluid.data("scores", [4, 100])
        ...     print(helper.sample(None, scores, None).shape)  # an id for every row
        (4,)
    """

    def __init__(
        self,
        embedding_fn: Callable[[Variable], Any],
        start_tokens: Variable,
        end_token: int,
        softmax_temperature: float | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding_fn, start_tokens, end_token)
        self.softmax_temperature = (
            None
            if softmax_temperature is None
            else fill_constant(shape=[1], dtype="float32", value=softmax_temperature)
        )
        self.seed = seed

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """Draw the ids of a step, int64 ``(rows,)``.

        Args:
            time: number of the step, int64 ``(1,)``.
            outputs: scores of all ids, ``(rows, ids)``.
            states: states of the cell.
        """
        scores = outputs
        if self.softmax_temperature is not None:
            scores = outputs / self.softmax_temperature
        probabilities = softmax(scores)
        probabilities.stop_gradient = True
        kind = self.start_tokens.dtype
        return sampling_id(probabilities, seed=self.seed, dtype=kind)  # type: ignore[arg-type]
