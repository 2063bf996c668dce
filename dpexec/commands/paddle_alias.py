"""Makes ``import paddle.fluid`` import dpexec, so that scripts run unchanged.

``paddle.fluid`` is `dpexec`, ``paddle.fluid.x`` is ``dpexec.x``, ``paddle`` itself and its other
modules are `dpexec.paddle`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from dpexec.compat.absent import KNOWN, explain_in

_BINARIES = ("paddle.fluid.core_avx", "paddle.fluid.core_noavx")
"""The libraries behind ``fluid.core``, which some packages import from."""


def target_of(name: str) -> str:
    """Return the module that replaces one of Paddle's.

    Example:
        >>> target_of("paddle.fluid.layers")
        'dpexec.layers'
        >>> target_of("paddle.reader")
        'dpexec.paddle.reader'
    """
    if name in _BINARIES:
        return "dpexec.core"
    if name == "paddle.fluid" or name.startswith("paddle.fluid."):
        return "dpexec" + name.removeprefix("paddle.fluid")
    return "dpexec." + name


def _resolve(name: str) -> ModuleType:
    """Import the module that replaces one of Paddle's.

    Raises:
        ModuleNotFoundError: dpexec has no module for this name.
    """
    target = target_of(name)
    try:
        return importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name != target:
            raise
    parent, _, child = target.rpartition(".")
    module = getattr(importlib.import_module(parent), child, None)
    if isinstance(module, ModuleType):  # fluid's name for a module that lies elsewhere here
        return module
    raise _missing(name)


def _missing(name: str) -> ModuleNotFoundError:
    """The error for a module that dpexec does not have; names the reason or a replacement."""
    parts = name.split(".")
    why = next((text for part in reversed(parts) if (text := KNOWN.get(part))), None)
    if why is None and parts[1] == "fluid":
        why = "dpexec has no such module of fluid"
    if why is None:
        why = (
            "dpexec answers paddle.fluid, paddle.batch, paddle.compat, paddle.distributed, "
            "paddle.reader, paddle.utils, paddle.version and paddle.dataset (cifar, imikolov, "
            "mnist, uci_housing)"
        )
    return ModuleNotFoundError(f"{name} is not supported: {why}", name=name)


class _Loader(importlib.abc.Loader):
    """A loader that returns a module which exists already."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = _resolve(spec.name)
        explain_in(module)
        self.own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        alias, module.__spec__ = (
            module.__spec__,
            self.own,
        )  # the import system put the alias's there
        if alias is not None:
            _keep_hidden(module, alias.name)


def _keep_hidden(module: ModuleType, alias: str) -> None:
    """Resolve imports of modules whose name is bound to something else in their package.

    Importing such a module would rebind the name: ``layers.rnn`` is both a module and a layer.
    """
    package = module.__name__ + "."
    for name, child in list(sys.modules.items()):
        short = name.removeprefix(package)
        if name.startswith(package) and "." not in short and vars(module).get(short) is not child:
            sys.modules[f"{alias}.{short}"] = child


class _Finder(importlib.abc.MetaPathFinder):
    """A finder for ``paddle`` and all its submodules."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "paddle" and not fullname.startswith("paddle."):
            return None
        return importlib.util.spec_from_loader(fullname, _Loader())


@contextmanager
def paddle_is_dpexec() -> Iterator[None]:
    """Let ``import paddle`` mean dpexec inside the with block.

    Raises:
        RuntimeError: The real Paddle is already imported.
    """
    if "paddle" in sys.modules:
        raise RuntimeError("paddle is imported already, so its name cannot be answered")
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n == "paddle" or n.startswith("paddle.")]:
            del sys.modules[name]
