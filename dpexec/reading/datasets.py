"""``DataLoader.from_dataset``: the batches of a data set of files, as feeds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing

from dpexec.engine.core.places import Place
from dpexec.engine.core.tensors import LoDTensor
from dpexec.reading.dataset_base import DatasetBase

__all__ = ["DatasetLoader"]


class DatasetLoader:
    """Yields the batches of a data set, one for each device, in the order of files and lines.

    Args:
        dataset: a data set made by :class:`dpexec.dataset.DatasetFactory`.
        places: the devices.
        drop_last: drop the last batch if it is smaller.

    Raises:
        AssertionError: ``dataset`` is no such data set.

    Example:
        >>> import pathlib, tempfile
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()), tempfile.TemporaryDirectory() as folder:
        ...     lines = pathlib.Path(folder, "day.txt")
        ...     _ = lines.write_text("2 3 4 1 1")  # a sample: two words, 3 and 4, and one label, 1
        ...     words = fluid.data("words", [None, 1], "int64", lod_level=1)
        ...     label = fluid.data("label", [None, 1], "int64")
        ...     dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
        ...     dataset.set_filelist([str(lines)])
        ...     dataset.set_pipe_command("cat")
        ...     dataset.set_use_var([words, label])
        ...     dataset.set_batch_size(1)
        ...     for (feed,) in fluid.io.DataLoader.from_dataset(dataset, [fluid.CPUPlace()]):
        ...         print(feed["words"].recursive_sequence_lengths(), feed["label"].shape())
        [[2]] [1, 1]
    """

    def __init__(self, dataset: DatasetBase, places: Sequence[Place], drop_last: bool) -> None:
        if not isinstance(dataset, DatasetBase):
            raise AssertionError("dataset must be type of DatasetBase")
        self._dataset = dataset
        self._devices = len(places)
        self._drop_last = drop_last

    def __iter__(self) -> Iterator[list[dict[str, LoDTensor]]]:
        """Iterate over feeds; the last batches are dropped if there are fewer than devices.

        Raises:
            The errors of ``Executor.train_from_dataset`` about the data.
        """
        threads = self._dataset.thread_num
        with closing(self._dataset._feeds(threads, self._drop_last, self._devices)) as batches:
            while len(step := list(itertools.islice(batches, self._devices))) == self._devices:
                yield step

    def __call__(self) -> Iterator[list[dict[str, LoDTensor]]]:
        """The same as ``iter(loader)``."""
        return iter(self)
