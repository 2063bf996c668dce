"""What all data sets of text files have in common: files, a pipe command, variables, batches."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import NoReturn

from dpexec.compat.absent import KNOWN
from dpexec.data_feed_desc import FeedDescription, SlotDescription
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.feeds.coming import hand_out
from dpexec.engine.graph.lod_readers import read_by_operators
from dpexec.engine.ir.variable import Variable
from dpexec.reading.multislot import Sample, Slot, feed_of, parse
from dpexec.reading.piped_files import items_of_files, lines_of
from dpexec.reading.prefetch import Prefetch

__all__ = ["DatasetBase"]

_DEFAULT_BATCH_SIZE = 32
_BATCHES_AHEAD = 4


class DatasetBase:
    """Text files, the pipe command that parses them, and the variables that they feed.

    Batches come in the order of files and lines for any number of threads. In fluid each thread
    reads its own files and trains on its own.

    Attributes:
        filelist: the files.
        thread_num: number of files read at the same time.

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
        ...     dataset.set_batch_size(2)
        ...     counted = fluid.layers.reduce_sum(label)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     exe.infer_from_dataset(
        ...         dataset=dataset, fetch_list=[counted], fetch_info=["labels"], print_period=1
        ...     )  # doctest: +ELLIPSIS
        labels...data: [1]...
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
        self._vars: list[Variable] = []
        self.filelist: list[str] = []
        self._listed = False
        self.thread_num = 1

    def set_pipe_command(self, pipe_command: str) -> None:
        """Set the shell command that reads each file from its input and writes the samples."""
        self._description.pipe_command = pipe_command

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of samples per batch; the last batch may have fewer.

        Raises:
            ValueError: the number is not positive.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive, but received {batch_size}")
        self._description.batch_size = batch_size

    def set_thread(self, thread_num: int) -> None:
        """Set the number of files read at the same time."""
        self.thread_num = thread_num

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the files; with several trainers, the list of a trainer may be empty.

        Raises:
            TypeError: the argument is a single name instead of a list.
        """
        if isinstance(filelist, str):
            raise TypeError(f"filelist must be a list of files, but received {filelist!r}")
        self.filelist, self._listed = list(filelist), True

    def set_use_var(self, var_list: Sequence[Variable]) -> None:
        """Set the variables that the slots of a line feed, in order.

        Raises:
            ValueError: a variable is neither float32 nor int64, or holds sequences of sequences.
        """
        slots = [Slot.of(var) for var in var_list]
        self._slots += slots
        self._vars += var_list
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

        One batch per device of ``devices`` is fed at a time.
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
        samples, slots = self._samples(threads), self._fed_slots()
        size = self._description.batch_size or _DEFAULT_BATCH_SIZE
        while batch := list(itertools.islice(samples, size)):
            if len(batch) == size or not drop_last:
                yield feed_of(batch, slots)

    def _fed_slots(self) -> list[Slot]:
        """The slots; dense ones of single numbers have sequences if an operator reads them.

        Paddle gives every dense slot offsets, which count numbers. So they fit the rows, each
        of which is a sequence, if rows are single numbers.
        """
        single = [v for v, s in zip(self._vars, self._slots, strict=True) if s.row == (1,)]
        read: set[str] = set()
        for program in {var.block.program for var in single if var.lod_level == 0}:
            read |= read_by_operators(program, [v.name for v in single])
        return [slot._replace(sequences=slot.dense and slot.name in read) for slot in self._slots]

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
