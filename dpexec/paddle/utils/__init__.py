"""``paddle.utils``: what scripts draw their losses with."""

from dpexec.paddle.utils import plot
from dpexec.paddle.utils.plot import Ploter

__all__ = ["Ploter", "plot"]
