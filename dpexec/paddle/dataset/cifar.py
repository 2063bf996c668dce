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
    """Download missing archives.

    Example:
        >>> from dpexec.paddle.dataset import cifar
        >>> cifar.fetch()  # 340 MB at the first call
    """
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
    """The training samples of CIFAR-10.

    Args:
        cycle: whether to start again at the end, without an end.

    Returns:
        A reader of 50,000 pairs: an image as 3072 float32 in [0, 1], red, green and blue one after
        the other, each by rows of 32; and the label, 0 to 9.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import cifar
        >>> image, label = next(iter(cifar.train10()()))
        >>> image.shape, label
        ((3072,), 6)
    """
    return _reader(CIFAR10_URL, CIFAR10_MD5, "data_batch", cycle)


def test10(cycle: bool = False) -> Reader:
    """The test samples of CIFAR-10.

    Args:
        cycle: whether to start again at the end, without an end.

    Returns:
        A reader of 10,000 pairs of the form of :func:`train10`.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import cifar
        >>> image, label = next(iter(cifar.test10()()))
        >>> image.shape, label
        ((3072,), 3)
    """
    return _reader(CIFAR10_URL, CIFAR10_MD5, "test_batch", cycle)


def train100() -> Reader:
    """The training samples of CIFAR-100, with the finer of its two labels.

    Returns:
        A reader of 50,000 pairs: an image as in :func:`train10`, and the label, 0 to 99.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import cifar
        >>> image, label = next(iter(cifar.train100()()))
        >>> image.shape, label
        ((3072,), 19)
    """
    return _reader(CIFAR100_URL, CIFAR100_MD5, "train")


def test100() -> Reader:
    """The test samples of CIFAR-100.

    Returns:
        A reader of 10,000 pairs of the form of :func:`train100`.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import cifar
        >>> image, label = next(iter(cifar.test100()()))
        >>> image.shape, label
        ((3072,), 49)
    """
    return _reader(CIFAR100_URL, CIFAR100_MD5, "test")
