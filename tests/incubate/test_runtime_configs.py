"""Options of fluid's communicators and servers are accepted, with a warning if without effect."""

import pytest

from dpexec.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (
    StrategyFactory,
    TrainerRuntimeConfig,
)


def test_options_of_communicators_are_kept(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "3")
    monkeypatch.setenv("FLAGS_rpc_retry_times", "9")
    strategy = StrategyFactory.create_async_strategy()
    with pytest.warns(UserWarning, match="TrainerRuntimeConfig has no effect"):
        strategy.set_trainer_runtime_config({"communicator_send_queue_size": 4})
    flags = strategy.get_trainer_runtime_config().get_communicator_flags()
    assert flags["communicator_send_queue_size"] == "4"
    assert flags["communicator_max_merge_var_num"] == "3"
    assert flags["rpc_retry_times"] == "9"
    assert "rpc_retry_times=9" in repr(strategy.get_trainer_runtime_config())
    other = TrainerRuntimeConfig()
    with pytest.warns(UserWarning, match="no effect"):
        strategy.set_trainer_runtime_config(other)
    assert strategy.get_trainer_runtime_config() is other


def test_numbers_of_threads_are_kept():
    strategy = StrategyFactory.create_sync_strategy()
    with pytest.warns(UserWarning, match="ServerRuntimeConfig has no effect"):
        strategy.set_server_runtime_config({"_rpc_get_thread_num": 2})
    assert strategy.get_server_runtime_config()._rpc_get_thread_num == 2


def test_unknown_options_are_refused():
    strategy = StrategyFactory.create_sync_strategy()
    for change in (strategy.set_trainer_runtime_config, strategy.set_server_runtime_config):
        with pytest.raises(ValueError, match="doesn't have key: colour"):
            change({"colour": 1})
        with pytest.raises(TypeError, match="a dict or a"):
            change(3)
