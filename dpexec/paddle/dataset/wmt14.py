"""Pairs of English and French sentences (WMT 2014), numbered; the sample that Paddle offers."""

import tarfile
from collections.abc import Iterator
from typing import Any

from dpexec.paddle.dataset.common import download
from dpexec.reading.decorators import Reader

__all__ = ["get_dict", "test", "train"]

URL_TRAIN = "http://paddlemodels.bj.bcebos.com/wmt/wmt14.tgz"
MD5_TRAIN = "0791583d57d5beb693b9414c5b36798c"
START, END, UNK = "<s>", "<e>", "<unk>"
UNK_IDX = 2
_LONGEST = 80  # words of a sentence, with its marks


def _archive() -> str:
    return download(URL_TRAIN, "wmt14", MD5_TRAIN)


def fetch() -> None:
    """Download the archive if missing.

    Example:
        >>> from dpexec.paddle.dataset import wmt14
        >>> wmt14.fetch()
    """
    _archive()


def _lines(archive: tarfile.TarFile, ending: str) -> Iterator[str]:
    """The lines of all files whose names have this ending."""
    for member in archive.getmembers():
        file = archive.extractfile(member) if member.name.endswith(ending) else None
        for line in file or ():
            yield line.decode().strip()


def _dictionary(archive: tarfile.TarFile, side: str, size: int) -> dict[str, int]:
    words = enumerate(_lines(archive, f"{side}.dict"))
    return {word: number for number, word in words if number < size}


def _reader(ending: str, size: int) -> Reader:
    path = _archive()

    def read() -> Iterator[tuple[list[int], list[int], list[int]]]:
        with tarfile.open(path) as archive:
            source, target = (_dictionary(archive, side, size) for side in ("src", "trg"))
            for line in _lines(archive, ending):
                sides = line.split("\t")
                if len(sides) != 2:
                    continue
                words = [START, *sides[0].split(), END]
                read = [source.get(word, UNK_IDX) for word in words]
                said = [target.get(word, UNK_IDX) for word in sides[1].split()]
                if max(len(read), len(said)) <= _LONGEST:
                    yield read, [target[START], *said], [*said, target[END]]

    return read


def train(dict_size: int) -> Reader:
    """Return a reader of the training pairs.

    Args:
        dict_size: size of each language's dictionary; other words get the number 2.

    Returns:
        A reader of (source, target after ``<s>``, target before ``<e>``), lists of numbers, of
        sentences of 80 words at most.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import wmt14
        >>> source, target, following = next(wmt14.train(30000)())
        >>> source[0], source[-1], target[0], following[-1]  # 0 is <s>, 1 is <e>
        (0, 1, 0, 1)
        >>> target[1:] == following[:-1]
        True
    """
    return _reader("train/train", dict_size)


def test(dict_size: int) -> Reader:
    """The test pairs.

    Args:
        dict_size: as for :func:`train`.

    Returns:
        A reader of the form of :func:`train`.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import wmt14
        >>> source, target, following = next(wmt14.test(30000)())
        >>> source[0], source[-1]
        (0, 1)
    """
    return _reader("test/test", dict_size)


def gen(dict_size: int) -> Reader:
    """The pairs whose translation Paddle's examples generate.

    Args:
        dict_size: as for :func:`train`.

    Returns:
        A reader of the form of :func:`train`.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import wmt14
        >>> source, target, following = next(wmt14.gen(30000)())
        >>> source[0], source[-1]
        (0, 1)
    """
    return _reader("gen/gen", dict_size)


def get_dict(dict_size: int, reverse: bool = True) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The words of both languages.

    Args:
        dict_size: number of words of each language.
        reverse: return words by number instead of numbers by word.

    Returns:
        A dict for the source, and one for the target.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import wmt14
        >>> english, french = wmt14.get_dict(30000)
        >>> english[0], english[1], english[2]
        ('<s>', '<e>', '<unk>')
    """
    with tarfile.open(_archive()) as archive:
        source, target = (_dictionary(archive, side, dict_size) for side in ("src", "trg"))
    if not reverse:
        return source, target
    return {n: word for word, n in source.items()}, {n: word for word, n in target.items()}
