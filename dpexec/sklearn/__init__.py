"""Nets as scikit-learn estimators: ``Classifier`` and ``Regressor``, on threads or on Dask.

Needs ``pip install dpexec[sklearn]``.
"""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("dpexec.sklearn needs scikit-learn: pip install dpexec[sklearn]") from error

from dpexec.sklearn.callbacks import (
    Callback,
    Checkpoints,
    EarlyStopping,
    LearningRateSchedule,
    ProgressBar,
)
from dpexec.sklearn.estimators import Classifier, Regressor
from dpexec.sklearn.experiment_logs import MLflow, TensorBoard
from dpexec.sklearn.inputs import SparseRows

__all__ = [
    "Callback",
    "Checkpoints",
    "Classifier",
    "EarlyStopping",
    "LearningRateSchedule",
    "MLflow",
    "ProgressBar",
    "Regressor",
    "SparseRows",
    "TensorBoard",
]
