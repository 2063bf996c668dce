"""Sentences of the Penn Treebank, as n-grams or sequences, from simple-examples.tgz."""

import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from dpexec.paddle.dataset.common import download
from dpexec.reading.decorators import Reader

_TRAIN = "./simple-examples/data/ptb.train.txt"
_TEST = "./simple-examples/data/ptb.valid.txt"
URL = "https://dataset.bj.bcebos.com/imikolov%2Fsimple-examples.tgz"
MD5 = "30177ea32e27c525793142b6bf2c8e2d"
Word = bytes | str


def _archive() -> str:
    return download(URL, "imikolov", MD5)


def fetch() -> None:
    """Download the archive if missing.

    Example:
        >>> from dpexec.paddle.dataset import imikolov
        >>> imikolov.fetch()  # 35 MB at the first call
    """
    _archive()


class DataType:
    """The kind of samples.

    Example:
        >>> from dpexec.paddle.dataset import imikolov
        >>> imikolov.DataType.NGRAM, imikolov.DataType.SEQ
        (1, 2)
    """

    NGRAM = 1
    SEQ = 2


def _sentences(member: str) -> Iterator[list[Word]]:
    with tarfile.open(_archive()) as archive:
        file = archive.extractfile(member)
        if file is None:
            raise ValueError(f"{archive.name!r} has no file {member}")
        for line in file:
            yield list(line.split())


def build_dict(min_word_freq: int = 50) -> dict[Word, int]:
    """Number the words that occur more than min_word_freq times, the most frequent first.

    Args:
        min_word_freq: words that occur this often or less are left out.

    Returns:
        A dict from word to number. As in Paddle on Python 3, words of the text are bytes; the marks
        '<s>', '<e>' and '<unk>' (the last number) are str.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import imikolov
        >>> words = imikolov.build_dict(min_word_freq=50)
        >>> words["<unk>"] == len(words) - 1
        True
    """
    counts: Counter[Word] = Counter()
    for member in (_TEST, _TRAIN):
        for sentence in _sentences(member):
            counts.update([*sentence, "<s>", "<e>"])
    kept = [word for word, count in counts.items() if count > min_word_freq]
    kept.sort(key=lambda word: (-counts[word], word.encode() if isinstance(word, str) else word))
    return {word: number for number, word in enumerate([*kept, "<unk>"])}


def _reader(member: str, word_idx: Mapping[Any, int], n: int, data_type: int) -> Reader:
    if data_type not in (DataType.NGRAM, DataType.SEQ):
        raise ValueError(f"data_type must be DataType.NGRAM or DataType.SEQ, not {data_type!r}")
    if data_type == DataType.NGRAM and n < 1:
        raise ValueError(f"an n-gram needs n of at least 1, not {n}")
    unknown = word_idx["<unk>"]

    def grams() -> Iterator[tuple[int, ...]]:
        for sentence in _sentences(member):
            numbers = [word_idx.get(word, unknown) for word in ["<s>", *sentence, "<e>"]]
            for stop in range(n, len(numbers) + 1):
                yield tuple(numbers[stop - n : stop])

    def sequences() -> Iterator[tuple[list[int], list[int]]]:
        for sentence in _sentences(member):
            numbers = [word_idx.get(word, unknown) for word in sentence]
            if n <= 0 or len(numbers) + 1 <= n:
                yield [word_idx["<s>"], *numbers], [*numbers, word_idx["<e>"]]

    return grams if data_type == DataType.NGRAM else sequences


def train(word_idx: Mapping[Any, int], n: int, data_type: int = DataType.NGRAM) -> Reader:
    """The training text.

    Args:
        word_idx: numbers of the words, as :func:`build_dict` gives them.
        n: number of words in an n-gram; for sequences the largest length to keep, 0 for all.
        data_type: ``DataType.NGRAM`` or ``DataType.SEQ``.

    Returns:
        A reader: of tuples of ``n`` numbers, or of pairs of a sentence behind ``<s>`` and the same
        sentence before ``<e>``, lists of numbers.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.
        ValueError: ``data_type`` is neither, or ``n`` is below 1 for n-grams.

    Example:
        >>> from dpexec.paddle.dataset import imikolov
        >>> words = imikolov.build_dict()
        >>> len(next(iter(imikolov.train(words, 5)())))
        5
    """
    return _reader(_TRAIN, word_idx, n, data_type)


def test(word_idx: Mapping[Any, int], n: int, data_type: int = DataType.NGRAM) -> Reader:
    """The validation text.

    Args:
        word_idx: as for :func:`train`.
        n: as for :func:`train`.
        data_type: as for :func:`train`.

    Returns:
        A reader of the form of :func:`train`.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.
        ValueError: ``data_type`` is neither, or ``n`` is below 1 for n-grams.

    Example:
        >>> from dpexec.paddle.dataset import imikolov
        >>> words = imikolov.build_dict()
        >>> said, heard = next(iter(imikolov.test(words, 0, imikolov.DataType.SEQ)()))
        >>> said[0] == words["<s>"] and heard[-1] == words["<e>"]
        True
    """
    return _reader(_TEST, word_idx, n, data_type)
