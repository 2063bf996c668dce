"""All operators. Every module of this package registers its own when it is imported."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    if _module.name != "__main__":
        importlib.import_module(f"{__name__}.{_module.name}")
