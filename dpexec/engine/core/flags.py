"""``fluid.get_flags`` and ``fluid.set_flags``: the global flags of PaddlePaddle 1.8.5.

Programs set them to tune Paddle's C++ runtime. ``FLAGS_check_nan_inf`` does here what it does
there: a run fails at the first operator that computes an infinity or a NaN. So do
``FLAGS_fuse_parameter_memory_size`` and ``FLAGS_fuse_parameter_groups_size`` when a program is
compiled: they say how many gradients ``fuse_all_reduce_ops`` puts together. The others keep their
values but have no effect; the first assignment of another value than the default warns of that.
Environment variables of their names set them at the start. ``FLAGS_cudnn_deterministic``, which the
build for CPUs does not have, is an environment variable alone.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from dpexec.engine.core.errors import EnforceNotMet, see, similar

__all__ = ["Flags", "asks_for_equal_runs", "get_flags", "globals", "set_flags"]

# The flags of the build for CPUs. Those that are not public can be seen in core.globals() only.
_DEFAULTS: dict[str, bool | int | float | str] = {
    "FLAGS_allocator_strategy": "auto_growth",
    "FLAGS_benchmark": False,
    "FLAGS_check_nan_inf": False,
    "FLAGS_cpu_deterministic": False,
    "FLAGS_eager_delete_tensor_gb": 0.0,
    "FLAGS_enable_parallel_graph": False,
    "FLAGS_enable_rpc_profiler": False,
    "FLAGS_fraction_of_cpu_memory_to_use": 1.0,
    "FLAGS_free_idle_chunk": False,
    "FLAGS_free_when_no_cache_hit": False,
    "FLAGS_fuse_parameter_groups_size": 1,
    "FLAGS_fuse_parameter_memory_size": -1.0,
    "FLAGS_init_allocated_mem": False,
    "FLAGS_initial_cpu_memory_in_mb": 500,
    "FLAGS_inner_op_parallelism": 0,
    "FLAGS_memory_fraction_of_eager_deletion": 1.0,
    "FLAGS_multiple_of_cupti_buffer_size": 1,
    "FLAGS_paddle_num_threads": 1,
    "FLAGS_pe_profile_fname": "",
    "FLAGS_print_sub_graph_dir": "",
    "FLAGS_reader_queue_speed_test_mode": False,
    "FLAGS_tracer_profile_fname": "xxgperf",
    "FLAGS_use_mkldnn": False,
    "FLAGS_use_pinned_memory": True,
    "FLAGS_use_system_allocator": False,
}
_EFFECTIVE = {
    "FLAGS_check_nan_inf",
    "FLAGS_fuse_parameter_groups_size",
    "FLAGS_fuse_parameter_memory_size",
}
_PRIVATE = {"FLAGS_free_idle_chunk", "FLAGS_free_when_no_cache_hit", "FLAGS_use_mkldnn"}


class Flags:
    """Values of flags by name; each keeps the type of its default.

    Args:
        environment: texts that replace defaults.

    Attributes:
        current: the same values as a plain dict, for code that reads them in every step.

    Raises:
        RuntimeError: a text does not have the type of its flag.

    Example:
        >>> flags = Flags()
        >>> flags["FLAGS_eager_delete_tensor_gb"] = 0
        >>> flags["FLAGS_eager_delete_tensor_gb"]
        0.0
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.current = dict(_DEFAULTS)
        self._said: set[str] = set()
        given = environment or {}
        for name in _DEFAULTS.keys() & given.keys():
            self[name] = _parsed(name, given[name], type(_DEFAULTS[name]))

    def keys(self) -> set[str]:
        """Names of all flags."""
        return set(self.current)

    def is_public(self, name: str) -> bool:
        """Whether ``get_flags`` and ``set_flags`` know the flag."""
        return name in self.current and name not in _PRIVATE

    def __contains__(self, name: object) -> bool:
        return name in self.current

    def __iter__(self) -> Iterator[str]:
        return iter(self.current)

    def __len__(self) -> int:
        return len(self.current)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a flag, or another value if there is no such flag."""
        return self.current.get(name, default)

    def __getitem__(self, name: str) -> bool | int | float | str:
        self._require(name)
        return self.current[name]

    def _require(self, name: str) -> None:
        if name not in self:
            raise EnforceNotMet(f"there is no flag {name}{similar(name, self.current)}")

    def __setitem__(self, name: str, value: Any) -> None:
        self._require(name)
        converted = _convert(name, value, type(_DEFAULTS[name]))
        if converted != _DEFAULTS[name] and name not in self._said | _EFFECTIVE:
            self._said.add(name)
            warnings.warn(
                f"{name} is accepted but has no effect in this version of dpexec", stacklevel=3
            )
        self.current[name] = converted


def _convert(name: str, value: Any, kind: type) -> Any:
    if kind is bool and (value is None or hasattr(value, "__bool__")):
        return bool(value)
    if kind is int and hasattr(value, "__index__"):
        return int(value)
    if kind is float and hasattr(value, "__float__"):
        return float(value)
    if kind is str and isinstance(value, str):
        return value
    raise RuntimeError(f"{name} takes a value of type {kind.__name__}, but received {value!r}")


def _parsed(name: str, text: str, kind: type) -> Any:
    words = {"1": True, "true": True, "t": True, "yes": True, "y": True}
    words |= {"0": False, "false": False, "f": False, "no": False, "n": False}
    try:
        return words[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        message = f"environment variable {name}={text!r} is no {kind.__name__}"
        raise RuntimeError(message) from None


_FLAGS = Flags(os.environ)


current = _FLAGS.current
"""The values of all flags of this process; :func:`set_flags` changes them."""


def asks_for_equal_runs() -> bool:
    """Whether ``FLAGS_cudnn_deterministic`` is set: GPUs must give the same bits in every run."""
    flag = os.environ.get("FLAGS_cudnn_deterministic", "")  # noqa: SIM112 - Paddle's name
    return flag.lower() in ("1", "t", "true", "y", "yes")


def globals() -> Flags:
    """``fluid.core.globals()``: all flags of this process.

    Returns:
        The flags; like a dict from name to value, whose values can be set.

    Example:
        >>> from dpexec import core
        >>> flags = core.globals()
        >>> flags["FLAGS_check_nan_inf"], "FLAGS_no_such_flag" in flags
        (False, False)
    """
    return _FLAGS


def get_flags(flags: str | list[str] | tuple[str, ...]) -> dict[str, bool | int | float | str]:
    """Values of flags.

    Args:
        flags: one name, or a list or tuple of names.

    Returns:
        Value by name.

    Raises:
        TypeError: ``flags`` is something else.
        ValueError: there is no such flag.

    See Also:
        :func:`~dpexec.set_flags`: sets them.

    Example:
        >>> import dpexec as fluid
        >>> fluid.get_flags(["FLAGS_check_nan_inf", "FLAGS_benchmark"])
        {'FLAGS_check_nan_inf': False, 'FLAGS_benchmark': False}
    """
    if not isinstance(flags, (str, list, tuple)):
        raise TypeError("Flags in get_flags should be a list, tuple or string.")
    names = [flags] if isinstance(flags, str) else flags
    return {name: _FLAGS[_known(name, "get")] for name in names}


def set_flags(flags: dict[str, Any]) -> None:
    """Set flags. Those without effect in dpexec say so once.

    Args:
        flags: value by name.

    Raises:
        TypeError: ``flags`` is no dict.
        ValueError: there is no such flag; those before it are set.
        RuntimeError: a value of a type that the flag does not take.

    See Also:
        :func:`~dpexec.get_flags`: reads them.

    Example:
        >>> import dpexec as fluid
        >>> fluid.set_flags({"FLAGS_check_nan_inf": True})
        >>> fluid.get_flags("FLAGS_check_nan_inf")
        {'FLAGS_check_nan_inf': True}
        >>> fluid.set_flags({"FLAGS_check_nan_inf": False})
    """
    if not isinstance(flags, dict):
        raise TypeError("flags in set_flags should be a dict")
    for name, value in flags.items():
        _FLAGS[_known(name, "set")] = value


def _known(name: str, action: str) -> str:
    if not _FLAGS.is_public(name):
        known = ", ".join(sorted(flag for flag in _FLAGS if _FLAGS.is_public(flag)))
        problem = (
            f"Flag {name} cannot {action} its value through this function. The flags are {known}"
        )
        raise see("a-flag-that-is-not-there", ValueError(problem))
    return name
