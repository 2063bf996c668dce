"""What ``import paddle`` offers beside fluid: batch, compat, reader, dataset, utils and version.

``dpexec run`` answers a script's ``import paddle`` with this package.
"""

from dpexec.paddle import compat, dataset, reader, utils, version
from dpexec.reading.decorators import batch

__all__ = ["__version__", "batch", "compat", "dataset", "reader", "utils", "version"]

__version__ = version.full_version
