"""Pictures of what dpexec builds and runs; installed as ``dpexec.viz``."""

from .compare import Comparison, compare
from .draw import Drawing, draw
from .findings import Findings, analyse
from .live_view import LiveView, live
from .load import FileError
from .memory import Memory, memory
from .passes import Passes, passes
from .report import Report, report
from .simulate import Simulation, simulate
from .table import Table, table
from .timeline import Timeline, timeline

__all__ = [
    "Comparison",
    "Drawing",
    "FileError",
    "Findings",
    "LiveView",
    "Memory",
    "Passes",
    "Report",
    "Simulation",
    "Table",
    "Timeline",
    "analyse",
    "compare",
    "draw",
    "live",
    "memory",
    "passes",
    "report",
    "simulate",
    "table",
    "timeline",
]
