"""``DataFeedDesc``: the format of a data set's files, as the text of a protobuf message."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.reading.multislot import Slot

__all__ = ["DataFeedDesc", "FeedDescription", "SlotDescription"]

_COMMENTS = r"(?:#[^\n]*\n\s*)*"
_VALUE = r'"(?:[^"\\]|\\.)*"|-?\d+|true|false'
_TOKEN = re.compile(rf"{_COMMENTS}(?:(\w+)\s*(?::\s*({_VALUE})|\{{)|(\}}))")


@dataclass
class SlotDescription:
    """A slot; fields that the message leaves out are None.

    Args:
        name: name of the slot, that of the variable that it feeds.
        type: ``"uint64"`` or ``"float"``.
        is_dense: whether all samples have as many numbers; False for sequences.
        is_used: whether the slot feeds a variable.
        shape: of a dense slot, with -1 for the batch.

    Example:
        >>> from dpexec.data_feed_desc import SlotDescription
        >>> slot = SlotDescription("label", "float", is_used=True)
        >>> slot.is_dense, slot.shape
        (None, [])
    """

    name: str = ""
    type: str = ""
    is_dense: bool | None = None
    is_used: bool | None = None
    shape: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, slot: Slot) -> SlotDescription:
        """The description of a slot that feeds a variable."""
        kind = "float" if slot.dtype == VarType.FP32 else "uint64"
        if not slot.dense:
            return cls(slot.name, kind, is_used=True)
        return cls(slot.name, kind, is_dense=True, is_used=True, shape=list(slot.shape))


@dataclass
class FeedDescription:
    """A message ``DataFeedDesc``; ``str`` gives its text, :meth:`parse` reads it.

    Args:
        name: kind of the reader, such as ``"MultiSlotDataFeed"``.
        batch_size: samples per batch.
        slots: the slots in the order of the file.
        pipe_command: shell command through which each file goes.
        thread_num: number of files that are read at the same time.

    Example:
        >>> from dpexec.data_feed_desc import FeedDescription, SlotDescription
        >>> words = SlotDescription("words", "uint64", is_used=True)
        >>> text = str(FeedDescription(batch_size=2, slots=[words]))
        >>> FeedDescription.parse(text).slots[0].name, text.splitlines()[0]
        ('words', 'batch_size: 2')
    """

    name: str | None = None
    batch_size: int | None = None
    slots: list[SlotDescription] = field(default_factory=list)
    pipe_command: str = "cat"
    thread_num: int | None = None

    def __str__(self) -> str:
        lines = _fields(self, ("name", "batch_size"))
        if self.slots:
            lines.append("multi_slot_desc {")
            for slot in self.slots:
                inner = _fields(slot, ("name", "type", "is_dense", "is_used"))
                inner += [f"shape: {dim}" for dim in slot.shape]
                lines += ["  slots {", *(f"    {line}" for line in inner), "  }"]
            lines.append("}")
        lines += _fields(self, ("pipe_command", "thread_num"))
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str) -> FeedDescription:
        """Read the text of a message.

        Raises:
            ValueError: the text is not such a message, or has unknown fields.
        """
        tokens = _tokens(text)
        made = cls()
        for key, value in tokens:
            if key == "multi_slot_desc":
                made.slots += _slots(tokens)
            elif key in ("name", "batch_size", "pipe_command", "thread_num") and value is not None:
                setattr(made, key, value)
            else:
                raise ValueError(f"a DataFeedDesc has no field {key!r}")
        return made


def _fields(message: Any, names: Sequence[str]) -> list[str]:
    return [
        f"{name}: {json.dumps(value)}"
        for name in names
        if (value := getattr(message, name)) is not None
    ]


def _tokens(text: str) -> Iterator[tuple[str, Any]]:
    """Fields with their values; None as value opens a nested message, ``}`` closes it."""
    rest = text.strip()
    while rest:
        found = _TOKEN.match(rest)
        if found is None:
            raise ValueError(f"this is no text of a DataFeedDesc: {rest[:40]!r}")
        rest = rest[found.end() :].lstrip()
        name, value, closing = found.groups()
        yield (closing, None) if closing else (name, None if value is None else json.loads(value))


def _slots(tokens: Iterator[tuple[str, Any]]) -> Iterator[SlotDescription]:
    for key, _ in tokens:
        if key == "}":
            return
        if key != "slots":
            raise ValueError(f"a MultiSlotDesc has no field {key!r}")
        yield _slot(tokens)
    raise ValueError("the text of a DataFeedDesc ends within multi_slot_desc")


def _slot(tokens: Iterator[tuple[str, Any]]) -> SlotDescription:
    slot = SlotDescription()
    for key, value in tokens:
        if key == "}":
            return slot
        if key == "shape":
            slot.shape.append(value)
        elif key in ("name", "type", "is_dense", "is_used"):
            setattr(slot, key, value)
        else:
            raise ValueError(f"a Slot has no field {key!r}")
    raise ValueError("the text of a DataFeedDesc ends within a slot")


class DataFeedDesc:
    """A description of a file format, read from a file.

    Args:
        proto_file: file with the text of a protobuf message ``DataFeedDesc``.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file does not hold such a message.

    Example:
        >>> import pathlib, tempfile
        >>> import dpexec as fluid
        >>> slots = 'multi_slot_desc { slots { name: "words" } }'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "data.proto")
        ...     _ = file.write_text(f'name: "MultiSlotDataFeed" batch_size: 2 {slots}')
        ...     description = fluid.DataFeedDesc(str(file))
        >>> description.set_batch_size(128)
        >>> description.set_use_slots(["words"])
        >>> "batch_size: 128" in description.desc()
        True
    """

    def __init__(self, proto_file: str) -> None:
        with open(proto_file, encoding="utf-8") as file:
            self.proto_desc = FeedDescription.parse(file.read())

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of samples per batch."""
        self.proto_desc.batch_size = batch_size

    def set_dense_slots(self, dense_slots_name: Sequence[str]) -> None:
        """Make slots dense; all others hold sequences.

        Raises:
            ValueError: the description has no such slot, or is of no ``MultiSlotDataFeed``.
        """
        for slot in self._named(dense_slots_name):
            slot.is_dense = True

    def set_use_slots(self, use_slots_name: Sequence[str]) -> None:
        """Choose the slots that are used.

        Raises:
            ValueError: the description has no such slot, or is of no ``MultiSlotDataFeed``.
        """
        for slot in self._named(use_slots_name):
            slot.is_used = True

    def desc(self) -> str:
        """The text of the message."""
        return str(self.proto_desc)

    def _named(self, names: Sequence[str]) -> list[SlotDescription]:
        if self.proto_desc.name != "MultiSlotDataFeed":
            raise ValueError(
                f"only a MultiSlotDataFeed has slots to choose, but this is {self.proto_desc.name}"
            )
        slots = {slot.name: slot for slot in self.proto_desc.slots}
        for name in names:
            if name not in slots:
                raise ValueError(f"no slot {name!r}: the description has {', '.join(slots)}")
        return [slots[name] for name in names]
