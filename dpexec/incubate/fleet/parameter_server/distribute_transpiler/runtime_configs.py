"""Tuning options of fluid's communicators and servers; dpexec exchanges once per step."""

from __future__ import annotations

import os

__all__ = ["ServerRuntimeConfig", "TrainerRuntimeConfig"]


class TrainerRuntimeConfig:
    """Options of the communicator of a trainer: accepted, without effect.

    Attributes:
        runtime_configs: the options by name, as text.

    Example:
        >>> from dpexec.incubate.fleet.parameter_server import distribute_transpiler
        >>> config = distribute_transpiler.distributed_strategy.TrainerRuntimeConfig()
        >>> config.runtime_configs["communicator_send_wait_times"]
        '5'
    """

    def __init__(self) -> None:
        replicas = os.environ.get("CPU_NUM", "1")
        defaults = {
            "communicator_max_merge_var_num": replicas,
            "communicator_send_queue_size": replicas,
            "communicator_independent_recv_thread": "1",
            "communicator_min_send_grad_num_before_recv": replicas,
            "communicator_thread_pool_size": "5",
            "communicator_send_wait_times": "5",
            "communicator_is_sgd_optimizer": "1",
            "rpc_deadline": "180000",
            "rpc_retry_times": "3",
        }
        self.runtime_configs = {
            name: os.environ.get(f"FLAGS_{name}", value) for name, value in defaults.items()
        }

    def get_communicator_flags(self) -> dict[str, str]:
        """All options, as text."""
        return {name: str(value) for name, value in self.runtime_configs.items()}

    def __repr__(self) -> str:
        options = ", ".join(f"{k}={v}" for k, v in self.get_communicator_flags().items())
        return f"TrainerRuntimeConfig({options})"


class ServerRuntimeConfig:
    """Numbers of threads of a server: accepted, without effect."""

    def __init__(self) -> None:
        threads = [
            int(os.environ.get(f"FLAGS_rpc_{what}_thread_num", "12"))
            for what in ("send", "get", "prefetch")
        ]
        self._rpc_send_thread_num, self._rpc_get_thread_num = threads[:2]
        self._rpc_prefetch_thread_num = threads[2]
