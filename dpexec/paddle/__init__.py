"""What ``import paddle`` offers beside fluid: batch, compat, distributed, reader, dataset, ...

``dpexec run`` answers a script's ``import paddle`` with this package.
"""

from dpexec.paddle import compat, dataset, distributed, reader, utils, version
from dpexec.reading.decorators import batch

__all__ = ["__version__", "batch", "compat", "dataset", "distributed", "reader", "utils", "version"]

__version__ = version.full_version
