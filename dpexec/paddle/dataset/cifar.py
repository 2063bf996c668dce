"""Small colour pictures (Krizhevsky 2009) from the original archives."""

import pickle
import tarfile
from collections.abc import Iterator

import numpy as np

from dpexec.paddle.dataset.common import download
from dpexec.reading.decorators import Reader

URL_PREFIX = "https://dataset.bj.bcebos.com/cifar/"
CIFAR10_URL = f"{URL_PREFIX}cifar-10-python.tar.gz"
CIFAR10_MD5 = "c58f30108f718f92721af3b95e74349a"
CIFAR100_URL = f"{URL_PREFIX}cifar-100-python.tar.gz"
CIFAR100_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"


def fetch() -> None:
    """Download missing archives."""
    download(CIFAR10_URL, "cifar", CIFAR10_MD5)
    download(CIFAR100_URL, "cifar", CIFAR100_MD5)


def _reader(url: str, md5: str, part: str, cycle: bool = False) -> Reader:
    path = download(url, "cifar", md5)

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
        cycle: Whether to repeat the data endlessly.
    """
    return _reader(CIFAR10_URL, CIFAR10_MD5, "data_batch", cycle)


def test10(cycle: bool = False) -> Reader:
    """Return a reader of CIFAR-10's test pairs; see `train10`."""
    return _reader(CIFAR10_URL, CIFAR10_MD5, "test_batch", cycle)


def train100() -> Reader:
    """Return a reader of CIFAR-100's training pairs: 3072 float32 in [0, 1], label 0 to 99."""
    return _reader(CIFAR100_URL, CIFAR100_MD5, "train")


def test100() -> Reader:
    """Return a reader of CIFAR-100's test pairs; see `train100`."""
    return _reader(CIFAR100_URL, CIFAR100_MD5, "test")
