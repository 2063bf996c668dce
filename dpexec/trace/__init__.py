"""What ran when and where: events, a recorder, and files that Chrome and Perfetto open."""

from dpexec.trace.chrome import from_chrome, to_chrome
from dpexec.trace.events import Allocation, Event, Kind, Trace, TraceFormatError
from dpexec.trace.files import load, save
from dpexec.trace.recorder import Recorder

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
