"""What Python 3.7 and packages of its time had and later versions dropped, for `dpexec run`."""

from __future__ import annotations

import base64
import collections
import collections.abc
import fractions
import inspect
import math
import sys
import threading
import time
import xml.etree.ElementTree
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import yaml  # dask needs it, so it is there

__all__ = ["MODULES", "REMOVED", "old_python_names"]


class _ArgSpec(NamedTuple):
    """What ``inspect.getargspec`` returned."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def _getargspec(func: Callable[..., Any]) -> _ArgSpec:
    """The arguments of a function without keyword-only ones."""
    return _ArgSpec(*inspect.getfullargspec(func)[:4])


REMOVED: dict[Any, dict[str, Any]] = {
    base64: {"decodestring": base64.decodebytes, "encodestring": base64.encodebytes},
    collections: {name: getattr(collections.abc, name) for name in collections.abc.__all__},
    fractions: {"gcd": math.gcd},
    inspect: {"ArgSpec": _ArgSpec, "getargspec": _getargspec},
    threading.Thread: {"isAlive": threading.Thread.is_alive},
    time: {"clock": time.process_time},
}
"""What is gone, by the module or class that had it."""

_load_yaml = yaml.load


def _load(stream: Any, Loader: Any = yaml.FullLoader) -> Any:
    """``yaml.load``, whose loader had a default up to PyYAML 5."""
    return _load_yaml(stream, Loader)


MODULES: dict[str, ModuleType] = {"xml.etree.cElementTree": xml.etree.ElementTree}
"""Modules that are gone, with those that took their place."""


@contextmanager
def old_python_names() -> Iterator[None]:
    """Inside the with block, the library has the names of `REMOVED` and `MODULES` again.

    ``yaml.load`` needs no loader there.

    Example:
        >>> with old_python_names():
        ...     isinstance([], collections.Iterable)
        True
    """
    missing = [
        (owner, name)
        for owner, names in REMOVED.items()
        for name in names
        if name not in vars(owner)
    ]
    absent = [name for name in MODULES if name not in sys.modules]
    for owner, name in missing:
        setattr(owner, name, REMOVED[owner][name])
    sys.modules.update({name: MODULES[name] for name in absent})
    yaml.load = _load
    try:
        yield
    finally:
        yaml.load = _load_yaml
        for owner, name in missing:
            delattr(owner, name)
        for name in absent:
            sys.modules.pop(name, None)
