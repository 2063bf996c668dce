"""The values that the program's variables currently have in the ONNX model."""

from __future__ import annotations

from dpexec.onnx.exporting.builder import Value

__all__ = ["Values"]


class Values:
    """Values of variables, and lengths of their sequences, in a block and those around it.

    Args:
        outer: values of the surrounding block.
    """

    def __init__(self, outer: Values | None = None) -> None:
        self._outer = outer
        self._found: dict[str, Value] = {}
        self._lengths: dict[str, tuple[Value, ...]] = {}

    def bind(self, name: str, value: Value, lengths: tuple[Value, ...] = ()) -> None:
        """Set the current value of a variable."""
        self._found[name] = value
        self._lengths[name] = lengths

    def find(self, name: str) -> Value | None:
        """The value of a variable; None if it has none yet."""
        found = self._found.get(name)
        if found is None and self._outer is not None:
            return self._outer.find(name)
        return found

    def lengths(self, name: str) -> tuple[Value, ...]:
        """The lengths of a variable's sequences: an int64 vector per level, coarse first."""
        if name not in self._found and self._outer is not None:
            return self._outer.lengths(name)
        return self._lengths.get(name, ())

    @property
    def bound(self) -> dict[str, Value]:
        """The variables that got a value in this block."""
        return self._found
