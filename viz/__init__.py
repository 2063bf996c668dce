"""Pictures of programs, graphs, plans and runs; installed as ``dpexec.viz``."""

from dpexec.viz.animate import Animation, animate
from dpexec.viz.compare import Comparison, compare
from dpexec.viz.draw import Drawing, draw
from dpexec.viz.findings import Findings, analyse
from dpexec.viz.live_panels.live_view import LiveView, live
from dpexec.viz.machine_code import MachineCode, machine_code
from dpexec.viz.memory import Memory, memory
from dpexec.viz.pages.load import FileError
from dpexec.viz.passes import Passes, passes
from dpexec.viz.report import Report, report
from dpexec.viz.simulate import Simulation, simulate
from dpexec.viz.table import Table, table
from dpexec.viz.timeline import Timeline, timeline
from dpexec.viz.tune import Tuning, tune

__all__ = [
    "Animation",
    "Comparison",
    "Drawing",
    "FileError",
    "Findings",
    "LiveView",
    "MachineCode",
    "Memory",
    "Passes",
    "Report",
    "Simulation",
    "Table",
    "Timeline",
    "Tuning",
    "analyse",
    "animate",
    "compare",
    "draw",
    "live",
    "machine_code",
    "memory",
    "passes",
    "report",
    "simulate",
    "table",
    "timeline",
    "tune",
]
