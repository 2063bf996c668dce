"""``fleet`` with parameter servers: the programs of each role, and refused calls."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.parameter_server.client import Servers
from dpexec.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
from dpexec.incubate.fleet.parameter_server import distribute_transpiler
from dpexec.incubate.fleet.parameter_server.distribute_transpiler import (
    DistributedTranspiler,
    StrategyFactory,
)
from tests.engine.parameter_server.runs import Server, free_endpoints, train_alone, values
from tests.fixtures import pserver_cases as cases


@pytest.fixture
def fleets(monkeypatch):
    """Makes the fleet of a process."""
    monkeypatch.setenv("FLAGS_rpc_deadline", "8000")

    def make(role, servers, number=0, trainers=1):
        made = DistributedTranspiler()
        monkeypatch.setattr(distribute_transpiler, "fleet", made)
        made.init(UserDefinedRoleMaker(number, role, trainers, servers))
        return made

    return make


def minimize(fleet, strategy=None):
    """Divide a program; gives the loss."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = cases.dense(fluid)
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    return loss


class _Divided:
    """What a thread of a server asks a transpiler."""

    def __init__(self, fleet):
        self.fleet = fleet

    def get_pserver_programs(self, endpoint):
        return self.fleet.main_program, self.fleet.startup_program


CONFIG = fluid.DistributeTranspilerConfig()
CONFIG.sync_mode = False


@pytest.mark.parametrize(
    "strategy",
    [
        None,
        StrategyFactory.create_async_strategy,
        StrategyFactory.create_half_async_strategy,
        lambda: StrategyFactory.create_geo_strategy(2),
    ],
)
def test_a_trainer_and_its_server_compute_what_one_process_does(fleets, strategy):
    strategy = strategy and strategy()
    servers = free_endpoints(1)
    serving = fleets(Role.SERVER, servers)
    minimize(serving, strategy)
    server = Server(_Divided(serving), servers[0])
    trainer = fleets(Role.WORKER, servers)
    loss = minimize(trainer, strategy)
    assert trainer.is_first_worker() and trainer.server_endpoints(to_string=True) == servers[0]
    exe, losses = fluid.Executor(fluid.CPUPlace()), []
    with fluid.scope_guard(fluid.Scope()):
        trainer.init_worker()
        with pytest.warns(UserWarning, match="has been initialized"):
            trainer.init_worker()
        exe.run(trainer.startup_program)
        for step in range(4):
            feed = cases.batch("sgd", step, 0)
            losses.append(exe.run(trainer.main_program, feed, [loss])[0].item())
        found = values(trainer.main_program, fluid.global_scope())
        trainer.stop_worker()
    server.join()
    expected, parameters = train_alone("one_trainer", trainers=1)
    assert losses == expected
    for name, value in parameters.items():
        np.testing.assert_array_equal(found[name], value)


def test_servers_load_their_blocks_of_what_a_trainer_saved(fleets, tmp_path):
    servers = free_endpoints(2)
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode = True
    trainer = fleets(Role.WORKER, servers)
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = fluid.layers.data("x", [128])
        loss = fluid.layers.mean(fluid.layers.fc(x, 200))
        trainer.distributed_optimizer(fluid.optimizer.SGD(0.1), config).minimize(loss)
    main, weights = trainer.main_program, np.arange(128 * 200, dtype="float32").reshape(128, 200)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        for name, value in (("fc_0.w_0", weights), ("fc_0.b_0", np.ones(200, "float32"))):
            fluid.global_scope().var(name).get_tensor().set(value, fluid.CPUPlace())
        trainer.save_persistables(exe, str(tmp_path), main)
    blocks = {}
    for number in range(2):
        serving = fleets(Role.SERVER, servers, number)
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [128]), 200))
            serving.distributed_optimizer(fluid.optimizer.SGD(0.1), config).minimize(loss)
        with fluid.scope_guard(fluid.Scope()):
            serving.init_server(str(tmp_path))
            (name,) = (
                n
                for n in serving.main_program.global_block().vars
                if "w_0.block" in n and "GRAD" not in n
            )
            blocks[name] = np.array(fluid.global_scope().find_var(name).get_tensor())
            with pytest.raises(ValueError, match="no directory named 'nowhere'"):
                serving.init_server("nowhere")
    np.testing.assert_array_equal(
        np.concatenate([blocks[name] for name in sorted(blocks)]), weights
    )


def test_tables_on_the_servers_alone_are_saved(fleets, tmp_path):
    servers = free_endpoints(2)

    def divided(role, number=0):
        fleet = fleets(role, servers, number)
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            ids = fluid.data("ids", [None], dtype="int64")
            start = fluid.ParamAttr(initializer=fluid.initializer.Uniform(-1, 1, seed=3))
            options = {"is_sparse": True, "is_distributed": True, "param_attr": start}
            rows = fluid.embedding(ids, [12, 4], **options)
            loss = fluid.layers.mean(fluid.layers.fc(rows, 1))
            fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
        return fleet, rows

    serving = [divided(Role.SERVER, number)[0] for number in range(2)]
    threads = [Server(_Divided(one), at) for one, at in zip(serving, servers, strict=True)]
    fleet, rows = divided(Role.WORKER)
    exe, ids = fluid.Executor(fluid.CPUPlace()), np.array([3, 11])
    with fluid.scope_guard(fluid.Scope()):
        exe.run(fleet.startup_program)
        fleet.save_persistables(exe, str(tmp_path / "state"))
        fleet.save_inference_model(exe, str(tmp_path / "model"), ["ids"], [rows])
        found = exe.run(fleet.main_program, {"ids": ids}, [rows])[0]
        fleet.stop_worker()
        assert fluid.global_scope().find_var("embedding_0.w_0") is None
        program, feeds, targets = fluid.io.load_inference_model(str(tmp_path / "model"), exe)
        np.testing.assert_array_equal(exe.run(program, {feeds[0]: ids}, targets)[0], found)
    for thread in threads:
        thread.join()
    table = fluid.load_program_state(str(tmp_path / "state"))["embedding_0.w_0"]
    np.testing.assert_array_equal(table[ids], found)


@pytest.mark.parametrize(
    ("strategy", "mode"),
    [
        (StrategyFactory.create_sync_strategy(), 0),
        (StrategyFactory.create_async_strategy(), 1),
        (StrategyFactory.create_geo_strategy(7), 3),
        (CONFIG, 1),
        (fluid.DistributeTranspilerConfig(), 0),
    ],
)
def test_strategies_say_what_servers_wait_for(fleets, strategy, mode):
    fleet = fleets(Role.SERVER, ["127.0.0.1:6174"], trainers=2)
    minimize(fleet, strategy)
    (listen,) = fleet.main_program.global_block().ops
    assert (listen.attr("distributed_mode"), listen.attr("Fanin")) == (mode, 2)


def test_fields_of_strategies_are_set_by_name(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    strategy = StrategyFactory.create_sync_strategy()
    assert strategy.get_build_strategy().reduce_strategy.name == "Reduce"
    strategy.set_program_config({"min_block_size": 9000, "half_async": False})
    config = strategy.get_program_config()
    assert config.min_block_size == 9000 and config.half_async and config.waits_for_all
    strategy.set_execute_strategy({"num_threads": 3})
    assert strategy.get_execute_strategy().num_threads == 3
    with pytest.raises(ValueError, match="BuildStrategy doesn't have key: colour"):
        strategy.set_build_strategy({"colour": 1})
    with pytest.raises(TypeError, match="a dict or a BuildStrategy"):
        strategy.set_build_strategy(3)


def test_what_cannot_be_is_refused(fleets, tmp_path):
    new = DistributedTranspiler()
    with pytest.raises(ValueError, match=r"call fleet\.init"):
        new.distributed_optimizer(fluid.optimizer.SGD(0.1))
    with pytest.raises(ValueError, match=r"call fleet\.init"):
        new.worker_index()
    with pytest.raises(TypeError, match="instance of RoleMakerBase"):
        new.init()
    fleet = fleets(Role.WORKER, ["127.0.0.1:6174"])
    with pytest.raises(ValueError, match="main_program is None"):
        fleet.run_server()
    with pytest.raises(ValueError, match="instance of Optimizer"):
        fleet.distributed_optimizer("sgd")
    with pytest.raises(TypeError, match="SyncStrategy"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), "sync")
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(ValueError, match="is for local"):
        fleet.save_persistables(exe, str(tmp_path), fluid.Program())
    with pytest.raises(TypeError, match="must be an Executor"):
        fleet.save_persistables("exe", str(tmp_path))


def test_files_are_shared_out_between_trainers(fleets):
    parts = [
        fleets(Role.WORKER, ["a:1"], number, trainers=3).split_files(list("abcde"))
        for number in range(3)
    ]
    assert parts == [["a", "b"], ["c", "d"], ["e"]]
    with pytest.raises(TypeError, match="list of files"):
        fleets(Role.WORKER, ["a:1"]).split_files("abc")


def test_a_communicator_names_the_server_that_is_not_there(fleets, monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_deadline", "200")
    (endpoint,) = free_endpoints(1)
    trainer = fleets(Role.WORKER, [endpoint])
    minimize(trainer)
    communicator = fluid.communicator.Communicator(trainer.main_program)
    assert not communicator.is_running()
    with pytest.raises(RuntimeError, match=f"parameter server at {endpoint} did not let us in"):
        communicator.start()
    assert not communicator.is_running()
    Servers.of([endpoint], 0).leave("")
    with pytest.raises(fluid.core.EnforceNotMet, match="that DistributeTranspiler made"):
        fluid.communicator.Communicator(fluid.Program())
