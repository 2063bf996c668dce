"""``fluid.io``: readers of data, and saving and loading in Paddle 1.x's formats."""

from dpexec.engine.ir.feed_fetch import append_fetch_ops, prepend_feed_ops  # noqa: F401  fluid's
from dpexec.engine.ir.undo import build_whole as _build_whole
from dpexec.io.checkpoint import load, load_program_state, save, set_program_state
from dpexec.io.inference import load_inference_model, save_inference_model
from dpexec.io.loading import load_params, load_persistables, load_vars
from dpexec.io.selection import (
    get_program_parameter,
    get_program_persistable_vars,
    is_belong_to_optimizer,
    is_parameter,
    is_persistable,
)
from dpexec.io.selection import valid_program as _get_valid_program  # noqa: F401
from dpexec.io.variables import (
    get_parameter_value,
    get_parameter_value_by_name,
    save_params,
    save_persistables,
    save_vars,
)
from dpexec.reader import DataLoader, PyReader
from dpexec.reading.batches import default_collate_fn
from dpexec.reading.decorators import (
    ComposeNotAligned,
    batch,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)
from dpexec.reading.samples import BatchSampler, Dataset

__all__ = [
    "BatchSampler",
    "ComposeNotAligned",
    "DataLoader",
    "Dataset",
    "PyReader",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "default_collate_fn",
    "firstn",
    "get_parameter_value",
    "get_parameter_value_by_name",
    "get_program_parameter",
    "get_program_persistable_vars",
    "is_belong_to_optimizer",
    "is_parameter",
    "is_persistable",
    "load",
    "load_inference_model",
    "load_params",
    "load_persistables",
    "load_program_state",
    "load_vars",
    "map_readers",
    "multiprocess_reader",
    "save",
    "save_inference_model",
    "save_params",
    "save_persistables",
    "save_vars",
    "set_program_state",
    "shuffle",
    "xmap_readers",
]

_own = [name for name in __all__ if globals()[name].__module__.startswith(f"{__name__}.")]
_build_whole(globals(), _own, __name__)
