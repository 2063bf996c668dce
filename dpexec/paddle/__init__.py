"""The names of ``paddle`` other than fluid: batch, compat, distributed, reader, dataset, ...

With ``dpexec run``, a script's ``import paddle`` imports this package.
"""

from typing import NoReturn

from dpexec.compat.absent import explain_missing_names
from dpexec.engine.core.errors import similar
from dpexec.paddle import compat, dataset, distributed, reader, utils, version
from dpexec.paddle.batch import batch

__all__ = ["__version__", "batch", "compat", "dataset", "distributed", "reader", "utils", "version"]

__version__ = version.full_version


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(
        f"paddle.{name} is not supported by dpexec, which runs programs of Paddle 1.x: their "
        f"layers and optimizers are in paddle.fluid{similar(name, __all__)}"
    )


explain_missing_names(__name__, __all__)
