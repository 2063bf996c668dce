"""Locating and downloading the files of data sets. Source: paddle.dataset.common."""

import glob
import hashlib
import os
import pickle
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tqdm.auto import tqdm

from dpexec.reading.decorators import Reader

__all__ = ["DATA_HOME", "cluster_files_reader", "download", "md5file", "split"]

DATA_HOME = str(Path.home() / ".cache" / "paddle" / "dataset")
"""Folder of all data sets; the one that Paddle itself downloads to. May be changed."""

_SECONDS = 30  # without an answer
_CHUNK = 1 << 16


def md5file(fname: str | os.PathLike[str]) -> str:
    """The MD5 sum of a file, in hexadecimal digits.

    Args:
        fname: path of the file.

    Returns:
        The sum, 32 digits.

    Raises:
        OSError: the file cannot be read.

    Example:
        >>> import pathlib, tempfile
        >>> from dpexec.paddle.dataset import common
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "words.txt")
        ...     _ = file.write_bytes(b"hello")
        ...     common.md5file(file)
        '5d41402abc4b2a76b9719d911017c592'
    """
    with open(fname, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str:
    """The path of a data set's file, which is downloaded if missing.

    An existing file is used without checking, since it may be another edition of the data. Without
    a network, put the original there, under its own name or Paddle's.

    Args:
        url: address of the original.
        module_name: name of the data set and of its folder in ``DATA_HOME``.
        md5sum: MD5 sum of the original, in hexadecimal digits.
        save_name: name of the file; None takes the last part of the address.

    Returns:
        Path of the file.

    Raises:
        FileNotFoundError: the file is missing and the download failed; says where to put it.

    Example:
        >>> from dpexec.paddle.dataset import common, uci_housing
        >>> path = common.download(uci_housing.URL, "uci_housing", uci_housing.MD5)
        >>> path.endswith("uci_housing/housing.data")
        True
    """
    name = save_name or url.split("/")[-1]
    path = Path(DATA_HOME) / module_name / name
    plain = path.with_name(name.split("%2F")[-1])
    for there in (path, plain):
        if there.is_file():
            return str(there)
    try:
        _fetch(url, path, md5sum)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"paddle.dataset.{module_name} needs the file {plain}, and {url} could not be fetched "
            f"({error}): put the original {plain.name} there"
        ) from error
    return str(path)


def _fetch(url: str, path: Path, md5sum: str) -> None:
    """Download a file; it gets its name only when it is complete and its MD5 sum is right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
        size = int(answer.headers.get("Content-Length") or 0) or None
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as made:
            try:
                bar = tqdm.wrapattr(answer, "read", total=size, desc=path.name, leave=False)
                with bar as source:
                    shutil.copyfileobj(source, made, _CHUNK)
                made.close()
                if (found := md5file(made.name)) != md5sum:
                    raise ValueError(f"its MD5 sum is {found}, not {md5sum}")
                os.replace(made.name, path)
            finally:
                Path(made.name).unlink(missing_ok=True)


def split(
    reader: Reader,
    line_count: int,
    suffix: str = "%05d.pickle",
    dumper: Callable[[list[Any], BinaryIO], Any] = pickle.dump,
) -> None:
    """Write the samples of a reader to several files.

    Args:
        reader: yields the samples.
        line_count: largest number of samples per file.
        suffix: name of the files, with a placeholder for their numbers.
        dumper: writes a list of samples to a file.

    Raises:
        TypeError: ``dumper`` cannot be called.

    Example:
        >>> import glob, tempfile
        >>> from dpexec.paddle.dataset import common
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     common.split(lambda: iter(range(5)), 2, suffix=f"{folder}/part-%05d.pickle")
        ...     len(glob.glob(f"{folder}/part-*"))
        3
    """
    if not callable(dumper):
        raise TypeError("dumper should be callable.")
    samples: list[Any] = []
    number = 0
    for sample in reader():
        samples.append(sample)
        if len(samples) == line_count:
            _dump(samples, suffix % number, dumper)
            samples, number = [], number + 1
    if samples:
        _dump(samples, suffix % number, dumper)


def _dump(samples: list[Any], name: str, dumper: Callable[[list[Any], BinaryIO], Any]) -> None:
    with open(name, "wb") as file:
        dumper(samples, file)


def cluster_files_reader(
    files_pattern: str,
    trainer_count: int,
    trainer_id: int,
    loader: Callable[[BinaryIO], list[Any]] = pickle.load,
) -> Reader:
    """A reader of a trainer's share of files written by :func:`split`.

    Args:
        files_pattern: names of the files, with ``*``.
        trainer_count: number of trainers that share the files.
        trainer_id: number of this trainer; it gets every ``trainer_count``-th file in the order of
            names.
        loader: reads a list of samples from a file. The default reads pickles: use it only with
            files that you trust.

    Returns:
        A reader of the samples of all files of the share.

    Raises:
        TypeError: ``loader`` cannot be called.

    Example:
        >>> import tempfile
        >>> from dpexec.paddle.dataset import common
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     common.split(lambda: iter(range(6)), 2, suffix=f"{folder}/part-%05d.pickle")
        ...     mine = common.cluster_files_reader(f"{folder}/part-*", 2, trainer_id=0)
        ...     list(mine())  # files 0 and 2 of three
        [0, 1, 4, 5]
    """
    if not callable(loader):
        raise TypeError("loader should be callable.")

    def read() -> Iterator[Any]:
        for name in sorted(glob.glob(files_pattern))[trainer_id::trainer_count]:
            with open(name, "rb") as file:
                yield from loader(file)

    return read
