"""Modules and nets for workers of tests, loaded once by the process that they are forked from.

Each of two hundred workers would take 0.4 s of a processor to import what makes code, and to
load the kernels of its first net.
"""

from importlib import import_module

from dpexec.engine import kernels
from dpexec.engine.kernels import implementations

MODULES = [
    "distributed.cli.dask_scheduler",
    "distributed.cli.dask_worker",
    "distributed.nanny",
    "distributed.protocol.numpy",
    "dpexec.engine.cluster.worker.resident",
    "dpexec.engine.cluster.worker.state",
    "dpexec.engine.compile.bindings.code_step",
    "dpexec.engine.exchange.memory_sums",
    "tests.distributed.forked_dask",
]

KERNELS = {
    "compile.bindings.sizes": "_write",
    "kernels.batch_norm": "_gradient _moving _scaled _statistics _sums",
    "kernels.collectives": "add copy join place post",
    "kernels.copying": "in_blocks of_rows",
    "kernels.dropout": "_dropout _dropout_grad",
    "kernels.embedding": "_gather _name_rows _scatter",
    "kernels.layouts": "turn",
    "kernels.losses": "_cross_entropy _cross_entropy_grad _mean _mean_grad",
    "kernels.onednn_calls": "execute product",
    "kernels.optimizers": "_adam advance",
    "kernels.pooling": "_largest_of_four _largest_of_four_gradient",
    "kernels.sequences": "_choices _complete _maxima in_bounds",
    "kernels.softmax": "_softmax _softmax_grad",
    "kernels.sparse": "_keep_order _lazy_adam_rows _merge append",
}
"""Those of the nets that most tests train (``tests.distributed.nets``), but for generated ones."""

for module in MODULES:
    import_module(module)
implementations.load_all()
if kernels.available():
    for module, names in KERNELS.items():
        known = vars(import_module(f"dpexec.engine.{module}"))
        for name in names.split():
            _ = known[name].address
