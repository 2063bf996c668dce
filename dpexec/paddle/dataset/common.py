"""Where the files of the data sets lie. Source: paddle.dataset.common of Paddle 1.8."""

from pathlib import Path

DATA_HOME = str(Path.home() / ".cache" / "paddle" / "dataset")
"""Folder of all data sets; the one that Paddle itself downloads to. May be changed."""


def local_file(module: str, name: str) -> Path:
    """Return the path of a data set's file.

    Args:
        module: Name of the data set, which is the folder.
        name: Name of the file, the one that Paddle's download has.

    Raises:
        FileNotFoundError: It is not there; says where to put it.
    """
    path = Path(DATA_HOME) / module / name
    if not path.is_file():
        raise FileNotFoundError(
            f"paddle.dataset.{module} needs the file {path}; dpexec downloads nothing: put the "
            f"original {name} there"
        )
    return path
