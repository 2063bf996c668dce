"""Settings: the fields of strategies and the flags in which trials differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpexec.engine.core.flags import get_flags
from dpexec.engine.strategy.strategies import BuildStrategy, ExecutionStrategy

MEGABYTES = "FLAGS_fuse_parameter_memory_size"


@dataclass(frozen=True)
class Setting:
    """The difference of a trial from the user's settings; empty without a difference.

    Args:
        build: Fields of BuildStrategy, by name.
        execution: Fields of ExecutionStrategy, by name.
        flags: Flags that are set while a program is compiled.
    """

    build: Mapping[str, Any] = field(default_factory=dict)
    execution: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Any]:
        """All values by name."""
        return {**self.build, **self.execution, **self.flags}

    def __or__(self, other: Setting) -> Setting:
        """The combination of two settings."""
        return Setting(
            {**self.build, **other.build},
            {**self.execution, **other.execution},
            {**self.flags, **other.flags},
        )

    def __str__(self) -> str:
        return ", ".join(f"{name} = {_word(value)}" for name, value in self.fields.items())

    def lines(self) -> list[str]:
        """Code that sets it, with variables named after the classes of strategies."""
        made = [f"fluid.set_flags({{{name!r}: {value!r}}})" for name, value in self.flags.items()]
        for variable, values in (
            ("build_strategy", self.build),
            ("execution_strategy", self.execution),
        ):
            made += [f"{variable}.{name} = {_code(value)}" for name, value in values.items()]
        return made


def _word(value: Any) -> str:
    return str(getattr(value, "name", value))


def _code(value: Any) -> str:
    if isinstance(value, BuildStrategy.ReduceStrategy):
        return f"fluid.BuildStrategy.ReduceStrategy.{value.name}"
    return repr(value)


_BOTH_WAYS = (
    "fuse_all_reduce_ops",
    "fuse_all_optimizer_ops",
    "fuse_broadcast_ops",
    "fuse_elewise_add_act_ops",
    "fuse_bn_act_ops",
    "fuse_relu_depthwise_conv",
    "enable_auto_fusion",
    "enable_addto",
    "enable_sequential_execution",
    "common_subexpressions",
    "constant_folding",
    "remove_identities",
    "memory_optimize",
)
"""Fields that are tried on and off; they do not change results."""

_ON = ("native_kernels", "enable_inplace", "skip_dead_ops")
"""Fields that are only tried on; users turn them off to look for a mistake."""

_ON_GPUS = ("allow_cuda_graph_capture",)

_ROUNDING = ("fuse_softmax_with_cross_entropy", "fuse_gemm_epilogue")
"""Fields that change results by rounding."""


@dataclass(frozen=True)
class Situation:
    """The facts that decide which settings are considered.

    Args:
        build: The user's BuildStrategy.
        execution: The user's ExecutionStrategy.
        devices: Number of devices.
        cpus: Number of processors that the process may use.
        scheduler: The current scheduler: "threads" or "sync".
        threads: Size of the pool of threads.
        on_gpus: Whether the devices are GPUs.
        gradient_bytes: Bytes that a device aggregates in a step; 0 for a program without gradients.
    """

    build: BuildStrategy
    execution: ExecutionStrategy
    devices: int
    cpus: int
    scheduler: str
    threads: int
    on_gpus: bool
    gradient_bytes: int


def settings(found: Situation, rounding: bool) -> Iterator[Setting]:
    """Every single change of the user's settings that may help.

    Args:
        found: The user's settings.
        rounding: Whether results may change by rounding.
    """
    yield from _schedulers(found)
    yield from _modes(found)
    for name in _BOTH_WAYS:
        yield Setting({name: not _is_on(found.build, name)})
    for name in (*_ON, *(_ON_GPUS if found.on_gpus else ()), *(_ROUNDING if rounding else ())):
        if not getattr(found.build, name) and (name != "fuse_gemm_epilogue" or found.on_gpus):
            yield Setting({name: True})
    other = "op" if found.build.task_granularity == "segment" else "segment"
    yield Setting({"task_granularity": other})


def _is_on(build: BuildStrategy, name: str) -> bool:
    value = getattr(build, name)
    return True if value is None else bool(value)  # of memory_optimize


def _schedulers(found: Situation) -> Iterator[Setting]:
    if found.on_gpus:
        return
    if found.scheduler == "threads":
        yield Setting(execution={"scheduler": "sync"})
    sizes = dict.fromkeys([found.devices, found.cpus, 2 * found.devices, 4 * found.devices])
    for size in sizes:
        if found.scheduler == "sync" and size == found.devices > 1:
            yield Setting(execution={"scheduler": "threads", "num_threads": size})
        elif found.scheduler == "threads" and size not in (0, 1, found.threads):
            yield Setting(execution={"num_threads": size})


def _modes(found: Situation) -> Iterator[Setting]:
    """Modes of aggregation, and sizes of buckets."""
    if found.devices < 2 or not found.gradient_bytes:
        return
    kinds = BuildStrategy.ReduceStrategy
    reduces = found.build.reduce_strategy == kinds.Reduce
    yield Setting({"reduce_strategy": kinds.AllReduce if reduces else kinds.Reduce})
    if reduces or not found.build.fuse_all_reduce_ops:
        return
    now, whole = get_flags([MEGABYTES])[MEGABYTES], found.gradient_bytes / 1e6
    for part in (4, 2, 1):
        size = _rounded_up(whole / part)
        if size != now:
            yield Setting(flags={MEGABYTES: size})


def _rounded_up(value: float) -> float:
    """A number rounded up to two digits.

    Example:
        >>> _rounded_up(1.234), _rounded_up(0.0611), _rounded_up(120.0)
        (1.3, 0.062, 120.0)
    """
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / digit - 1e-9) * digit:.2g}")
