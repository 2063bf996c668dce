"""Models as ONNX files: ``export`` writes programs, ``load`` reads them.

Needs ``pip install dpexec[onnx]``.
"""

try:
    import onnx as _onnx  # noqa: F401
except ImportError as error:
    raise ImportError("dpexec.onnx needs onnx: pip install dpexec[onnx]") from error

from dpexec.onnx.exporter import export
from dpexec.onnx.exporting.refusals import ExportError
from dpexec.onnx.loader import load
from dpexec.onnx.loading.errors import LoadError, NotConstantError, UnsupportedError
from dpexec.onnx.torch_loader import from_torch

__all__ = [
    "ExportError",
    "LoadError",
    "NotConstantError",
    "UnsupportedError",
    "export",
    "from_torch",
    "load",
]
