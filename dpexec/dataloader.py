"""``fluid.dataloader``: data sets whose samples are accessed by index."""

from dpexec.reading import batches as dataloader_iter
from dpexec.reading import samples as batch_sampler
from dpexec.reading import samples as dataset
from dpexec.reading.samples import BatchSampler, Dataset

__all__ = ["BatchSampler", "Dataset", "batch_sampler", "dataloader_iter", "dataset"]

__path__: list[str] = []  # imports look for its modules
