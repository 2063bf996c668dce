"""``fluid.dataset``: text files that ``Executor.train_from_dataset`` goes through."""

from __future__ import annotations

import itertools
import random
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NoReturn

from dpexec.compat.absent import KNOWN
from dpexec.data_feed_desc import FeedDescription, SlotDescription
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.feeds.coming import hand_out
from dpexec.engine.ir.variable import Variable
from dpexec.reading.multislot import Sample, Slot, feed_of, parse, without_zeros
from dpexec.reading.piped_files import items_of_files, lines_of
from dpexec.reading.prefetch import Prefetch

__all__ = [
    "DatasetBase",
    "DatasetFactory",
    "FileInstantDataset",
    "InMemoryDataset",
    "QueueDataset",
]

_DEFAULT_BATCH_SIZE = 32
_BATCHES_AHEAD = 4


class DatasetFactory:
    """Makes data sets by the name of their class."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> DatasetBase:
        """Make a data set.

        Args:
            datafeed_class: ``"QueueDataset"`` and ``"FileInstantDataset"`` read files while they
                are needed, ``"InMemoryDataset"`` before, so that it can shuffle.

        Raises:
            ValueError: no such class.
        """
        classes = {kind.__name__: kind for kind in _CLASSES}
        if datafeed_class not in classes:
            raise ValueError(
                f"datafeed class {datafeed_class} does not exist: dpexec has {', '.join(classes)}"
            )
        return classes[datafeed_class]()


class DatasetBase:
    """Text files, the command that they go through, and the variables that get their values.

    Batches come in the order of files and lines, whatever the number of threads; in the original
    each thread has a file, and trains on its own.

    Attributes:
        filelist: the files.
        thread_num: files that are read at once.
    """

    _feed = "MultiSlotDataFeed"

    def __getattr__(self, name: str) -> NoReturn:
        kind = type(self).__name__
        if name in KNOWN:
            raise AttributeError(f"{kind}.{name} is not supported by dpexec: {KNOWN[name]}")
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    def __init__(self) -> None:
        self._description = FeedDescription(name=self._feed)
        self._slots: list[Slot] = []
        self.filelist: list[str] = []
        self._listed = False
        self.thread_num = 1

    def set_pipe_command(self, pipe_command: str) -> None:
        """Say which command of the shell gets each file as input, and writes the samples."""
        self._description.pipe_command = pipe_command

    def set_batch_size(self, batch_size: int) -> None:
        """Say how many samples a batch has; the last one may have fewer.

        Raises:
            ValueError: it is not positive.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive, but received {batch_size}")
        self._description.batch_size = batch_size

    def set_thread(self, thread_num: int) -> None:
        """Say how many files are read at once."""
        self.thread_num = thread_num

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Say which files there are; of several trainers some may get none.

        Raises:
            TypeError: one name instead of a list.
        """
        if isinstance(filelist, str):
            raise TypeError(f"filelist must be a list of files, but received {filelist!r}")
        self.filelist, self._listed = list(filelist), True

    def set_use_var(self, var_list: Sequence[Variable]) -> None:
        """Say which variables get the slots of a line, in order.

        Raises:
            ValueError: a variable is neither float32 nor int64, or holds sequences of sequences.
        """
        slots = [Slot.of(var) for var in var_list]
        self._slots += slots
        self._description.slots += [SlotDescription.of(slot) for slot in slots]

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Not supported.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "files of HDFS are not read: list local files, for example of a mounted HDFS, or local "
            "lists of names that the pipe command turns into data (hadoop fs -cat)"
        )

    def desc(self) -> str:
        """The description as the text of a protobuf message ``DataFeedDesc``."""
        return str(self._description)

    def _feeds(
        self, threads: int, drop_last: bool = False, devices: int = 1
    ) -> Generator[dict[str, LoDTensor], None, None]:
        """The batches, made in a thread, with up to ``threads`` files read at once.

        So many as there are ``devices`` are fed together.
        """
        batches = partial(self._batches, threads, drop_last)
        ahead = Prefetch(batches, _BATCHES_AHEAD, name="dpexec-batches")
        try:
            for number, batch in enumerate(ahead):
                hand_out(batch, ahead, number % devices, devices)
                yield batch
        finally:
            ahead.close()

    def _batches(self, threads: int, drop_last: bool) -> Iterator[dict[str, LoDTensor]]:
        samples = self._samples(threads)
        size = self._description.batch_size or _DEFAULT_BATCH_SIZE
        while batch := list(itertools.islice(samples, size)):
            if len(batch) == size or not drop_last:
                yield feed_of(batch, self._slots)

    def _samples(self, threads: int) -> Iterator[Sample]:
        """What files hold."""
        if not self._slots:
            raise ValueError("the data set has no variables: call set_use_var")
        if not self._listed:
            raise ValueError("the data set has no files: call set_filelist")
        return items_of_files(self._read, self.filelist, threads)

    def _read(self, path: str) -> Iterator[Sample]:
        """What a file holds."""
        command = self._description.pipe_command
        with closing(lines_of(path, command)) as lines:
            for number, line in enumerate(lines, 1):
                try:
                    sample = parse(line, self._slots)
                except EnforceNotMet as error:
                    raise EnforceNotMet(
                        f"{path}, line {number} of what {command!r} makes of it: {error}\n"
                        f"  {line.rstrip()[:200]}"
                    ) from None
                yield sample


class QueueDataset(DatasetBase):
    """Reads files while they are trained on."""

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
    """Another name of :class:`QueueDataset`, for pipelines: files are read alike here."""

    _feed = "MultiSlotFileInstantDataFeed"


class InMemoryDataset(DatasetBase):
    """Reads files before training, and can shuffle what they hold by Python's global ``random``.

    As in the original zeros in sequences are left out, see :func:`without_zeros`.
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
        """Accepted for fluid's sake: there it says into how many queues samples are divided."""

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Accepted for fluid's sake: there it says how many samples trainers exchange at once."""

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int = 0) -> None:
        """Accepted for fluid's sake: there it says how long trainers wait between exchanges."""

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:
        """Allow :meth:`slots_shuffle`.

        Args:
            record_candidate_size: samples that others take values from.
            fea_eval: False forbids it again.

        Raises:
            ValueError: there are no such samples.
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
        """Begin to read all files in the background; :meth:`wait_preload_done` ends it.

        Args:
            thread_num: files that are read at once; None takes the number of :meth:`set_thread`.
        """
        threads = self.thread_num if thread_num is None else thread_num
        self._preload = Prefetch(lambda: [self._loaded(threads)], 1, name="dpexec-preload")

    def wait_preload_done(self) -> None:
        """Wait for what :meth:`preload_into_memory` began.

        Raises:
            RuntimeError: it began nothing; else what :meth:`load_into_memory` raises.
        """
        if self._preload is None:
            raise RuntimeError("nothing is being loaded: call preload_into_memory first")
        preload, self._preload = self._preload, None
        try:
            self._keep(next(preload))
        finally:
            preload.close()

    def release_memory(self) -> None:
        """Forget what was read."""
        self._memory = self._before_slots = None
        self._shuffled = False

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """Number of samples in memory.

        Args:
            fleet: accepted where it has one trainer.

        Raises:
            NotImplementedError: there are more.
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
        """Shuffle what is in memory.

        Raises:
            RuntimeError: nothing was loaded.
        """
        random.shuffle(self._in_memory())
        self._before_slots = None
        self._shuffled = True

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Shuffle among all trainers; with one that is :meth:`local_shuffle`.

        Args:
            fleet: who trains; None: this process alone.
            thread_num: accepted for fluid's sake.

        Raises:
            NotImplementedError: there are several trainers.
            RuntimeError: nothing was loaded.
        """
        _refuse_trainers(fleet, "global_shuffle")
        self.local_shuffle()

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Give every sample the values of another one in some slots, to see what these are worth.

        The others are drawn from as many samples as :meth:`set_fea_eval` says. Slots of an earlier
        call have their own values again, unless samples were shuffled in between.

        Args:
            slots: names of variables.

        Raises:
            RuntimeError: it was not allowed, or nothing was loaded.
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
    """Several trainers have no way to exchange samples."""
    if fleet is not None and fleet.worker_num() > 1:
        raise NotImplementedError(
            f"{what} over {fleet.worker_num()} trainers is not supported: trainers exchange "
            "gradients, but no samples; give each its part of the files, and use local_shuffle"
        )
