"""What ``import paddle`` offers beside fluid: batch, reader, dataset and version.

``dpexec run`` answers a script's ``import paddle`` with this package.
"""

from dpexec.paddle import dataset, reader, version
from dpexec.reader_decorators import batch

__all__ = ["__version__", "batch", "dataset", "reader", "version"]

__version__ = version.full_version
