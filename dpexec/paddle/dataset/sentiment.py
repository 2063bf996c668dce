"""Labelled film reviews (Pang and Lee 2004), from NLTK's archive ``movie_reviews.zip``."""

import functools
import re
import zipfile
from collections import Counter
from collections.abc import Iterator

from dpexec.paddle.dataset.common import download

__all__ = ["get_word_dict", "test", "train"]

URL = "https://corpora.bj.bcebos.com/movie_reviews%2Fmovie_reviews.zip"
MD5 = "155de2b77c6834dd8eea7cbe88e93acb"
NUM_TRAINING_INSTANCES = 1600
NUM_TOTAL_INSTANCES = 2000
_TOKEN = re.compile(r"\w+|[^\w\s]+")  # a word, or punctuation, as NLTK reads these files
Sample = tuple[list[int], int]


def _archive() -> str:
    return download(URL, "corpora", MD5, "movie_reviews.zip")


def fetch() -> None:
    """Download the archive if missing.

    Example:
        >>> from dpexec.paddle.dataset import sentiment
        >>> sentiment.fetch()  # 4 MB at the first call
    """
    _archive()


@functools.cache
def _reviews(path: str) -> dict[str, list[list[str]]]:
    """The words of all negative reviews and of all positive ones, in the order of file names."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".txt"))
        return {
            kind: [
                _TOKEN.findall(archive.read(name).decode("latin-1"))
                for name in names
                if f"/{kind}/" in name
            ]
            for kind in ("neg", "pos")
        }


def get_word_dict() -> list[tuple[str, int]]:
    """The words and their numbers, the most frequent first.

    Returns:
        Pairs of word and number; punctuation marks are words.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import sentiment
        >>> sentiment.get_word_dict()[0]
        (',', 0)
    """
    reviews = _reviews(_archive())
    counts = Counter(w for kind in reviews.values() for words in kind for w in words)
    return [(word, number) for number, (word, _) in enumerate(counts.most_common())]


def _samples() -> list[Sample]:
    numbers, reviews = dict(get_word_dict()), _reviews(_archive())
    samples: list[Sample] = []
    for pair in zip(reviews["neg"], reviews["pos"], strict=False):
        for label, words in enumerate(pair):
            samples.append(([numbers[word.lower()] for word in words], label))
    return samples


def train() -> Iterator[Sample]:
    """The first 1,600 reviews, bad and good by turns.

    As in Paddle, this returns the samples, not a reader.

    Returns:
        An iterator over pairs: the numbers of a review's words, and 0 (bad) or 1 (good).

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import sentiment
        >>> [label for numbers, label in sentiment.train()][:4]
        [0, 1, 0, 1]
    """
    return iter(_samples()[:NUM_TRAINING_INSTANCES])


def test() -> Iterator[Sample]:
    """The last 400 reviews, bad and good by turns.

    Returns:
        An iterator over pairs of the form of :func:`train`.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import sentiment
        >>> len(list(sentiment.test())) <= 400
        True
    """
    return iter(_samples()[NUM_TRAINING_INSTANCES:])
