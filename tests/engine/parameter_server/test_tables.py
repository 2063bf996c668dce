"""Tables on servers alone give the bits of tables that every trainer holds."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.exchange.wire import GangError
from dpexec.engine.parameter_server.remote import remote_of
from dpexec.engine.parameter_server.update import Update
from tests.engine.parameter_server.runs import Server, Trainer, free_endpoints
from tests.engine.run.nets import Reduce
from tests.fixtures import pserver_cases as cases

TABLE = "embedding_0.w_0"


def lookups(layer, distributed, padding_idx=None):
    """A net that looks up twice in a table of which some rows start with other values."""

    def network(fluid):
        ids = fluid.layers.data("ids", [1], dtype="int64")
        y = fluid.layers.data("y", [1])
        options = {"is_sparse": True, "is_distributed": distributed, "padding_idx": padding_idx}
        table = fluid.ParamAttr(name=TABLE, initializer=fluid.initializer.Uniform(-1, 1, seed=3))
        first, second = (
            fluid.layers.reshape(layer(numbers, [12, 4], param_attr=table, **options), [-1, 4])
            for numbers in (ids, fluid.layers.data("more", [1], dtype="int64"))
        )
        out = fluid.layers.fc(first + second, 1, param_attr=cases.constant(fluid, 0.2))
        return fluid.layers.mean(fluid.layers.square_error_cost(out, y))

    return network


def clipped(fluid, loss):
    clip = fluid.clip.GradientClipByGlobalNorm(0.1)
    fluid.optimizer.Adam(0.1, lazy_mode=True, grad_clip=clip).minimize(loss)


def momentum(fluid, loss):
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)


def batch(step, trainer):
    rng = np.random.RandomState(10 * step + trainer)
    feed = {"y": rng.uniform(-1, 1, (4, 1)).astype("float32")}
    return {**feed, **{n: rng.randint(0, 12, (4, 1)).astype("int64") for n in ("ids", "more")}}


def trained(monkeypatch, network, minimize=cases.minimize_sgd, options=None, sync=True, **how):
    """Losses and parameters of two trainers, and what servers have of the table."""
    monkeypatch.setitem(cases.CASES, "table", (network, minimize, 2, options or {}, sync))
    monkeypatch.setattr(cases, "batch", lambda name, step, trainer: batch(step, trainer))
    monkeypatch.setattr(
        "tests.engine.parameter_server.runs.values",
        lambda program, scope: {
            p.name: np.array(scope.find_var(p.name).get_tensor())
            for p in program.all_parameters()
            if p.persistable
        },
    )
    endpoints = free_endpoints(2)
    team = [Trainer("table", number, endpoints, 4, **how) for number in range(2)]
    serving = [Server(team[0].transpiler, endpoint) for endpoint in endpoints]
    for member in team:
        member.start()
    for member in [*team, *serving]:
        member.join()
    blocks = {}
    for server in serving:
        for shard in team[0].transpiler.shards_at(server.endpoint).values():
            if shard.param.startswith(TABLE):
                value = server.scope.find_var(shard.param).get_tensor()
                blocks[shard.begin] = np.array(value)
    return team, np.concatenate([blocks[begin] for begin in sorted(blocks)])


@pytest.mark.parametrize("layer", [fluid.layers.embedding, fluid.embedding])
@pytest.mark.parametrize(
    ("minimize", "padding_idx", "how"),
    [
        (cases.minimize_sgd, None, {}),
        (cases.minimize_sgd, 5, {"devices": 2}),
        (clipped, -2, {"devices": 2, "mode": Reduce}),
        (momentum, None, {}),
    ],
)
def test_rows_come_before_the_step(monkeypatch, layer, minimize, padding_idx, how):
    held, table = trained(monkeypatch, lookups(layer, False, padding_idx), minimize, **how)
    team, fetched = trained(monkeypatch, lookups(layer, True, padding_idx), minimize, **how)
    assert [member.losses for member in team] == [member.losses for member in held]
    np.testing.assert_array_equal(fetched, table)
    for mine, theirs in zip(team, held, strict=True):
        assert mine.parameters.keys() == theirs.parameters.keys() - {TABLE}
        for name, value in mine.parameters.items():
            np.testing.assert_array_equal(value, theirs.parameters[name])
        assert mine.scope.find_var(TABLE) is None


def test_asynchronous_trainers_fetch_rows_too(monkeypatch):
    options = {"runtime_split_send_recv": True}
    network = lookups(fluid.embedding, True)
    team, table = trained(monkeypatch, network, options=options, sync=False)
    assert all(np.isfinite(member.losses).all() for member in team)
    assert len(table) == 12


@pytest.fixture
def trainer(monkeypatch):
    """One trainer with its server; it has received the parameters."""
    network = lookups(fluid.embedding, True)
    monkeypatch.setitem(cases.CASES, "table", (network, cases.minimize_sgd, 1, {}, True))
    (endpoint,) = free_endpoints(1)
    made = Trainer("table", 0, [endpoint], 0)
    server = Server(made.transpiler, endpoint)
    made.executor = fluid.Executor(fluid.CPUPlace())
    made.executor.run(made.startup, scope=made.scope)
    yield made
    made.executor.close()
    server.join()


def test_a_copy_for_testing_fetches_rows_too(trainer):
    test, feed = trainer.main.clone(for_test=True), batch(0, 0)
    loss, run = [trainer.loss.name], trainer.executor.run
    before = run(test, feed, loss, scope=trainer.scope)[0]
    assert run(trainer.program, feed, loss, scope=trainer.scope)[0] == before
    assert run(test, feed, loss, scope=trainer.scope)[0] < before


def test_the_whole_of_a_table_comes_to_be_saved(trainer):
    values = remote_of(trainer.program).table_values()
    assert values.keys() == {TABLE} and values[TABLE].shape == (12, 4)
    ids = np.array([[7], [2], [11], [2]])
    small = f"more@IN@{TABLE}@ROWS", f"{TABLE}@ROWS"
    feed = {**batch(0, 0), "more": ids}
    numbers, rows = trainer.executor.run(trainer.program, feed, small, scope=trainer.scope)
    np.testing.assert_array_equal(rows[numbers.ravel()], values[TABLE][ids.ravel()])


@pytest.mark.parametrize("number", [-1, 12])
def test_rows_that_are_not_there_are_refused(trainer, number):
    feed = batch(0, 0)
    feed["more"][2] = number
    with pytest.raises(EnforceNotMet, match=f"has 12 rows, but rows .*{number}"):
        trainer.executor.run(trainer.program, feed, [trainer.loss.name], scope=trainer.scope)


def test_numbers_of_rows_are_fed(trainer):
    feed = batch(0, 0)
    del feed["more"]
    with pytest.raises(EnforceNotMet, match="are in more, which is not fed"):
        trainer.executor.run(trainer.program, feed, [trainer.loss.name], scope=trainer.scope)


@pytest.mark.parametrize(
    ("table", "numbers"),
    [("fc_0.w_0", [0]), (TABLE, [12]), (TABLE, [-1]), (TABLE, [0.0]), (TABLE, [[0]])],
)
def test_a_server_gives_rows_of_such_tables_alone(monkeypatch, table, numbers):
    network = lookups(fluid.embedding, True)
    monkeypatch.setitem(cases.CASES, "table", (network, cases.minimize_sgd, 1, {}, True))
    main, startup, _ = cases.build(fluid, "table")
    made = cases.transpiler(fluid, "table", main, startup, 0, ["127.0.0.1:1"])
    program, first = made.get_pserver_programs("127.0.0.1:1")
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(first, scope=scope)
    update = Update(program, scope, fluid.CPUPlace())
    assert update.rows(TABLE, np.array([3, 3])).shape == (2, 4)
    with pytest.raises(GangError, match="table"):
        update.rows(table, np.array(numbers))
