"""The public names of dpexec, and the page of the site on which each is described.

Needs no Sphinx: ``tests/test_site.py`` compares this with the names that Paddle 1.8.5 has.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, get_origin

__all__ = ["SECTIONS", "Name", "identity", "modules", "names", "pages", "text"]

SECTIONS = {
    "Programs and running them": [
        "dpexec",
        "dpexec.framework",
        "dpexec.executor",
        "dpexec.compiler",
        "dpexec.parallel_executor",
        "dpexec.backward",
        "dpexec.core",
        "dpexec.unique_name",
        "dpexec.default_scope_funcs",
    ],
    "Nets": [
        "dpexec.layers",
        "dpexec.layers.control_flow",
        "dpexec.layers.detection",
        "dpexec.layers.distributions",
        "dpexec.layers.ops",
        "dpexec.layers.utils",
        "dpexec.layers.layer_function_generator",
        "dpexec.nets",
        "dpexec.input",
        "dpexec.initializer",
        "dpexec.param_attr",
        "dpexec.layer_helper",
        "dpexec.layer_helper_base",
    ],
    "Training": [
        "dpexec.optimizer",
        "dpexec.regularizer",
        "dpexec.clip",
        "dpexec.metrics",
        "dpexec.evaluator",
        "dpexec.average",
        "dpexec.checkpoint",
        "dpexec.onnx",
        "dpexec.sklearn",
    ],
    "Data": [
        "dpexec.io",
        "dpexec.reader",
        "dpexec.dataloader",
        "dpexec.dataset",
        "dpexec.data",
        "dpexec.data_feeder",
        "dpexec.data_feed_desc",
        "dpexec.lod_tensor",
        "dpexec.incubate",
        "dpexec.incubate.data_generator",
    ],
    "Several processes": [
        "dpexec.transpiler",
        "dpexec.transpiler.collective",
        "dpexec.transpiler.details",
        "dpexec.transpiler.details.checkport",
        "dpexec.transpiler.details.program_utils",
        "dpexec.transpiler.distribute_transpiler",
        "dpexec.transpiler.memory_optimization_transpiler",
        "dpexec.transpiler.ps_dispatcher",
        "dpexec.communicator",
        "dpexec.incubate.fleet.base.fleet_base",
        "dpexec.incubate.fleet.base.mode",
        "dpexec.incubate.fleet.base.role_maker",
        "dpexec.incubate.fleet.collective",
        "dpexec.incubate.fleet.parameter_server.distribute_transpiler",
        "dpexec.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy",
    ],
    "Contributed": [
        "dpexec.contrib",
        "dpexec.contrib.decoder",
        "dpexec.contrib.decoder.beam_search_decoder",
        "dpexec.contrib.extend_optimizer",
        "dpexec.contrib.layers",
        "dpexec.contrib.memory_usage_calc",
        "dpexec.contrib.mixed_precision",
        "dpexec.contrib.mixed_precision.decorator",
        "dpexec.contrib.mixed_precision.fp16_lists",
        "dpexec.contrib.mixed_precision.fp16_utils",
        "dpexec.contrib.model_stat",
        "dpexec.contrib.op_frequence",
        "dpexec.contrib.reader",
        "dpexec.contrib.slim",
        "dpexec.contrib.slim.quantization",
    ],
    "Seeing what happens": [
        "dpexec.viz",
        "dpexec.dashboard",
        "dpexec.profiler",
        "dpexec.debugger",
        "dpexec.log_helper",
        "dpexec.install_check",
    ],
    "Extending, errors, serving": [
        "dpexec.extend",
        "dpexec.errors",
        "dpexec.inference",
        "dpexec.ops",
        "dpexec.proto",
        "dpexec.proto.framework_pb2",
        "dpexec.annotations",
        "dpexec.wrapped_decorator",
        "dpexec.dygraph",
        "dpexec.detection_metric",
        "dpexec.weight_norm",
    ],
    "import paddle": [
        "dpexec.paddle",
        "dpexec.paddle.compat",
        "dpexec.paddle.reader",
        "dpexec.paddle.dataset",
        "dpexec.paddle.dataset.cifar",
        "dpexec.paddle.dataset.common",
        "dpexec.paddle.dataset.conll05",
        "dpexec.paddle.dataset.image",
        "dpexec.paddle.dataset.imdb",
        "dpexec.paddle.dataset.imikolov",
        "dpexec.paddle.dataset.mnist",
        "dpexec.paddle.dataset.movielens",
        "dpexec.paddle.dataset.sentiment",
        "dpexec.paddle.dataset.uci_housing",
        "dpexec.paddle.dataset.wmt14",
        "dpexec.paddle.dataset.wmt16",
        "dpexec.paddle.distributed.cloud_utils",
        "dpexec.paddle.distributed.launch",
        "dpexec.paddle.distributed.launch_ps",
        "dpexec.paddle.distributed.utils",
        "dpexec.paddle.utils",
        "dpexec.paddle.version",
    ],
}
"""Public modules by what they are for. The first one that has an object describes it."""

FURTHER = {
    "dpexec.framework": ["IrGraph", "IrOpNode", "IrVarNode", "dtype_is_floating"],
    "dpexec.executor": ["has_feed_operators", "has_fetch_operators"],
    "dpexec.layers.control_flow": [
        "ConditionalBlock",
        "array_to_lod_tensor",
        "lod_rank_table",
        "lod_tensor_to_array",
        "max_sequence_len",
        "merge_lod_tensor",
        "select_input",
        "select_output",
        "shrink_memory",
        "split_lod_tensor",
    ],
    "dpexec.layers.detection": ["detection_map"],
    "dpexec.layers.distributions": ["Distribution"],
    "dpexec.layers.ops": ["cumsum"],
    "dpexec.layers.utils": ["convert_to_list"],
    "dpexec.initializer": ["Initializer"],
    "dpexec.clip": ["GradientClipBase", "append_gradient_clip_ops", "error_clip_callback"],
    "dpexec.io": ["append_fetch_ops", "prepend_feed_ops"],
    "dpexec.reader": ["DatasetLoader"],
    "dpexec.transpiler.collective": ["Collective"],
    "dpexec.contrib.mixed_precision.decorator": ["OptimizerWithMixedPrecision"],
    "dpexec.paddle.dataset.conll05": [
        "corpus_reader",
        "fetch",
        "load_dict",
        "load_label_dict",
        "reader_creator",
    ],
    "dpexec.paddle.dataset.movielens": ["MovieInfo", "UserInfo", "fetch"],
    "dpexec.paddle.dataset.sentiment": ["fetch"],
    "dpexec.paddle.dataset.wmt14": ["fetch", "gen"],
}
"""Names that Paddle's modules show and programs use, though ``__all__`` leaves them out."""


@dataclass(frozen=True)
class Name:
    """A public name.

    Attributes:
        module: the module in whose list it is.
        name: how it is called there.
        value: the object.
        home: full name under which the object is described; another one for an alias.
    """

    module: str
    name: str
    value: Any
    home: str

    @property
    def full(self) -> str:
        """Module and name."""
        return f"{self.module}.{self.name}"


def modules() -> list[str]:
    """All public modules, in the order of the sections."""
    return [module for group in SECTIONS.values() for module in group]


def listed(module: ModuleType) -> list[str]:
    """The names that a module offers: its ``__all__``, else what it defines itself."""
    if given := getattr(module, "__all__", None):
        further = FURTHER.get(module.__name__, [])
        return sorted({*given, *further} - {"__version__"})
    own = {k: v for k, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__}
    return sorted(name for name in own if not name.startswith("_"))


def identity(value: Any) -> tuple[str, str] | None:
    """Module and name where an object is defined; None for values such as numbers."""
    place, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not place or not name:
        return None
    found: Any = sys.modules.get(place)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (place, name) if found is value else None


def text(name: Name) -> str:
    """The documentation of a name; of a type alias, the string after its assignment."""
    if get_origin(name.value) is not Annotated:
        return inspect.getdoc(name.value) or ""
    for place, module in list(sys.modules.items()):
        if place.startswith("dpexec.") and vars(module).get(name.name) is name.value:
            body = ast.parse(inspect.getsource(module)).body
            for made, said in itertools.pairwise(body):
                if isinstance(made, ast.Assign) and ast.unparse(made.targets[0]) == name.name:
                    return str(ast.literal_eval(said.value)) if isinstance(said, ast.Expr) else ""
    return ""


def names() -> list[Name]:
    """All public names, module by module."""
    homes: dict[tuple[str, str], str] = {}
    found = []
    for place in modules():
        module = importlib.import_module(place)
        for name in listed(module):
            value = getattr(module, name)
            if isinstance(value, ModuleType):
                continue
            key = identity(value) or ("", f"{place}.{name}")
            found.append(Name(place, name, value, homes.setdefault(key, f"{place}.{name}")))
    return found


def pages() -> dict[str, str]:
    """The page of each public name: that of its object, by full name."""
    return {name.full: f"api/{page_of(name.home)}" for name in names()}


def page_of(full: str) -> str:
    """The file of a name's page; capitals are told apart where file systems do not."""
    place, _, name = full.rpartition(".")
    return f"{place}.{name}-class" if name[:1].isupper() else f"{place}.{name}"
