"""Pictures of what dpexec builds and runs; installed as ``dpexec.viz``."""

from .draw import Drawing, draw
from .live_view import LiveView, live
from .load import FileError
from .passes import Passes, passes
from .report import Report, report

__all__ = [
    "Drawing",
    "FileError",
    "LiveView",
    "Passes",
    "Report",
    "draw",
    "live",
    "passes",
    "report",
]
