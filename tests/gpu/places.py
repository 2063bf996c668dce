"""The GPUs that tests run on."""

from __future__ import annotations

import dpexec as fluid

__all__ = ["replicas"]


def replicas(count):
    """So many replicas on the GPUs that there are, several on one if need be."""
    gpus = fluid.cuda_places()
    return [gpus[number % len(gpus)] for number in range(count)]
