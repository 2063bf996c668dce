"""Pictures of what dpexec builds and runs; installed as ``dpexec.viz``."""

from .draw import Drawing, draw

__all__ = ["Drawing", "draw"]
