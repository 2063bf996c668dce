"""Traces: events, a recorder, and files that Chrome and Perfetto open."""

from dpexec.engine.trace.chrome import from_chrome, to_chrome
from dpexec.engine.trace.events import Allocation, Event, Kind, Trace, TraceFormatError
from dpexec.engine.trace.files import load, save
from dpexec.engine.trace.recorder import Recorder

__all__ = [
    "Allocation",
    "Event",
    "Kind",
    "Recorder",
    "Trace",
    "TraceFormatError",
    "from_chrome",
    "load",
    "save",
    "to_chrome",
]
