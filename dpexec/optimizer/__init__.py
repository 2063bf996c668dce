"""``fluid.optimizer``: the optimizers, which update parameters from gradients."""

from dpexec.engine.ir.undo import build_whole as _build_whole
from dpexec.optimizer.adagrad import AdagradOptimizer, DecayedAdagradOptimizer
from dpexec.optimizer.adam import AdamaxOptimizer, AdamOptimizer, LambOptimizer
from dpexec.optimizer.averages import ExponentialMovingAverage, ModelAverage
from dpexec.optimizer.base import Optimizer
from dpexec.optimizer.dgc import DGCMomentumOptimizer
from dpexec.optimizer.ftrl import FtrlOptimizer
from dpexec.optimizer.lookahead import LookaheadOptimizer
from dpexec.optimizer.momentum import LarsMomentumOptimizer, MomentumOptimizer
from dpexec.optimizer.pipeline import PipelineOptimizer
from dpexec.optimizer.recompute import RecomputeOptimizer
from dpexec.optimizer.rmsprop import AdadeltaOptimizer, RMSPropOptimizer
from dpexec.optimizer.sgd import DpsgdOptimizer, SGDOptimizer
from dpexec.regularizer import append_regularization_ops as append_regularization_ops

__all__ = [
    "SGD",
    "Adadelta",
    "AdadeltaOptimizer",
    "Adagrad",
    "AdagradOptimizer",
    "Adam",
    "AdamOptimizer",
    "Adamax",
    "AdamaxOptimizer",
    "DGCMomentumOptimizer",
    "DecayedAdagrad",
    "DecayedAdagradOptimizer",
    "Dpsgd",
    "DpsgdOptimizer",
    "ExponentialMovingAverage",
    "Ftrl",
    "FtrlOptimizer",
    "Lamb",
    "LambOptimizer",
    "LarsMomentum",
    "LarsMomentumOptimizer",
    "LookaheadOptimizer",
    "ModelAverage",
    "Momentum",
    "MomentumOptimizer",
    "Optimizer",
    "PipelineOptimizer",
    "RMSProp",
    "RMSPropOptimizer",
    "RecomputeOptimizer",
    "SGDOptimizer",
]

SGD = SGDOptimizer
Momentum = MomentumOptimizer
LarsMomentum = LarsMomentumOptimizer
Adagrad = AdagradOptimizer
DecayedAdagrad = DecayedAdagradOptimizer
Adam = AdamOptimizer
Adamax = AdamaxOptimizer
Lamb = LambOptimizer
RMSProp = RMSPropOptimizer
Adadelta = AdadeltaOptimizer
Ftrl = FtrlOptimizer
Dpsgd = DpsgdOptimizer

_build_whole(globals(), __all__, __name__)
