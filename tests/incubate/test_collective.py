"""``fleet`` of trainers: the programs of ``minimize``, and refused calls."""

import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.incubate.fleet.base.role_maker import UserDefinedCollectiveRoleMaker
from dpexec.incubate.fleet.collective import CollectiveOptimizer, DistributedStrategy, fleet
from tests.fixtures import pserver_cases as cases

TWO = ["127.0.0.1:6170", "127.0.0.1:6171"]


def minimize(endpoints=TWO, optimizer=None, **fields):
    """Compile a net for trainers; gives its loss."""
    fleet.init(UserDefinedCollectiveRoleMaker(len(endpoints) - 1, list(endpoints)))
    strategy = DistributedStrategy()
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = cases.dense(fluid)
        for name, value in fields.items():
            setattr(strategy, name, value(main) if callable(value) else value)
        optimizer = optimizer or fluid.optimizer.SGD(0.1)
        fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
    return loss


def test_the_program_is_compiled_for_all_trainers():
    loss = minimize()
    strategy = fleet.main_program._build_strategy
    assert (strategy.num_trainers, strategy.trainer_id) == (2, 1)
    assert strategy.trainers_endpoints == TWO
    assert loss.block.program._trainers_endpoints == TWO
    assert fleet.worker_endpoints(to_string=True) == ",".join(TWO)


def test_in_mode_collective_the_executor_trains():
    loss = minimize(mode="collective", collective_mode="grad_allreduce")
    assert fleet.main_program is loss.block.program
    assert (fleet.main_program._trainer_id, fleet.main_program._trainers_endpoints) == (1, TWO)


def test_one_trainer_trains_and_saves(tmp_path):
    loss = minimize(TWO[:1])
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(fleet.startup_program)
        first, last = (
            exe.run(fleet.main_program, cases.batch("sgd", 0, 0), [loss])[0] for _ in range(2)
        )
        assert last.mean() < first.mean()
        fleet.save_persistables(exe, str(tmp_path / "state"), filename="all")
        assert (tmp_path / "state" / "all").exists()
        output = [fleet._origin_program.global_block().var(*hidden(fleet._origin_program))]
        fleet.save_inference_model(exe, str(tmp_path / "model"), ["x"], output)
        assert (tmp_path / "model" / "__model__").exists()
        with pytest.raises(AssertionError, match="must be a Program"):
            fleet.save_persistables(exe, str(tmp_path), fleet.main_program)


def hidden(main):
    """The name of what the first layer gives."""
    return [next(op for op in main.global_block().ops if op.type == "tanh").output("Out")[0]]


def test_activations_are_computed_again_and_precision_is_mixed():
    types = [
        {op.type for op in minimize(**fields).block.ops}
        for fields in (
            {"forward_recompute": True, "recompute_checkpoints": hidden},
            {"use_amp": True},
        )
    ]
    assert "cast" in types[1] and "cast" not in types[0]


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"use_dist_fc": True}, EnforceNotMet, "use_dist_fc is not supported"),
        ({"collective_mode": "grad_allreduce"}, AssertionError, "needs mode = 'collective'"),
        ({"mode": "ring"}, EnforceNotMet, "'ring' is not supported"),
        ({"forward_recompute": True}, ValueError, "recompute_checkpoints"),
        ({"colour": 1}, AttributeError, "colour"),
        ({"use_amp": "yes"}, TypeError, "use_amp takes a value of type bool"),
    ],
)
def test_strategies_that_cannot_be_are_refused(fields, error, message):
    with pytest.raises(error, match=message):
        minimize(**fields)


def test_optimizers_that_do_not_go_with_a_strategy_are_refused():
    dgc = fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 0)
    with pytest.raises(ValueError, match=r"DGCMomentumOptimizer when DistributedStrategy\.use_amp"):
        minimize(optimizer=dgc, use_amp=True)
    with pytest.raises(TypeError, match="instance of Optimizer"):
        CollectiveOptimizer("sgd")


def test_fields_of_a_build_strategy_are_there_too():
    strategy = DistributedStrategy()
    strategy.sync_batch_norm = True
    assert "sync_batch_norm=True" in repr(strategy)
    assert DistributedStrategy().exec_strategy is not strategy.exec_strategy


@pytest.mark.parametrize("method", ["init_worker", "init_server", "run_server", "stop_worker"])
def test_there_are_no_servers(method):
    with pytest.warns(UserWarning, match=f"fleet.{method} does nothing"):
        getattr(fleet, method)()
