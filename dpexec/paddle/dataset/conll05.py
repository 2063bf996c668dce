"""Semantic role labelling (CoNLL-2005): the public test set, and its dictionaries.

Roles are numbered alphabetically. (In the original their numbers change from run to run.)
"""

import gzip
import itertools
import tarfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dpexec.paddle.dataset.common import download
from dpexec.reading.decorators import Reader

__all__ = ["get_dict", "get_embedding", "test"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/conll05st/conll05st-tests.tar.gz"
DATA_MD5 = "387719152ae52d60422c016e92a742fc"
WORDDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FwordDict.txt"
WORDDICT_MD5 = "ea7fb7d4c75cc6254716f0177a506baa"
VERBDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FverbDict.txt"
VERBDICT_MD5 = "0d2977293bbb6cbefab5b0f97db1e77c"
TRGDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FtargetDict.txt"
TRGDICT_MD5 = "d8c7f03ceb5fc2e5a0fa7503a4353751"
EMB_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2Femb"
EMB_MD5 = "bf436eb0faa1f6f9103017f8be57cdb7"
UNK_IDX = 0
_PART = "conll05st-release/test.wsj/{0}/test.wsj.{0}.gz"
Sentence = tuple[list[str], str, list[str]]


def _file(url: str, md5: str) -> str:
    return download(url, "conll05st", md5)


def fetch() -> None:
    """Download missing files.

    Example:
        >>> from dpexec.paddle.dataset import conll05
        >>> conll05.fetch()
    """
    _file(WORDDICT_URL, WORDDICT_MD5)
    _file(VERBDICT_URL, VERBDICT_MD5)
    _file(TRGDICT_URL, TRGDICT_MD5)
    _file(EMB_URL, EMB_MD5)
    _file(DATA_URL, DATA_MD5)


def load_dict(filename: str) -> dict[str, int]:
    r"""A dict from each line of a file to its number.

    Args:
        filename: path of a text file.

    Returns:
        The numbers, from 0, by line without the white space around it.

    Raises:
        FileNotFoundError: the file is not there.

    Example:
        >>> import pathlib, tempfile
        >>> from dpexec.paddle.dataset import conll05
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "words.txt")
        ...     _ = file.write_text("the\nsays\n")
        ...     conll05.load_dict(str(file))
        {'the': 0, 'says': 1}
    """
    with open(filename, encoding="utf-8") as file:
        return {line.strip(): number for number, line in enumerate(file)}


def load_label_dict(filename: str) -> dict[str, int]:
    r"""Numbers of the labels "beginning" and "inside" of all roles in a file; the last is ``O``.

    Args:
        filename: path of a text file with a label such as ``B-A0`` or ``I-A0`` on each line.

    Returns:
        The numbers, from 0, by label.

    Raises:
        FileNotFoundError: the file is not there.

    Example:
        >>> import pathlib, tempfile
        >>> from dpexec.paddle.dataset import conll05
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "labels.txt")
        ...     _ = file.write_text("B-A0\nI-A0\nO\n")
        ...     conll05.load_label_dict(str(file))
        {'B-A0': 0, 'I-A0': 1, 'O': 2}
    """
    roles = sorted({line[2:] for line in load_dict(filename) if line[:2] in ("B-", "I-")})
    labels = [f"{mark}-{role}" for role in roles for mark in "BI"]
    return {label: number for number, label in enumerate([*labels, "O"])}


def get_dict() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Numbers of words, verbs and labels.

    Returns:
        Three dicts; with the original files 44,068 words and 3,162 verbs.

    Raises:
        FileNotFoundError: a file is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import conll05
        >>> words, verbs, labels = conll05.get_dict()
        >>> labels["O"] == len(labels) - 1
        True
    """
    words = load_dict(_file(WORDDICT_URL, WORDDICT_MD5))
    verbs = load_dict(_file(VERBDICT_URL, VERBDICT_MD5))
    return words, verbs, load_label_dict(_file(TRGDICT_URL, TRGDICT_MD5))


def get_embedding() -> str:
    """Path of a file of word vectors, which were trained on Wikipedia.

    Returns:
        The path; the file has a header of 16 bytes, then 32 float32 for each word.

    Raises:
        FileNotFoundError: the file is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import conll05
        >>> from pathlib import Path
        >>> Path(conll05.get_embedding()).name
        'conll05st%2Femb'
    """
    return _file(EMB_URL, EMB_MD5)


def corpus_reader(
    data_path: str, words_name: str, props_name: str
) -> Callable[[], Iterator[Sentence]]:
    """The sentences of an archive, each once for each of its verbs.

    Args:
        data_path: path of the archive.
        words_name: name of the file of words in the archive.
        props_name: name of the file of verbs and roles.

    Returns:
        A reader of (words, verb, labels of the words).

    Raises:
        RuntimeError: while reading, if a label has an unknown form.

    Example:
        >>> from dpexec.paddle.dataset import conll05
        >>> from dpexec.paddle.dataset.common import DATA_HOME
        >>> part = "conll05st-release/test.wsj/{0}/test.wsj.{0}.gz"
        >>> archive = f"{DATA_HOME}/conll05st/conll05st-tests.tar.gz"
        >>> read = conll05.corpus_reader(archive, part.format("words"), part.format("props"))
        >>> words, verb, labels = next(read())
        >>> len(words) == len(labels)
        True
    """

    def read() -> Iterator[Sentence]:
        with tarfile.open(data_path) as archive:
            lines = zip(
                *(_unpacked(archive, name) for name in (words_name, props_name)), strict=True
            )
            for blank, rows in itertools.groupby(lines, lambda row: not row[1]):
                if not blank:
                    yield from _sentences([(word, props.split()) for word, props in rows])

    return read


def _unpacked(archive: tarfile.TarFile, name: str) -> Iterator[str]:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{archive.name!r} has no file {name}")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield line.strip()


def _sentences(rows: list[tuple[str, list[str]]]) -> Iterator[Sentence]:
    """Each sentence, once for each of its verbs."""
    words = [word for word, _ in rows]
    first, *others = zip(*(props for _, props in rows), strict=True)
    verbs = [verb for verb in first if verb != "-"]
    for verb, marks in zip(verbs, others, strict=False):
        yield words, verb, list(_labels(marks))


def _labels(marks: tuple[str, ...]) -> Iterator[str]:
    """Labels of words: ``(A0*`` begins a role, ``*)`` ends it, ``(V*)`` does both."""
    role, inside = "O", False
    for mark in marks:
        if "(" in mark:
            role, inside = mark[1 : mark.find("*")], ")" not in mark
            yield f"B-{role}"
        elif mark in ("*", "*)"):
            yield f"I-{role}" if inside or mark == "*)" else "O"
            inside = inside and mark == "*"
        else:
            raise RuntimeError(f"Unexpected label: {mark}")


def reader_creator(
    corpus_reader: Callable[[], Iterator[Sentence]],
    word_dict: Mapping[str, int],
    predicate_dict: Mapping[str, int],
    label_dict: Mapping[str, int],
) -> Reader:
    """Numbers for the words, verbs and labels of sentences.

    Args:
        corpus_reader: yields sentences.
        word_dict: numbers of words; unknown words get 0.
        predicate_dict: numbers of verbs; unknown verbs get None.
        label_dict: numbers of labels; unknown labels get None.

    Returns:
        A reader of nine lists of numbers, one for each word: the words; five lists that repeat one
        word each, from two before the verb to two after it; the verb, repeated; 1 at these five
        words, else 0; the labels.

    Example:
        >>> from dpexec.paddle.dataset import conll05
        >>> def sentences():
        ...     yield ["A", "cat", "sat"], "sat", ["B-A0", "I-A0", "B-V"]
        >>> words, verbs = {"cat": 1, "sat": 2}, {"sat": 0}
        >>> labels = {"B-A0": 0, "I-A0": 1, "B-V": 2}
        >>> sample = next(conll05.reader_creator(sentences, words, verbs, labels)())
        >>> sample[0], sample[3], sample[8]  # the words, the verb, the labels
        ([0, 1, 2], [2, 2, 2], [0, 1, 2])
    """

    def read() -> Iterator[tuple[list[Any], ...]]:
        for sentence, verb, labels in corpus_reader():
            at, size = labels.index("B-V"), len(labels)
            around = ["bos", "bos", *sentence, "eos", "eos"]
            yield (
                [word_dict.get(word, UNK_IDX) for word in sentence],
                *([word_dict.get(word, UNK_IDX)] * len(sentence) for word in around[at : at + 5]),
                [predicate_dict.get(verb)] * len(sentence),
                [int(abs(n - at) <= 2) for n in range(size)],
                [label_dict.get(label) for label in labels],
            )

    return read


def test() -> Reader:
    """The public test set; the training set has to be bought.

    Returns:
        A reader of the samples of :func:`reader_creator`, with the numbers of :func:`get_dict`.

    Raises:
        FileNotFoundError: a file is missing and could not be downloaded.
        RuntimeError: while reading, if a label has an unknown form.

    Example:
        >>> from dpexec.paddle.dataset import conll05
        >>> sample = next(conll05.test()())
        >>> len(sample)
        9
    """
    path = _file(DATA_URL, DATA_MD5)
    corpus = corpus_reader(path, _PART.format("words"), _PART.format("props"))
    return reader_creator(corpus, *get_dict())
