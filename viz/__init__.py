"""Pictures of what dpexec builds and runs; installed as ``dpexec.viz``."""

from .draw import Drawing, draw
from .load import FileError
from .passes import Passes, passes

__all__ = ["Drawing", "FileError", "Passes", "draw", "passes"]
