"""Strategies of fleets with parameter servers: synchronisation of servers, and how trainers run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dpexec.engine.core.places import cpu_num
from dpexec.engine.ir.callsite import warn
from dpexec.engine.strategy.strategies import BuildStrategy, ExecutionStrategy
from dpexec.incubate.fleet.parameter_server.distribute_transpiler.runtime_configs import (
    ServerRuntimeConfig,
    TrainerRuntimeConfig,
)
from dpexec.transpiler.config import DistributeTranspilerConfig

__all__ = [
    "AsyncStrategy",
    "DistributedStrategy",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
]


class DistributedStrategy:
    """How a program is divided, compiled and run; subclasses define what servers wait for.

    With ``CPU_NUM`` replicas of a trainer, it is compiled in Reduce mode for as many threads.

    Example:
        >>> from dpexec.incubate.fleet.parameter_server import distribute_transpiler
        >>> strategy = distribute_transpiler.SyncStrategy()
        >>> strategy.set_program_config({"slice_var_up": False})
        >>> strategy.get_program_config().slice_var_up
        False
    """

    _config: ClassVar[Mapping[str, Any]] = {}

    def __init__(self) -> None:
        self._program_config = DistributeTranspilerConfig()
        self._execute_strategy = ExecutionStrategy()
        self._build_strategy = BuildStrategy()
        self._trainer_runtime_config = TrainerRuntimeConfig()
        self._server_runtime_config = ServerRuntimeConfig()
        replicas = cpu_num(1)
        self._execute_strategy.num_threads = replicas
        if replicas > 1:
            self._build_strategy.reduce_strategy = BuildStrategy.ReduceStrategy.Reduce
        self._set_what_it_stands_for()

    def _set_what_it_stands_for(self) -> None:
        self._program_config.sync_mode = False
        for name, value in self._config.items():
            setattr(self._program_config, name, value)
        self._build_strategy.async_mode = True

    def get_program_config(self) -> DistributeTranspilerConfig:
        """How the program is divided."""
        return self._program_config

    def set_program_config(self, config: DistributeTranspilerConfig | Mapping[str, Any]) -> None:
        """Set how the program is divided; fields that define the strategy keep their values.

        Args:
            config: an object with all fields, or a dict with some.

        Raises:
            TypeError: ``config`` is neither.
            ValueError: there is no such field.
        """
        self._program_config = _changed(self._program_config, config)
        self._set_what_it_stands_for()

    def get_execute_strategy(self) -> ExecutionStrategy:
        """How the compiled program is run."""
        return self._execute_strategy

    def set_execute_strategy(self, config: ExecutionStrategy | Mapping[str, Any]) -> None:
        """Set how the compiled program is run.

        Args:
            config: an object with all fields, or a dict with some.

        Raises:
            TypeError: ``config`` is neither.
            ValueError: there is no such field.
        """
        self._execute_strategy = _changed(self._execute_strategy, config)

    def get_build_strategy(self) -> BuildStrategy:
        """How the program is compiled."""
        return self._build_strategy

    def set_build_strategy(self, config: BuildStrategy | Mapping[str, Any]) -> None:
        """Set how the program is compiled; fields that define the strategy keep their values.

        Args:
            config: an object with all fields, or a dict with some.

        Raises:
            TypeError: ``config`` is neither.
            ValueError: there is no such field.
        """
        self._build_strategy = _changed(self._build_strategy, config)
        self._set_what_it_stands_for()

    def get_trainer_runtime_config(self) -> TrainerRuntimeConfig:
        """Options of the trainer's communicator; they have no effect."""
        return self._trainer_runtime_config

    def set_trainer_runtime_config(self, config: TrainerRuntimeConfig | Mapping[str, Any]) -> None:
        """Accept options of the trainer's communicator.

        Args:
            config: an object with all options, or a dict with some.

        Raises:
            TypeError: ``config`` is neither.
            ValueError: there is no such option.
        """
        known = self._trainer_runtime_config
        if isinstance(config, Mapping):
            unknown = next((name for name in config if name not in known.runtime_configs), None)
            if unknown is not None:
                raise ValueError(f"TrainerRuntimeConfig doesn't have key: {unknown}")
            known.runtime_configs.update(config)
        else:
            self._trainer_runtime_config = _changed(known, config)
        warn("TrainerRuntimeConfig has no effect: trainers exchange once a step")

    def get_server_runtime_config(self) -> ServerRuntimeConfig:
        """Numbers of threads of servers; they have no effect."""
        return self._server_runtime_config

    def set_server_runtime_config(self, config: ServerRuntimeConfig | Mapping[str, Any]) -> None:
        """Accept numbers of threads of servers.

        Args:
            config: an object with all fields, or a dict with some.

        Raises:
            TypeError: ``config`` is neither.
            ValueError: there is no such field.
        """
        self._server_runtime_config = _changed(self._server_runtime_config, config)
        warn("ServerRuntimeConfig has no effect: a server has a thread for each trainer")


def _changed(known: Any, config: Any) -> Any:
    kind = type(known)
    if isinstance(config, kind):
        return config
    if not isinstance(config, Mapping):
        raise TypeError(f"a dict or a {kind.__name__} is expected, but received {config!r}")
    for name, value in config.items():
        if not hasattr(known, name):
            raise ValueError(f"{kind.__name__} doesn't have key: {name}")
        setattr(known, name, value)
    return known


class SyncStrategy(DistributedStrategy):
    """Servers wait for the gradients of all trainers.

    Example:
        >>> from dpexec.incubate.fleet.parameter_server.distribute_transpiler import SyncStrategy
        >>> config = SyncStrategy().get_program_config()
        >>> config.sync_mode, config.completely_not_async  # sync_mode is False, as in fluid
        (False, True)
    """

    _config: ClassVar[Mapping[str, Any]] = {
        "runtime_split_send_recv": True,
        "half_async": True,
        "completely_not_async": True,
    }


class AsyncStrategy(DistributedStrategy):
    """Servers apply gradients on arrival, without waiting.

    Example:
        >>> from dpexec.incubate.fleet.parameter_server.distribute_transpiler import AsyncStrategy
        >>> config = AsyncStrategy().get_program_config()
        >>> config.half_async, config.completely_not_async
        (False, False)
    """

    _config: ClassVar[Mapping[str, Any]] = {"runtime_split_send_recv": True}


class HalfAsyncStrategy(DistributedStrategy):
    """Servers apply gradients on arrival; the replicas of a trainer wait for each other.

    Example:
        >>> from dpexec.incubate.fleet.parameter_server import distribute_transpiler
        >>> config = distribute_transpiler.HalfAsyncStrategy().get_program_config()
        >>> config.half_async, config.completely_not_async
        (True, False)
    """

    _config: ClassVar[Mapping[str, Any]] = {"runtime_split_send_recv": True, "half_async": True}


class GeoStrategy(DistributedStrategy):
    """Trainers update their own parameters, and exchange the changes every few steps.

    Args:
        update_frequency: number of steps between exchanges.

    Example:
        >>> from dpexec.incubate.fleet.parameter_server.distribute_transpiler import GeoStrategy
        >>> config = GeoStrategy(update_frequency=20).get_program_config()
        >>> config.geo_sgd_mode, config.geo_sgd_need_push_nums  # in steps
        (True, 20)
    """

    _config: ClassVar[Mapping[str, Any]] = {"runtime_split_send_recv": True, "geo_sgd_mode": True}

    def __init__(self, update_frequency: int = 100) -> None:
        super().__init__()
        self._program_config.geo_sgd_need_push_nums = update_frequency


class StrategyFactory:
    """Creates strategies.

    Example:
        >>> from dpexec.incubate.fleet.parameter_server.distribute_transpiler import StrategyFactory
        >>> strategy = StrategyFactory.create_geo_strategy(update_frequency=50)
        >>> strategy.get_program_config().geo_sgd_need_push_nums
        50
    """

    @staticmethod
    def create_sync_strategy() -> SyncStrategy:
        """Servers wait for the gradients of all trainers."""
        return SyncStrategy()

    @staticmethod
    def create_half_async_strategy() -> HalfAsyncStrategy:
        """Servers apply gradients on arrival; the replicas of a trainer wait for each other."""
        return HalfAsyncStrategy()

    @staticmethod
    def create_async_strategy() -> AsyncStrategy:
        """Servers apply gradients on arrival, without waiting."""
        return AsyncStrategy()

    @staticmethod
    def create_geo_strategy(update_frequency: int = 100) -> GeoStrategy:
        """Trainers update their own parameters; see :class:`GeoStrategy`."""
        return GeoStrategy(update_frequency)
