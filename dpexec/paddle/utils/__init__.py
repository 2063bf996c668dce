"""``paddle.utils``: plots of losses."""

from dpexec.paddle.utils import plot
from dpexec.paddle.utils.plot import Ploter

__all__ = ["Ploter", "plot"]
