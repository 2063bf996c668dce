"""What ``import paddle`` offers beside fluid: batch, reader and dataset.

``dpexec run`` answers a script's ``import paddle`` with this package.
"""

from dpexec.paddle import dataset, reader
from dpexec.paddle.reader import batch

__all__ = ["batch", "dataset", "reader"]
