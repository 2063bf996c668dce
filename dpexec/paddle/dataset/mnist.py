"""Handwritten digits (LeCun et al. 1998) from the four original files."""

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpexec.paddle.dataset.common import download
from dpexec.reading.decorators import Reader

URL_PREFIX = "https://dataset.bj.bcebos.com/mnist/"
_MD5 = {
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
}
_IMAGES, _LABELS = 2051, 2049  # magic numbers of the two kinds of files


def _header(data: bytes, path: Path, magic: int, numbers: int) -> tuple[int, ...]:
    found, *rest = struct.unpack_from(f">{1 + numbers}I", data)
    if found != magic:
        raise ValueError(f"{path} is not a file of MNIST: it begins with {found}, not {magic}")
    return tuple(rest)


def fetch() -> None:
    """Download missing files.

    Example:
        >>> from dpexec.paddle.dataset import mnist
        >>> mnist.fetch()  # 11 MB at the first call
    """
    for name in _MD5:
        _file(name)


def _file(name: str) -> Path:
    return Path(download(f"{URL_PREFIX}{name}", "mnist", _MD5[name]))


def _reader(images: str, labels: str) -> Reader:
    image_path, label_path = _file(images), _file(labels)

    def read() -> Iterator[tuple[np.ndarray, int]]:
        pixels = gzip.decompress(image_path.read_bytes())
        digits = gzip.decompress(label_path.read_bytes())
        count, height, width = _header(pixels, image_path, _IMAGES, 3)
        (labelled,) = _header(digits, label_path, _LABELS, 1)
        if count != labelled:
            raise ValueError(f"{image_path} has {count} images, {label_path} {labelled} labels")
        table = np.frombuffer(pixels, np.uint8, offset=16).reshape(count, height * width)
        for row, label in zip(table, digits[8:], strict=True):
            yield row.astype(np.float32) / np.float32(255) * np.float32(2) - np.float32(1), label

    return read


def train() -> Reader:
    """The training samples of MNIST.

    Returns:
        A reader of 60,000 pairs: an image as 784 float32 in [-1, 1], 28 rows of 28; and the digit.

    Raises:
        FileNotFoundError: a file is missing and could not be downloaded.
        ValueError: while reading, if a file is damaged.

    Example:
        >>> from dpexec.paddle.dataset import mnist
        >>> image, digit = next(iter(mnist.train()()))
        >>> image.shape, image.dtype, int(digit)
        ((784,), dtype('float32'), 5)
    """
    return _reader("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")


def test() -> Reader:
    """The test samples of MNIST.

    Returns:
        A reader of 10,000 pairs of the form of :func:`train`.

    Raises:
        FileNotFoundError: a file is missing and could not be downloaded.
        ValueError: while reading, if a file is damaged.

    Example:
        >>> from dpexec.paddle.dataset import mnist
        >>> image, digit = next(iter(mnist.test()()))
        >>> image.shape, int(digit)
        ((784,), 7)
    """
    return _reader("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
