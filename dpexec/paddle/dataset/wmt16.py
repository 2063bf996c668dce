"""Pairs of English and German sentences about pictures (WMT 2016, multimodal), numbered."""

import functools
import itertools
import tarfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

from dpexec.paddle.dataset.common import download
from dpexec.reading.decorators import Reader

__all__ = ["fetch", "get_dict", "test", "train", "validation"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/wmt/wmt16.tar.gz"
DATA_MD5 = "0c38be43600334966403524a40dcd81e"
TOTAL_EN_WORDS, TOTAL_DE_WORDS = 11250, 19220
START_MARK, END_MARK, UNK_MARK = "<s>", "<e>", "<unk>"
_WORDS = {"en": TOTAL_EN_WORDS, "de": TOTAL_DE_WORDS}
_COLUMN = {"en": 0, "de": 1}


def _archive() -> str:
    return download(DATA_URL, "wmt16", DATA_MD5, "wmt16.tar.gz")


def fetch() -> None:
    """Download the archive if missing.

    Example:
        >>> from dpexec.paddle.dataset import wmt16
        >>> wmt16.fetch()
    """
    _archive()


def _pairs(path: str, part: str) -> Iterator[list[str]]:
    with tarfile.open(path) as archive:
        file = archive.extractfile(f"wmt16/{part}")
        for line in file or ():
            sides = line.decode().strip().split("\t")
            if len(sides) == 2:
                yield sides


@functools.cache
def _dictionary(path: str, lang: str, size: int) -> dict[str, int]:
    """Numbers of three marks and the most frequent words; ties keep the order of the text."""
    column = _COLUMN[lang]
    counts = Counter(word for pair in _pairs(path, "train") for word in pair[column].split())
    marks = [START_MARK, END_MARK, UNK_MARK]
    words = (word for word, _ in counts.most_common())
    return {word: n for n, word in enumerate(itertools.islice((*marks, *words), size))}


def _reader(part: str, source_size: int, target_size: int, source: str) -> Reader:
    if source not in _COLUMN:
        raise ValueError("An error language type. Only support: en (for English); de(for Germany).")
    target = "de" if source == "en" else "en"
    path = _archive()

    def read() -> Iterator[tuple[list[int], list[int], list[int]]]:
        numbers = _dictionary(path, source, min(source_size, _WORDS[source]))
        targets = _dictionary(path, target, min(target_size, _WORDS[target]))
        start, end, unknown = (numbers[mark] for mark in (START_MARK, END_MARK, UNK_MARK))
        for pair in _pairs(path, part):
            read = [numbers.get(word, unknown) for word in pair[_COLUMN[source]].split()]
            said = [targets.get(word, unknown) for word in pair[_COLUMN[target]].split()]
            yield [start, *read, end], [start, *said], [*said, end]

    return read


def train(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """Return a reader of the training pairs.

    Args:
        src_dict_size: size of the source language's dictionary, including three marks.
        trg_dict_size: size of the target language's dictionary, including three marks.
        src_lang: ``"en"`` or ``"de"``; the other one is the target.

    Returns:
        A reader of (source in marks, target after ``<s>``, target before ``<e>``), lists of
        numbers.

    Raises:
        ValueError: the language is another one.

    Example:
        >>> from dpexec.paddle.dataset import wmt16
        >>> source, target, following = next(wmt16.train(10000, 10000)())
        >>> source[0], source[-1], target[0], following[-1]  # 0 is <s>, 1 is <e>
        (0, 1, 0, 1)
    """
    return _reader("train", src_dict_size, trg_dict_size, src_lang)


def test(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """The test pairs.

    Args:
        src_dict_size: as for :func:`train`.
        trg_dict_size: as for :func:`train`.
        src_lang: as for :func:`train`.

    Returns:
        A reader of the form of :func:`train`.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.
        ValueError: the language is another one.

    Example:
        >>> from dpexec.paddle.dataset import wmt16
        >>> source, target, following = next(wmt16.test(10000, 10000)())
        >>> target[1:] == following[:-1]
        True
    """
    return _reader("test", src_dict_size, trg_dict_size, src_lang)


def validation(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """The validation pairs.

    Args:
        src_dict_size: as for :func:`train`.
        trg_dict_size: as for :func:`train`.
        src_lang: as for :func:`train`.

    Returns:
        A reader of the form of :func:`train`.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.
        ValueError: the language is another one.

    Example:
        >>> from dpexec.paddle.dataset import wmt16
        >>> source, target, following = next(wmt16.validation(10000, 10000)())
        >>> target[1:] == following[:-1]
        True
    """
    return _reader("val", src_dict_size, trg_dict_size, src_lang)


def get_dict(lang: str, dict_size: int, reverse: bool = False) -> dict[Any, Any]:
    """The words of a language.

    Args:
        lang: ``"en"`` or ``"de"``.
        dict_size: number of words, including three marks.
        reverse: return words by number instead of numbers by word.

    Returns:
        A dict from word to number; 0 is ``<s>``, 1 ``<e>``, 2 ``<unk>``.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import wmt16
        >>> wmt16.get_dict("en", 3)
        {'<s>': 0, '<e>': 1, '<unk>': 2}
        >>> wmt16.get_dict("de", 3, reverse=True)
        {0: '<s>', 1: '<e>', 2: '<unk>'}
    """
    numbers = _dictionary(_archive(), lang, min(dict_size, _WORDS[lang]))
    return {n: word for word, n in numbers.items()} if reverse else dict(numbers)
