"""The first columns of the tables in ``docs/reference``, generated from the code."""

import enum
from collections.abc import Iterator

from dpexec.engine.core import flags
from dpexec.engine.strategy.fields import Field

KINDS = {"optional_bool": "bool or None", "positive": "int from 1", "strings": "list of str"}
KINDS |= {"one_of": "str", "_scheduler": "str or Client"}


def strategy_cells(strategy: type) -> Iterator[tuple[str, str, bool]]:
    """Name, the cells "field", "type, default" and "effect", and whether it has an effect."""
    for name, field in vars(strategy).items():
        if isinstance(field, Field):
            default = field.default
            shown = default.name if isinstance(default, enum.Enum) else repr(default)
            row = f"| `{name}` | {_kind(field)}, `{shown}` | {field.__doc__} |"
            yield name, row, field.effective


def _kind(field: Field) -> str:
    if isinstance(field.kind, type):
        return field.kind.__name__
    return KINDS[field.kind.__qualname__.split(".")[0]]


def flag_cells() -> Iterator[tuple[str, str, bool]]:
    """Name, the cells "field" and "type, default", and whether dpexec heeds the flag."""
    for name, default in flags._DEFAULTS.items():
        row = f"| `{name}` | {type(default).__name__}, `{default!r}` |"
        yield name, row, name in flags._EFFECTIVE
