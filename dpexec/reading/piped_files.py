"""Files piped through a shell command, several of them prefetched concurrently."""

from __future__ import annotations

import itertools
import subprocess
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.reading.prefetch import Prefetch

__all__ = ["items_of_files", "lines_of"]

_CHUNK = 256  # items that threads hand over at once
_CHUNKS_AHEAD = 16  # of each file


def lines_of(path: str, command: str) -> Generator[str, None, None]:
    """The output lines of a command that gets a file as input.

    Args:
        path: path of the file.
        command: run by bash; fails if any part of a pipeline fails.

    Raises:
        EnforceNotMet: after the last line, if the command has failed.
        OSError: the file cannot be read, or there is no bash.
    """
    with (
        open(path, "rb") as file,
        subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", command],
            stdin=file,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",  # numbers do not get better by it: who parses them says where
        ) as process,
    ):
        assert process.stdout is not None  # for it is a pipe
        try:
            yield from process.stdout
        except BaseException:  # nobody wants more
            process.kill()
            raise
        code = process.wait()
    if code:
        python = "python" in command
        hint = "; if it imports paddle, start it with 'dpexec run'" if python else ""
        raise EnforceNotMet(
            f"the pipe command {command!r} failed on {path} with exit code {code}; it wrote why to "
            f"stderr{hint}"
        )


def items_of_files(
    read: Callable[[str], Iterable[Any]], paths: Sequence[str], threads: int
) -> Iterator[Any]:
    """The items read from files, in the order of the files for any number of threads.

    Args:
        read: function that yields the items of a file; called in a thread.
        paths: paths of the files.
        threads: number of files read at the same time.

    Raises: the errors of ``read``.
    """
    waiting = iter(paths)
    ahead = deque(_started(read, path) for path in itertools.islice(waiting, max(1, threads)))
    try:
        while ahead:
            for chunk in ahead[0]:
                yield from chunk
            ahead.popleft()
            ahead.extend(_started(read, path) for path in itertools.islice(waiting, 1))
    finally:
        for reader in ahead:
            reader.close()


def _started(read: Callable[[str], Iterable[Any]], path: str) -> Prefetch:
    return Prefetch(partial(_chunks, read, path), _CHUNKS_AHEAD, name="dpexec-dataset")


def _chunks(read: Callable[[str], Iterable[Any]], path: str) -> Iterator[list[Any]]:
    items = iter(read(path))
    while chunk := list(itertools.islice(items, _CHUNK)):
        yield chunk
