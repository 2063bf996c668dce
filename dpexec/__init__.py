"""dpexec: PaddlePaddle fluid's ParallelExecutor on Dask. ``import dpexec as fluid``."""
