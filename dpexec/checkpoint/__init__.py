"""Checkpoints of training: written atomically in the background, resumed with the same bits."""

from dpexec.checkpoint.checkpoints import Checkpoints, Resumed

__all__ = ["Checkpoints", "Resumed"]
