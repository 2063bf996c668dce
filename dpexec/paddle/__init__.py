"""What ``import paddle`` offers beside fluid: batch, reader and dataset.

``dpexec run`` answers a script's ``import paddle`` with this package.
"""

from dpexec.paddle import dataset, reader
from dpexec.reader_decorators import batch

__all__ = ["batch", "dataset", "reader"]
