"""Metrics of sequences: chunks, and edit distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.metrics.base import MetricBase, is_number, require_arrays, require_numbers

__all__ = ["ChunkEvaluator", "EditDistance"]


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 score of chunks, from the counts of ``layers.chunk_eval``.

    Args:
        name: None takes the name of the class.

    Source: ``fluid.metrics.ChunkEvaluator``.

    See Also:
        :class:`~dpexec.metrics.EditDistance`: sequences.

    Example:
        >>> import dpexec as fluid
        >>> metric = fluid.metrics.ChunkEvaluator()
        >>> metric.update(num_infer_chunks=4, num_label_chunks=5, num_correct_chunks=2)
        >>> [round(value, 4) for value in metric.eval()]  # precision, recall, F1
        [0.5, 0.4, 0.4444]
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.num_infer_chunks: Any = 0
        self.num_label_chunks: Any = 0
        self.num_correct_chunks: Any = 0

    def update(  # type: ignore[override]
        self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any
    ) -> None:
        """Add the counts of a batch, numbers or arrays of one element.

        Raises:
            ValueError: an argument is neither.
        """
        require_numbers(
            num_infer_chunks=num_infer_chunks,
            num_label_chunks=num_label_chunks,
            num_correct_chunks=num_correct_chunks,
        )
        self.num_infer_chunks = self.num_infer_chunks + num_infer_chunks
        self.num_label_chunks = self.num_label_chunks + num_label_chunks
        self.num_correct_chunks = self.num_correct_chunks + num_correct_chunks

    def eval(self) -> tuple[Any, Any, Any]:
        """Return (precision, recall, F1 score); 0 where there is nothing to divide by.

        They are floats, or arrays of shape ``(1,)`` if the counts are, as fetched counts are.
        """
        correct = np.asarray(self.num_correct_chunks).item()
        precision = correct / self.num_infer_chunks if self.num_infer_chunks else 0
        recall = correct / self.num_label_chunks if self.num_label_chunks else 0
        both = np.asarray(2 * precision * recall).item()
        return precision, recall, both / (precision + recall) if correct else 0


class EditDistance(MetricBase):
    """The mean edit distance, and the share of sequences with errors.

    Args:
        name: None takes the name of the class.

    Source: ``fluid.metrics.EditDistance``.

    See Also:
        :class:`~dpexec.metrics.ChunkEvaluator`: chunks of tags.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> metric = fluid.metrics.EditDistance("distance")
        >>> metric.update(np.array([[0.0], [2.0]]), seq_num=2)
        >>> [float(value) for value in metric.eval()]
        [1.0, 0.5]
    """

    def __init__(self, name: str | None) -> None:
        super().__init__(name)
        self.total_distance: Any = 0.0
        self.seq_num: Any = 0
        self.instance_error: Any = 0

    def update(self, distances: Any, seq_num: Any) -> None:
        """Add a batch.

        Args:
            distances: an array of shape ``(batch, 1)``.
            seq_num: number of sequences in the batch.

        Raises:
            ValueError: an argument has the wrong type.
        """
        require_arrays(distances=distances)
        if not is_number(seq_num):
            raise ValueError("The 'seq_num' must be a number(int, float).")
        self.seq_num = self.seq_num + seq_num
        self.instance_error = self.instance_error + seq_num - int(np.sum(distances == 0))
        self.total_distance = self.total_distance + float(np.sum(distances))

    def eval(self) -> tuple[Any, Any]:
        """Return (mean distance, share of sequences with a distance other than 0).

        Raises:
            ValueError: nothing was added.
        """
        if self.seq_num == 0:
            raise ValueError(
                "There is no data in EditDistance Metric. Please check that the output of "
                "layers.edit_distance was added to it."
            )
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num
