"""Pictures of what dpexec builds and runs; installed as ``dpexec.viz``."""

from .draw import Drawing, draw
from .live_view import LiveView, live

__all__ = ["Drawing", "LiveView", "draw", "live"]
