"""Models as ONNX files: ``export`` writes programs.

Needs ``pip install dpexec[onnx]``.
"""

try:
    import onnx as _onnx  # noqa: F401
except ImportError as error:
    raise ImportError("dpexec.onnx needs onnx: pip install dpexec[onnx]") from error

from dpexec.onnx.exporting.export import export
from dpexec.onnx.exporting.refusals import ExportError

__all__ = ["ExportError", "export"]
