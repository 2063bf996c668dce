"""The peers: how each is started, and with which Python."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PEERS = Path(__file__).parent / "peers"
CPUS = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Kind:
    """One way in which one framework trains.

    Args:
        script: file in ``peers``.
        mode: what the script is told.
        package: what its Python must be able to import.
        parallel: whether it trains data-parallel.
        processes: whether every replica is a process of its own.
        devices: what it trains on.
    """

    script: str
    mode: str
    package: str
    parallel: bool = False
    processes: bool = False
    devices: tuple[str, ...] = ("cpu",)


_BOTH = ("cpu", "gpu")
KINDS = {
    "dpexec": Kind("train_fluid.py", "parallel", "dpexec", parallel=True, devices=_BOTH),
    "dpexec-single": Kind("train_fluid.py", "single", "dpexec", devices=_BOTH),
    "dpexec-cluster": Kind("train_fluid.py", "cluster", "dpexec", parallel=True),
    "dpexec-trainers": Kind("train_fluid.py", "trainers", "dpexec", parallel=True, processes=True),
    "paddle18": Kind("train_fluid.py", "parallel", "paddle.fluid", parallel=True),
    "paddle18-single": Kind("train_fluid.py", "single", "paddle.fluid"),
    "torch": Kind("train_torch.py", "eager", "torch", devices=_BOTH),
    "torch-compile": Kind("train_torch.py", "compile", "torch", devices=_BOTH),
    "torch-graphs": Kind("train_torch.py", "graphs", "torch", devices=("gpu",)),
    "torch-ddp": Kind("train_torch.py", "ddp", "torch", parallel=True, processes=True),
    "jax": Kind("train_jax.py", "jit", "jax", devices=_BOTH),
    "jax-devices": Kind("train_jax.py", "devices", "jax", parallel=True, devices=_BOTH),
    "tf": Kind("train_tensorflow.py", "function", "tensorflow"),
    "tf-mirrored": Kind("train_tensorflow.py", "mirrored", "tensorflow", parallel=True),
    "products": Kind("products.py", "numpy", "numpy"),
    "dpexec-products": Kind("products.py", "dpexec", "dpexec", parallel=True),
    "traffic": Kind("products.py", "numpy traffic", "numpy"),
    "torch-products": Kind("products.py", "torch", "torch", devices=_BOTH),
    "torch-traffic": Kind("products.py", "traffic", "torch", devices=("gpu",)),
    "dask-tasks": Kind("pass_values.py", "tasks", "distributed", parallel=True),
    "dask-actors": Kind("pass_values.py", "actors", "distributed", parallel=True),
    "ray-actors": Kind("pass_values.py", "ray actors", "ray", parallel=True),
    "ray-graph": Kind("pass_values.py", "ray graph", "ray", parallel=True),
}
ALL = [
    "paddle18",
    "paddle18:num_threads=2",
    "paddle18:num_threads=2:reduce_strategy=Reduce",
    *(
        name
        for name, kind in KINDS.items()
        if name.startswith(("torch", "jax", "tf"))
        and "cpu" in kind.devices
        and name[-8:] != "products"
    ),
]
_SWITCHED = (
    "allow_cuda_graph_capture", "fuse_gemm_epilogue", "fuse_bn_act_ops", "enable_auto_fusion",
    "fuse_all_optimizer_ops", "fuse_softmax_with_cross_entropy",
)  # fmt: skip
GPU = [
    "dpexec:allow_cuda_graph_capture=True",
    ":".join(["dpexec", *(f"{field}=True" for field in _SWITCHED)]),
    "torch",
    "torch-compile",
    "torch-graphs",
    "jax",
]


class AbsentError(Exception):
    """A peer is not installed."""


@dataclass(frozen=True)
class Entry:
    """A peer on a workload.

    Args:
        label: a name of ``KINDS``, then settings: ``paddle18:num_threads=2``. A setting in capitals
            is an environment variable, others are fields of BuildStrategy or ExecutionStrategy.
        spec: the workload.
        replicas: how many share a batch, where training is data-parallel.
        device: ``"cpu"``, or ``"gpu"``: a GPU for each replica.
        precision: what matrix products are computed in on GPUs.

    Raises:
        ValueError: no such peer on such devices, or a setting without a value or without a meaning.
    """

    label: str
    spec: dict[str, Any]
    replicas: int = 2
    device: str = "cpu"
    precision: str = "float32"
    settings: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        name, *rest = self.label.split(":")
        if name not in KINDS:
            raise ValueError(f"there is no peer {name!r}; there are: {', '.join(KINDS)}")
        if self.device not in KINDS[name].devices:
            raise ValueError(f"{name} is not for {self.device}s")
        if any("=" not in text for text in rest):
            raise ValueError(f"{self.label!r} is not of the form NAME:SETTING=VALUE:...")
        settings = dict(text.split("=", 1) for text in rest)
        fields = [key for key in settings if not key.isupper()]
        if fields and not (KINDS[name].script == "train_fluid.py" and KINDS[name].parallel):
            raise ValueError(f"{name} has no field {fields[0]!r}; dpexec and paddle18 have some")
        object.__setattr__(self, "settings", settings)

    @property
    def name(self) -> str:
        """The label without settings."""
        return self.label.partition(":")[0]

    @property
    def kind(self) -> Kind:
        """How it trains."""
        return KINDS[self.name]

    @property
    def shares(self) -> int:
        """Number of parts of a batch."""
        return self.replicas if self.kind.parallel else 1

    def python(self) -> str:
        """The Python that has the peer: ``DPEXEC_PEER_TORCH``, or the one that runs this.

        Raises:
            AbsentError: neither has it.
            ValueError: the variable names no program.
        """
        variable = variable_of(self.name)
        path = os.environ.get(variable)
        if path:
            if not shutil.which(path):
                raise ValueError(f"{variable}={path}: there is no such program")
            return path
        if not _importable(self.kind.package):
            raise AbsentError(f"{self.kind.package} is not installed and {variable} is not set")
        return sys.executable

    def command(self, rank: int, meet: str) -> list[str]:
        """The command line of one process.

        Args:
            rank: its number.
            meet: a file that does not exist, by which the processes of the peer find each other.
        """
        options = {key: text for key, text in self.settings.items() if not key.isupper()}
        if self.kind.script == "train_fluid.py":
            options["package"] = self.kind.package
        if self.kind.processes:
            options["meet"] = meet
        request = {
            "spec": self.spec,
            "mode": self.kind.mode,
            "replicas": self.shares,
            "rank": rank,
            "device": self.device,
            "precision": self.precision,
            "options": options,
        }
        script = str(PEERS / self.kind.script)
        return [self.python(), "-W", "ignore", script, json.dumps(request)]

    def environment(self) -> dict[str, str]:
        """The environment variables: as many threads as there are processors, where one can say."""
        threads = max(1, CPUS // self.shares)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self.shares)))
        gpus = visible.split(",")[: self.shares] if self.device == "gpu" else ["-1"]
        chosen = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
        if self.kind.script == "train_fluid.py":
            elsewhere = self.kind.mode in ("cluster", "trainers")  # a replica in each process
            chosen["CPU_NUM"] = "1" if elsewhere else str(self.shares)
        if self.kind.package == "paddle.fluid":
            chosen |= {"OMP_NUM_THREADS": "1", "GLOG_minloglevel": "2"}
            chosen["FLAGS_initial_cpu_memory_in_mb"] = "16"  # else memory says nothing below 500 MB
        if self.kind.package == "torch":
            chosen |= {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
            if self.device == "cpu":  # else processes that only take memory
                chosen["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        if self.kind.package == "jax":
            flag = f"--xla_force_host_platform_device_count={self.shares}"
            on_gpus = {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
            on_cpus = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flag}
            chosen |= on_gpus if self.device == "gpu" else on_cpus
        if self.kind.package == "ray":  # they stand still while others train, for longer than 10 s
            chosen |= {"RAY_CGRAPH_get_timeout": "600", "RAY_CGRAPH_submit_timeout": "600"}
        if self.kind.package == "tensorflow":
            chosen["TF_CPP_MIN_LOG_LEVEL"] = "3"
        chosen |= {key: text for key, text in self.settings.items() if key.isupper()}
        return os.environ | chosen


def variable_of(name: str) -> str:
    """The environment variable that names a peer's Python: one for each framework."""
    return f"DPEXEC_PEER_{name.partition('-')[0].upper()}"


def installed(labels: Iterable[str], replicas: int, device: str = "cpu") -> list[str]:
    """Labels of those peers that are there, each once; says which are not.

    Raises:
        ValueError: a label is wrong.
    """
    found = []
    for label in dict.fromkeys(filter(None, labels)):
        entry = Entry(label, {}, replicas, device)
        try:
            entry.python()
        except AbsentError as error:
            print(f"{label} is left out: {error}", file=sys.stderr)
        else:
            found.append(label)
    return found


def _importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
