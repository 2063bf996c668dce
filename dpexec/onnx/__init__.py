"""Models as ONNX files: ``export`` writes programs, ``load`` reads them.

Needs ``pip install dpexec[onnx]``.
"""

try:
    import onnx as _onnx  # noqa: F401
except ImportError as error:
    raise ImportError("dpexec.onnx needs onnx: pip install dpexec[onnx]") from error

from dpexec.onnx.exporting.export import export
from dpexec.onnx.exporting.refusals import ExportError
from dpexec.onnx.loading.errors import LoadError, NotConstantError, UnsupportedError
from dpexec.onnx.loading.from_torch import from_torch
from dpexec.onnx.loading.load import load

__all__ = [
    "ExportError",
    "LoadError",
    "NotConstantError",
    "UnsupportedError",
    "export",
    "from_torch",
    "load",
]
