"""Checkpoints of training: written beside it, whole or not at all, resumed bit by bit."""

from dpexec.checkpoint.checkpoints import Checkpoints, Resumed

__all__ = ["Checkpoints", "Resumed"]
