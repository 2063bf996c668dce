"""Small colour pictures (Krizhevsky 2009) from the original archives."""

import pickle
import tarfile
from collections.abc import Iterator

import numpy as np

from dpexec.paddle.dataset.common import local_file
from dpexec.reader_decorators import Reader


def _reader(archive: str, part: str, cycle: bool = False) -> Reader:
    path = local_file("cifar", archive)

    def once() -> Iterator[tuple[np.ndarray, int]]:
        with tarfile.open(path) as files:
            for member in files:
                file = files.extractfile(member) if part in member.name else None
                if file is None:
                    continue
                # The originals are pickles: only read an archive that you trust.
                content = pickle.load(file, encoding="bytes")
                labels = content[b"labels"] if b"labels" in content else content[b"fine_labels"]
                for pixels, label in zip(content[b"data"], labels, strict=True):
                    yield (pixels / 255.0).astype(np.float32), int(label)

    def forever() -> Iterator[tuple[np.ndarray, int]]:
        while True:
            yield from once()

    return forever if cycle else once


def train10(cycle: bool = False) -> Reader:
    """Return a reader of CIFAR-10's training pairs: 3072 float32 in [0, 1], label 0 to 9.

    Args:
        cycle: Whether to begin again at the end, for ever.
    """
    return _reader("cifar-10-python.tar.gz", "data_batch", cycle)


def test10(cycle: bool = False) -> Reader:
    """Return a reader of CIFAR-10's test pairs; see `train10`."""
    return _reader("cifar-10-python.tar.gz", "test_batch", cycle)


def train100() -> Reader:
    """Return a reader of CIFAR-100's training pairs: 3072 float32 in [0, 1], label 0 to 99."""
    return _reader("cifar-100-python.tar.gz", "train")


def test100() -> Reader:
    """Return a reader of CIFAR-100's test pairs; see `train100`."""
    return _reader("cifar-100-python.tar.gz", "test")
