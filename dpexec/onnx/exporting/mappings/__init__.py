"""What becomes of operators in ONNX. Every module declares its own when it is imported."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
