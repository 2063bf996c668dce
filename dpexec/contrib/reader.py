"""``fluid.contrib.reader``: batches for the trainers of a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

__all__ = ["distributed_batch_reader"]


def distributed_batch_reader(
    batch_reader: Callable[[], Iterator[Any]],
) -> Callable[[], Iterator[Any]]:
    """Distribute batches over the trainers: each gets one of every ``trainers`` batches.

    PADDLE_TRAINERS_NUM (1) and PADDLE_TRAINER_ID (0) identify the trainer, as set by ``dpexec run
    --trainers N``. The last batches are dropped if there are fewer than trainers.

    Args:
        batch_reader: reader of all batches.

    Returns:
        A reader of the batches of this trainer.

    Raises:
        ValueError: the trainer's id is not below the number of trainers.

    Example:
        >>> import os
        >>> from unittest import mock
        >>> from dpexec.contrib.reader import distributed_batch_reader
        >>> job = {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "2"}
        >>> with mock.patch.dict(os.environ, job):
        ...     mine = distributed_batch_reader(lambda: iter([["a"], ["b"], ["c"], ["d"]]))
        ...     list(mine())
        [['b'], ['d']]
    """
    trainers = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    trainer = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    if not 0 <= trainer < trainers:
        raise ValueError(f"PADDLE_TRAINER_ID is {trainer}, but PADDLE_TRAINERS_NUM {trainers}")

    def reader() -> Iterator[Any]:
        batches = iter(batch_reader())
        while len(group := list(islice(batches, trainers))) == trainers:
            yield group[trainer]

    return reader


__path__: list[str] = []  # imports look for it
distributed_reader = sys.modules[__name__]  # fluid's name of the module
