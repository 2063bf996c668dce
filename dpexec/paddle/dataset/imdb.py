"""Positive and negative film reviews (Maas et al. 2011), from the original archive."""

import re
import string
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from dpexec.paddle.dataset.common import download
from dpexec.reading.decorators import Reader

URL = "https://dataset.bj.bcebos.com/imdb%2FaclImdb_v1.tar.gz"
MD5 = "7c2ac02c03563afcf9b574c7e56c153a"
_PUNCTUATION = string.punctuation.encode()
_RARE = 150
Word = bytes | str


def fetch() -> None:
    """Download the archive if missing.

    Example:
        >>> from dpexec.paddle.dataset import imdb
        >>> imdb.fetch()  # 84 MB at the first call
    """
    download(URL, "imdb", MD5)


def tokenize(pattern: re.Pattern[str]) -> Iterator[list[bytes]]:
    """The words of every file whose name the pattern matches: lower case, no punctuation.

    Args:
        pattern: pattern of the names of files in the archive.

    Returns:
        An iterator over the files; each is a list of bytes.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> import re
        >>> from dpexec.paddle.dataset import imdb
        >>> next(imdb.tokenize(re.compile("aclImdb/train/pos/0_9.txt")))[:3]
        [b'bromwell', b'high', b'is']
    """
    with tarfile.open(download(URL, "imdb", MD5)) as archive:
        for member in archive:
            file = archive.extractfile(member) if pattern.match(member.name) else None
            if file is not None:
                text = file.read().rstrip(b"\n\r")
                yield text.translate(None, _PUNCTUATION).lower().split()


def build_dict(pattern: re.Pattern[str], cutoff: int) -> dict[Word, int]:
    """Number the words that occur more than ``cutoff`` times, the most frequent first.

    Args:
        pattern: pattern of the files' names.
        cutoff: words that occur this often or less are left out.

    Returns:
        A dict from word to number. As in Paddle on Python 3, words are bytes, and ``"<unk>"``, the
        last one, is a str.

    Example:
        >>> import re
        >>> from dpexec.paddle.dataset import imdb
        >>> words = imdb.build_dict(re.compile("aclImdb/train/.*"), 150)
        >>> words[b"the"]
        0
    """
    counts = Counter(word for words in tokenize(pattern) for word in words)
    kept = [word for word, count in counts.items() if count > cutoff]
    kept.sort(key=lambda word: (-counts[word], word))
    numbers: dict[Word, int] = {word: number for number, word in enumerate(kept)}
    numbers["<unk>"] = len(kept)
    return numbers


def word_dict() -> dict[Word, int]:
    """Numbers of the words that occur more than 150 times in all reviews.

    Returns:
        A dict as :func:`build_dict` makes it; 5,147 entries with the original archive.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import imdb
        >>> imdb.word_dict()[b"the"]
        0
    """
    return build_dict(re.compile(r"aclImdb/(train|test)/(pos|neg)/.*\.txt$"), _RARE)


def _reader(part: str, word_idx: Mapping[Any, int]) -> Reader:
    unknown = word_idx["<unk>"]
    samples = [
        ([word_idx.get(word, unknown) for word in words], label)
        for label, kind in enumerate(("pos", "neg"))
        for words in tokenize(re.compile(rf"aclImdb/{part}/{kind}/.*\.txt$"))
    ]
    return lambda: iter(samples)


def train(word_idx: Mapping[Any, int]) -> Reader:
    """The training reviews, the good ones first.

    Args:
        word_idx: numbers of the words, as :func:`word_dict` gives them; the number of ``"<unk>"``
            stands for all others.

    Returns:
        A reader of 25,000 pairs: the numbers of a review's words, and 0 (good) or 1 (bad).

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.
        KeyError: ``word_idx`` has no ``"<unk>"``.

    Example:
        >>> from dpexec.paddle.dataset import imdb
        >>> numbers, label = next(iter(imdb.train(imdb.word_dict())()))
        >>> label
        0
    """
    return _reader("train", word_idx)


def test(word_idx: Mapping[Any, int]) -> Reader:
    """The test reviews, the good ones first.

    Args:
        word_idx: as for :func:`train`.

    Returns:
        A reader of 25,000 pairs of the form of :func:`train`.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.
        KeyError: ``word_idx`` has no ``"<unk>"``.

    Example:
        >>> from dpexec.paddle.dataset import imdb
        >>> numbers, label = next(iter(imdb.test(imdb.word_dict())()))
        >>> label
        0
    """
    return _reader("test", word_idx)
