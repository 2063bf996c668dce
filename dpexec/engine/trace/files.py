"""Trace files: the JSON that chrome://tracing and ui.perfetto.dev open, and dpexec's own."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path

from dpexec.engine.trace.chrome import from_chrome, to_chrome
from dpexec.engine.trace.events import Trace, TraceFormatError

__all__ = ["load", "save", "unpacked"]

_GZIP = b"\x1f\x8b"
_LEVEL = 6  # of compression: a fourth of the time of 9, and a tenth larger


def save(trace: Trace, path: str | os.PathLike[str], *, chrome: bool = True) -> Path:
    """Write a trace to a file.

    Args:
        trace: The trace.
        path: The file; its folder must exist. If the name ends in ".gz", the file is compressed to
            a tenth of the size; Perfetto and Chrome open such files, too.
        chrome: True for Chrome's format, which Perfetto and dpexec read as well; False for dpexec's
            own format, which only dpexec reads and which is half the size.

    Returns:
        The path.
    """
    target = Path(path)
    content = to_chrome(trace) if chrome else trace.to_json()
    data = json.dumps(content, separators=(",", ":")).encode()
    target.write_bytes(gzip.compress(data, _LEVEL, mtime=0) if target.suffix == ".gz" else data)
    return target


def unpacked(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file, decompressed if it is a gzip file, whatever its name.

    Args:
        path: the file.

    Raises:
        TraceFormatError: The compressed data is damaged.
    """
    data = Path(path).read_bytes()
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise TraceFormatError(f"{path} is damaged, or was cut off: {error}") from error


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace that `save` wrote, in either format.

    Args:
        path: the file.

    Returns:
        The trace.

    Raises:
        TraceFormatError: The file is empty, damaged, no trace, or of another version.
    """
    try:
        text = unpacked(path).decode()
    except UnicodeDecodeError as error:
        raise TraceFormatError(f"{path} is no trace: it is not text ({error.reason})") from error
    if not text.strip():
        raise TraceFormatError(f"{path} is empty")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise TraceFormatError(f"{path} is not JSON, or was cut off: {error}") from error
    if not isinstance(data, dict):
        raise TraceFormatError(f"{path} holds no trace, but a JSON {type(data).__name__}")
    try:
        return from_chrome(data) if "traceEvents" in data else Trace.from_json(data)
    except TraceFormatError as error:
        raise TraceFormatError(f"{path}: {error}") from error
