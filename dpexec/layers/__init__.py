"""``fluid.layers``: the layers that programs are built from.

A layer adds operators to the default main program, and the operators that initialise its parameters
to the default startup program. It returns its output variable.

Every layer checks its arguments when it is called. A TypeError says that an argument is no
variable, or that its numbers have a type which the operator does not take; an ``EnforceNotMet``
that shapes or attributes do not fit. The program is then as it was before the call. Sizes that are
open (-1) are checked when a batch is fed. Under *Raises* layers list further errors.

Example:
    >>> import dpexec as fluid
    >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     x = fluid.data("x", shape=[None, 4])
    ...     hidden = fluid.layers.fc(x, size=3, act="relu")
    ...     [op.type for op in fluid.default_main_program().global_block().ops]
    ['mul', 'elementwise_add', 'relu']
    >>> hidden.shape
    (-1, 3)
"""

import sys as _sys
from types import ModuleType
from typing import Any

from dpexec.compat.absent import KNOWN as _KNOWN
from dpexec.compat.absent import missing_name as _missing_name
from dpexec.engine.core.errors import see as _see
from dpexec.engine.core.errors import similar as _similar
from dpexec.engine.ir.undo import build_whole as _build_whole
from dpexec.engine.ir.variable import Variable  # programs ask isinstance(x, layers.Variable)
from dpexec.layers import (
    collective,  # noqa: F401  fluid's
    control_flow,
    detection,
    io,
    learning_rate_scheduler,
    loss,
    metric,
    nn,
    ops,
    sequence_lod,
    tensor,
    utils,  # noqa: F401  fluid's
)
from dpexec.layers import rnn as _rnn_module  # noqa: F401  its name is the function's, below

# isort: split
from dpexec.layers.alignment import *  # noqa: F403
from dpexec.layers.anchor_targets import *  # noqa: F403
from dpexec.layers.arrays import *  # noqa: F403
from dpexec.layers.attention import *  # noqa: F403
from dpexec.layers.batch_normalization import *  # noqa: F403
from dpexec.layers.beam_decoder import *  # noqa: F403
from dpexec.layers.beams import *  # noqa: F403
from dpexec.layers.branches import *  # noqa: F403
from dpexec.layers.callbacks import *  # noqa: F403
from dpexec.layers.cells import *  # noqa: F403
from dpexec.layers.comparisons import *  # noqa: F403
from dpexec.layers.constants import *  # noqa: F403
from dpexec.layers.control_flow import *  # noqa: F403
from dpexec.layers.cropping import *  # noqa: F403
from dpexec.layers.decode_helpers import *  # noqa: F403
from dpexec.layers.decoders import *  # noqa: F403
from dpexec.layers.detection import *  # noqa: F403
from dpexec.layers.distributions import *  # noqa: F403
from dpexec.layers.dynamic_rnn import *  # noqa: F403
from dpexec.layers.elementwise import *  # noqa: F403
from dpexec.layers.grids import *  # noqa: F403
from dpexec.layers.if_else import *  # noqa: F403
from dpexec.layers.images import *  # noqa: F403
from dpexec.layers.indexing import *  # noqa: F403
from dpexec.layers.io import *  # noqa: F403
from dpexec.layers.joining import *  # noqa: F403
from dpexec.layers.learning_rate_scheduler import *  # noqa: F403
from dpexec.layers.linear_algebra import *  # noqa: F403
from dpexec.layers.lod import *  # noqa: F403
from dpexec.layers.loss import *  # noqa: F403
from dpexec.layers.manipulation import *  # noqa: F403
from dpexec.layers.matching import *  # noqa: F403
from dpexec.layers.math import *  # noqa: F403
from dpexec.layers.metric import *  # noqa: F403
from dpexec.layers.multi_box import *  # noqa: F403
from dpexec.layers.nn import *  # noqa: F403
from dpexec.layers.normalization import *  # noqa: F403
from dpexec.layers.ordering import *  # noqa: F403
from dpexec.layers.padding import *  # noqa: F403
from dpexec.layers.parallel_do import *  # noqa: F403
from dpexec.layers.priors import *  # noqa: F403
from dpexec.layers.products import *  # noqa: F403
from dpexec.layers.proposals import *  # noqa: F403
from dpexec.layers.pyramid_levels import *  # noqa: F403
from dpexec.layers.random import *  # noqa: F403
from dpexec.layers.random_integers import *  # noqa: F403
from dpexec.layers.ranges import *  # noqa: F403
from dpexec.layers.rank_tables import *  # noqa: F403
from dpexec.layers.ranking_loss import *  # noqa: F403
from dpexec.layers.rearrangement import *  # noqa: F403
from dpexec.layers.recurrent import *  # noqa: F403
from dpexec.layers.recurrent_steps import *  # noqa: F403
from dpexec.layers.reductions import *  # noqa: F403
from dpexec.layers.regression_loss import *  # noqa: F403
from dpexec.layers.rescaling import *  # noqa: F403
from dpexec.layers.resizing import *  # noqa: F403
from dpexec.layers.rois import *  # noqa: F403
from dpexec.layers.sampled_loss import *  # noqa: F403
from dpexec.layers.selected_rows import *  # noqa: F403
from dpexec.layers.selection import *  # noqa: F403
from dpexec.layers.sequence_lod import *  # noqa: F403
from dpexec.layers.sequence_rearrangement import *  # noqa: F403
from dpexec.layers.sequences import *  # noqa: F403
from dpexec.layers.shifts import *  # noqa: F403
from dpexec.layers.static_rnn import *  # noqa: F403
from dpexec.layers.suppression import *  # noqa: F403
from dpexec.layers.tagging import *  # noqa: F403
from dpexec.layers.tensor import *  # noqa: F403
from dpexec.layers.volumes import *  # noqa: F403
from dpexec.layers.yolo import *  # noqa: F403

_written = [
    name
    for name, value in globals().items()
    if not (name.startswith("_") or isinstance(value, ModuleType))
    and value not in (Any, ModuleType, Variable)
]
_build_whole(globals(), _written, __name__)
__all__ = sorted({*_written, *ops.__all__})  # what is written out comes before what ops makes

metric_op = metric  # fluid's name of the module


def _elsewhere(name: str) -> Any:
    """A layer accessed through its module in fluid, such as ``layers.nn.conv2d``."""
    if name not in __all__:
        raise _missing_name("dpexec.layers", name, __all__)
    return getattr(_sys.modules[__name__], name)


for _module in (
    control_flow,
    detection,
    io,
    learning_rate_scheduler,
    loss,
    metric,
    nn,
    sequence_lod,
    tensor,
):
    vars(_module)["__getattr__"] = _elsewhere


def _made_or_elsewhere(name: str) -> Any:
    return ops.made[name] if name in ops.made else _elsewhere(name)


vars(ops)["__getattr__"] = _made_or_elsewhere


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in ops.made:
        return globals().setdefault(name, ops.made[name])
    if name in _KNOWN:
        raise _missing_name(__name__, name, __all__)
    count, hint = len(__all__), _similar(name, __all__)
    problem = f"layers.{name} is not supported: {count} are, see dir(layers){hint}"
    raise _see("a-name-that-is-not-there", AttributeError(problem))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
