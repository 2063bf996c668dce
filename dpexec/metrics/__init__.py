"""``fluid.metrics``: metrics of a whole data set, accumulated over batches."""

from dpexec.detection_metric import DetectionMAP
from dpexec.engine.ir.undo import build_whole as _build_whole
from dpexec.metrics.base import CompositeMetric, MetricBase
from dpexec.metrics.classification import Accuracy, Auc, Precision, Recall
from dpexec.metrics.sequences import ChunkEvaluator, EditDistance

__all__ = [
    "Accuracy",
    "Auc",
    "ChunkEvaluator",
    "CompositeMetric",
    "DetectionMAP",
    "EditDistance",
    "MetricBase",
    "Precision",
    "Recall",
]

_build_whole(globals(), __all__, __name__)
