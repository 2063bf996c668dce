"""Mappings of ONNX operators, a file for each family; importing this fills their table."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
