"""Data sets from local files; missing files are downloaded, as in Paddle."""

from typing import NoReturn

from dpexec.paddle.dataset import (
    cifar,
    common,
    conll05,
    image,
    imdb,
    imikolov,
    mnist,
    movielens,
    sentiment,
    uci_housing,
    wmt14,
    wmt16,
)

__all__ = [
    "cifar",
    "common",
    "conll05",
    "image",
    "imdb",
    "imikolov",
    "mnist",
    "movielens",
    "sentiment",
    "uci_housing",
    "wmt14",
    "wmt16",
]


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(f"paddle.dataset.{name} is not supported; there are {', '.join(__all__)}")
