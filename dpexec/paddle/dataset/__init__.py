"""Data sets from files that lie on this machine; nothing is downloaded."""

from typing import NoReturn

from dpexec.paddle.dataset import cifar, common, imikolov, mnist, uci_housing

__all__ = ["cifar", "common", "imikolov", "mnist", "uci_housing"]


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(f"paddle.dataset.{name} is not supported; there are {', '.join(__all__)}")
