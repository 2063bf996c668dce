"""``fluid.evaluator``: metrics of a whole data set that the program accumulates itself.

Deprecated in fluid: ``fluid.metrics`` does the same outside of the program.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec import layers, metrics, unique_name
from dpexec.engine.ir.variable import Variable
from dpexec.framework import Program, program_guard
from dpexec.layer_helper import LayerHelper

__all__ = ["ChunkEvaluator", "DetectionMAP", "EditDistance", "Evaluator"]

Numbers = np.ndarray[Any, Any]


class Evaluator:
    """Base class: accumulates metrics of batches in persistable variables of the program.

    Args:
        name: prefix of the variables' names.
        kwargs: ``main_program`` and ``startup_program``, if not the default ones.

    Attributes:
        states: the variables.
        metrics: the batch's metrics, to be fetched.

    Raises:
        ValueError: the current block is that of a loop or branch.

    Example:
        >>> import dpexec as fluid
        >>> issubclass(fluid.evaluator.ChunkEvaluator, fluid.evaluator.Evaluator)
        True
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        _warn(self, callers=3)
        self.states: list[Variable] = []
        self.metrics: list[Variable] = []
        self.helper = LayerHelper(name, **kwargs)
        if self.helper.main_program.current_block().idx != 0:
            raise ValueError("an evaluator must be made outside of loops and branches")

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Set the variables to 0; required before the first batch.

        Args:
            executor: runs the program that resets the variables.
            reset_program: the program to add the operators to; a new one by default.
        """
        program = Program() if reset_program is None else reset_program
        with program_guard(program):
            for state in self.states:
                var = _same_variable(program, state)
                layers.fill_constant(shape=var.shape, value=0.0, dtype=var.dtype, out=var)
        executor.run(program)

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Numbers, ...]:
        """The metrics over all batches since :meth:`reset`.

        Args:
            executor: fetches the variables.
            eval_program: the program to add the operators to; a new one by default.
        """
        raise NotImplementedError(f"{type(self).__name__}.eval")

    def _create_state(self, suffix: str, dtype: Any, shape: Sequence[int]) -> Variable:
        """A variable to accumulate in."""
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        state = self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=shape)
        self.states.append(state)
        return state

    def _totals(self, executor: Any, program: Program | None) -> list[float]:
        """The numbers in the variables."""
        program = Program() if program is None else program
        with program_guard(program):
            totals = [_same_variable(program, state) for state in self.states]
            fetches = [layers.cast(total, "float64") for total in totals]
        return [value.item() for value in executor.run(program, fetch_list=fetches)]


def _warn(evaluator: object, callers: int) -> None:
    own, level = type(evaluator).__name__, callers + 1
    warnings.warn(f"fluid.evaluator.{own} is deprecated, use fluid.metrics.{own}", stacklevel=level)


def _same_variable(program: Program, var: Variable) -> Variable:
    """A variable of the same name in another program."""
    return program.current_block().create_var(
        name=var.name,
        shape=var.shape,
        dtype=var.dtype,
        type=var.type,
        lod_level=var.lod_level,
        persistable=True,
    )


class ChunkEvaluator(Evaluator):
    """Precision, recall and F1 score of chunks of words, such as names.

    Args:
        input: predicted tags, as for ``layers.chunk_eval``.
        label: the right tags.
        chunk_scheme: ``IOB``, ``IOE``, ``IOBES`` or ``plain``.
        num_chunk_types: kinds of chunks.
        excluded_chunk_types: kinds of chunks that are not counted.

    Source: ``fluid.evaluator.ChunkEvaluator``.

    Raises:
        TypeError: ``input`` or ``label`` is no variable of type int64.

    Example:
        >>> import warnings
        >>> import dpexec as fluid
        >>> with warnings.catch_warnings(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     warnings.simplefilter("ignore")  # deprecated: use fluid.metrics.ChunkEvaluator
        ...     said = fluid.data("said", [None, 1], "int64", lod_level=1)
        ...     label = fluid.data("label", [None, 1], "int64", lod_level=1)
        ...     chunks = fluid.evaluator.ChunkEvaluator(said, label, "IOB", num_chunk_types=3)
        >>> len(chunks.states), len(chunks.metrics)  # precision, recall, F1 score of a batch
        (3, 3)
    """

    def __init__(
        self,
        input: Variable,
        label: Variable,
        chunk_scheme: str,
        num_chunk_types: int,
        excluded_chunk_types: Sequence[int] | None = None,
    ) -> None:
        super().__init__("chunk_eval")
        self.num_infer_chunks = self._create_state("num_infer_chunks", "int64", [1])
        self.num_label_chunks = self._create_state("num_label_chunks", "int64", [1])
        self.num_correct_chunks = self._create_state("num_correct_chunks", "int64", [1])
        *figures, found, there, right = layers.chunk_eval(
            input, label, chunk_scheme, num_chunk_types, excluded_chunk_types
        )
        for state, count in zip(self.states, (found, there, right), strict=True):
            layers.sums(input=[state, count], out=state)
        self.metrics.extend(figures)

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Numbers, ...]:
        """Precision, recall and F1 score over all batches, float32 ``(1,)`` each.

        Args:
            executor: fetches the variables.
            eval_program: the program to add the operators to; a new one by default.
        """
        found, there, right = self._totals(executor, eval_program)
        precision = right / found if found else 0.0
        recall = right / there if there else 0.0
        score = 2 * precision * recall / (precision + recall) if right else 0.0
        return tuple(np.array([figure], np.float32) for figure in (precision, recall, score))


class EditDistance(Evaluator):
    """Mean edit distance of sequences, and the share of sequences with errors.

    Args:
        input: predicted sequences, as for ``layers.edit_distance``.
        label: the right sequences.
        ignored_tokens: tokens that are removed before comparing.
        kwargs: as for :class:`Evaluator`.

    Source: ``fluid.evaluator.EditDistance``.

    Raises:
        TypeError: ``input`` or ``label`` is no variable of type int64.

    Example:
        >>> import warnings
        >>> import dpexec as fluid
        >>> with warnings.catch_warnings(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     warnings.simplefilter("ignore")  # deprecated: use fluid.metrics.EditDistance
        ...     said = fluid.data("said", [None, 1], "int64", lod_level=1)
        ...     label = fluid.data("label", [None, 1], "int64", lod_level=1)
        ...     distance = fluid.evaluator.EditDistance(said, label)
        >>> len(distance.states), len(distance.metrics)
        (3, 2)
    """

    def __init__(
        self,
        input: Variable,
        label: Variable,
        ignored_tokens: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__("edit_distance", **kwargs)
        self.total_distance = self._create_state("total_distance", "float32", [1])
        self.seq_num = self._create_state("seq_num", "int64", [1])
        self.instance_error = self._create_state("instance_error", "int64", [1])
        distances, count = layers.edit_distance(
            input=input, label=label, ignored_tokens=ignored_tokens
        )
        zero = layers.fill_constant(shape=[1], value=0.0, dtype="float32")
        right = layers.reduce_sum(layers.cast(layers.equal(distances, zero), "int64"))
        wrong = layers.elementwise_sub(x=count, y=right)
        total = layers.reduce_sum(distances)
        for state, value in zip(self.states, (total, count, wrong), strict=True):
            layers.sums(input=[state, value], out=state)
        self.metrics.extend([total, wrong])

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Numbers, ...]:
        """Mean distance and share of sequences with errors over all batches, float32 ``(1,)`` each.

        Args:
            executor: fetches the variables.
            eval_program: the program to add the operators to; a new one by default.
        """
        total, count, wrong = self._totals(executor, eval_program)
        with np.errstate(invalid="ignore"):  # without sequences there is no mean
            mean = np.array([total, wrong], np.float32) / np.float32(count)
        return mean[:1], mean[1:]


class DetectionMAP(metrics.DetectionMAP):
    """``fluid.metrics.DetectionMAP`` by its old name. Source: ``fluid.evaluator.DetectionMAP``.

    Args:
        args: as for :class:`~dpexec.metrics.DetectionMAP`.
        kwargs: as for :class:`~dpexec.metrics.DetectionMAP`.

    Example:
        >>> import warnings
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     found = fluid.data("found", [None, 6], lod_level=1)  # label, score, box
        ...     label = fluid.data("label", [None, 1], lod_level=1)
        ...     box = fluid.data("box", [None, 4], lod_level=1)
        ...     with warnings.catch_warnings(action="ignore"):  # it is deprecated
        ...         metric = fluid.evaluator.DetectionMAP(found, label, box, class_num=2)
        ...     of_this_batch, of_all_batches = metric.get_map_var()
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _warn(self, callers=2)
        super().__init__(*args, **kwargs)
