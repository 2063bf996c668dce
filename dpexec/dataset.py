"""``fluid.dataset``: data sets of text files, for ``Executor.train_from_dataset``."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from dpexec.reading.dataset_base import DatasetBase
from dpexec.reading.multislot import Sample, without_zeros
from dpexec.reading.prefetch import Prefetch

__all__ = [
    "DatasetBase",
    "DatasetFactory",
    "FileInstantDataset",
    "InMemoryDataset",
    "QueueDataset",
]


class DatasetFactory:
    """Creates data sets by class name.

    Example:
        >>> import dpexec as fluid
        >>> dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
        >>> dataset.set_filelist(["day-1.txt", "day-2.txt"])
        >>> dataset.set_batch_size(128)
        >>> dataset.filelist
        ['day-1.txt', 'day-2.txt']
    """

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> DatasetBase:
        """Make a data set.

        Args:
            datafeed_class: ``"QueueDataset"`` and ``"FileInstantDataset"`` read files during
                training, ``"InMemoryDataset"`` before it, which allows shuffling.

        Raises:
            ValueError: there is no such class.
        """
        classes = {kind.__name__: kind for kind in _CLASSES}
        if datafeed_class not in classes:
            raise ValueError(
                f"datafeed class {datafeed_class} does not exist: dpexec has {', '.join(classes)}"
            )
        return classes[datafeed_class]()


class QueueDataset(DatasetBase):
    """Reads files during training.

    Example:
        >>> import dpexec as fluid
        >>> dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
        >>> dataset.set_thread(2)  # read two files at the same time
        >>> dataset.thread_num
        2
    """

    def local_shuffle(self) -> None:
        """Not supported, as in the original.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not support local shuffle, please use InMemoryDataset "
            "for local_shuffle"
        )

    def global_shuffle(self, fleet: Any = None) -> None:
        """Not supported, as in the original.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not support global shuffle, please use InMemoryDataset "
            "for global_shuffle"
        )


class FileInstantDataset(QueueDataset):
    """Another name of :class:`QueueDataset`, for pipelines; both read files alike here.

    Example:
        >>> import dpexec as fluid
        >>> dataset = fluid.DatasetFactory().create_dataset("FileInstantDataset")
        >>> dataset.set_batch_size(128)
    """

    _feed = "MultiSlotFileInstantDataFeed"


class InMemoryDataset(DatasetBase):
    """Reads files before training; can shuffle their samples with Python's global ``random``.

    As in fluid, zeros in sequences are dropped, see :func:`without_zeros`.

    Example:
        >>> import pathlib, tempfile
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()), tempfile.TemporaryDirectory() as folder:
        ...     lines = pathlib.Path(folder, "day.txt")
        ...     _ = lines.write_text("2 3 4 1 1")  # a sample: two words, 3 and 4, and one label, 1
        ...     words = fluid.data("words", [None, 1], "int64", lod_level=1)
        ...     label = fluid.data("label", [None, 1], "int64")
        ...     dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
        ...     dataset.set_filelist([str(lines)])
        ...     dataset.set_pipe_command("cat")
        ...     dataset.set_use_var([words, label])
        ...     dataset.set_batch_size(2)
        ...     dataset.load_into_memory()
        ...     dataset.local_shuffle()
        ...     dataset.get_memory_data_size()
        1
    """

    _feed = "MultiSlotInMemoryDataFeed"

    def __init__(self) -> None:
        super().__init__()
        self._memory: list[Sample] | None = None
        self._shuffled = False
        self._preload: Prefetch | None = None
        self._candidates: int | None = None
        self._before_slots: list[Sample] | None = None

    def set_queue_num(self, queue_num: int) -> None:
        """Ignored; in fluid it sets the number of queues that samples are divided into."""

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Ignored; in fluid it sets how many samples trainers exchange at a time."""

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int = 0) -> None:
        """Ignored; in fluid it sets how long trainers wait between exchanges."""

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:
        """Allow :meth:`slots_shuffle`.

        Args:
            record_candidate_size: number of samples from which shuffled values are drawn.
            fea_eval: False forbids it again.

        Raises:
            ValueError: record_candidate_size is not positive.
        """
        if record_candidate_size < 1:
            raise ValueError(
                f"record_candidate_size must be positive, but received {record_candidate_size}"
            )
        self._candidates = record_candidate_size if fea_eval else None

    # ---- memory

    def load_into_memory(self) -> None:
        """Read all files.

        Raises:
            EnforceNotMet: a pipe command failed, or a line does not fit the variables.
            OSError: a file cannot be read.
            ValueError: there are no files or variables.
        """
        self._keep(self._loaded(self.thread_num))

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Start reading all files in the background; :meth:`wait_preload_done` waits for the end.

        Args:
            thread_num: number of files read at the same time; None takes the number of
                :meth:`set_thread`.
        """
        threads = self.thread_num if thread_num is None else thread_num
        self._preload = Prefetch(lambda: [self._loaded(threads)], 1, name="dpexec-preload")

    def wait_preload_done(self) -> None:
        """Wait until the reading that :meth:`preload_into_memory` started has ended.

        Raises:
            RuntimeError: nothing was started. Also the errors of :meth:`load_into_memory`.
        """
        if self._preload is None:
            raise RuntimeError("nothing is being loaded: call preload_into_memory first")
        preload, self._preload = self._preload, None
        try:
            self._keep(next(preload))
        finally:
            preload.close()

    def release_memory(self) -> None:
        """Release the samples in memory."""
        self._memory = self._before_slots = None
        self._shuffled = False

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """Number of samples in memory.

        Args:
            fleet: None, or a fleet with one trainer.

        Raises:
            NotImplementedError: the fleet has several trainers.
        """
        _refuse_trainers(fleet, "get_memory_data_size")
        return len(self._memory or ())

    def get_shuffle_data_size(self, fleet: Any = None) -> int:
        """Number of samples in memory that were shuffled; arguments as above."""
        _refuse_trainers(fleet, "get_shuffle_data_size")
        return len(self._memory or ()) if self._shuffled else 0

    def _loaded(self, threads: int) -> list[Sample]:
        return list(super()._samples(threads))

    def _keep(self, samples: list[Sample]) -> None:
        self.release_memory()
        self._memory = samples

    def _samples(self, threads: int) -> Iterator[Sample]:
        return iter(self._in_memory())

    def _read(self, path: str) -> Iterator[Sample]:
        for sample in super()._read(path):
            yield without_zeros(sample, self._slots)

    def _in_memory(self) -> list[Sample]:
        if self._memory is None:
            raise RuntimeError("the data set holds nothing: call load_into_memory first")
        return self._memory

    # ---- shuffling

    def local_shuffle(self) -> None:
        """Shuffle the samples in memory.

        Raises:
            RuntimeError: nothing was loaded.
        """
        random.shuffle(self._in_memory())
        self._before_slots = None
        self._shuffled = True

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Shuffle among all trainers; the same as :meth:`local_shuffle`, as only one is supported.

        Args:
            fleet: the trainers; None for this process alone.
            thread_num: ignored; accepted for compatibility.

        Raises:
            NotImplementedError: there are several trainers.
            RuntimeError: nothing was loaded.
        """
        _refuse_trainers(fleet, "global_shuffle")
        self.local_shuffle()

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Replace values of slots by other samples' values, to measure the slots' importance.

        The values are drawn from as many samples as :meth:`set_fea_eval` sets. Slots shuffled by an
        earlier call get their own values back, unless samples were shuffled in between.

        Args:
            slots: names of variables.

        Raises:
            RuntimeError: :meth:`set_fea_eval` was not called, or nothing was loaded.
            ValueError: the data set has no such slot.
        """
        if self._candidates is None:
            raise RuntimeError("slots_shuffle needs set_fea_eval(record_candidate_size, True)")
        names = [slot.name for slot in self._slots]
        for name in slots:
            if name not in names:
                raise ValueError(f"no slot {name!r}: the data set has {', '.join(names)}")
        if self._before_slots is None:
            self._before_slots = self._in_memory()
        before = self._before_slots
        candidates = random.sample(before, min(len(before), self._candidates))
        self._memory = [
            tuple(
                taken if name in slots else own
                for name, own, taken in zip(names, sample, random.choice(candidates), strict=True)
            )
            for sample in before
        ]


_CLASSES = (QueueDataset, InMemoryDataset, FileInstantDataset)


def _refuse_trainers(fleet: Any, what: str) -> None:
    """Raise an error if there are several trainers: they cannot exchange samples."""
    if fleet is not None and fleet.worker_num() > 1:
        raise NotImplementedError(
            f"{what} over {fleet.worker_num()} trainers is not supported: trainers exchange "
            "gradients, but no samples; give each its part of the files, and use local_shuffle"
        )
