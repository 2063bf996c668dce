"""``paddle.reader``: the decorators of readers."""

from dpexec.reading import decorators as decorator  # noqa: F401  fluid's name of the module
from dpexec.reading.decorators import (
    ComposeNotAligned,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)

__path__: list[str] = []  # imports look for decorator

__all__ = [
    "ComposeNotAligned",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "map_readers",
    "multiprocess_reader",
    "shuffle",
    "xmap_readers",
]
