"""Values that are kept between runs: every trainer starts from those of trainer 0."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.checkpoint import Checkpoints
from dpexec.core import VarDesc
from dpexec.engine.core.variable_values import with_sequences
from dpexec.engine.exchange.party import part_all
from tests.distributed.kept import declared, numbers, plain, put_rows, put_tensor
from tests.engine.run.nets import AllReduce, Net, Reduce, strategies
from tests.engine.run.trainers.pair import rows_of, together, two

STEPS = 4
FEEDS = [
    {"ids": np.random.default_rng(step).integers(0, 6, (8, 1)), "x": numbers(step, 8, 2)}
    for step in range(STEPS)
]


def keeping():
    """Trains a table, and keeps its gradient, its losses; reads sequences, and rows of a user."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids, x = fluid.data("ids", [None, 1], "int64"), fluid.data("x", [None, 2])
        words = declared("words", shape=(-1, 2), lod_level=1)
        found = layers.embedding(ids, [6, 2], is_sparse=True, param_attr="table")
        pooled = layers.reduce_sum(layers.sequence_pool(words, "sum"), dim=0, keep_dim=True)
        loss = layers.mean(layers.square(found * x - pooled))
        rows = declared("rows", VarDesc.VarType.SELECTED_ROWS)
        layers.assign(rows, declared("copy", VarDesc.VarType.SELECTED_ROWS))
        step = layers.create_global_var([1], 0, "int64", persistable=True, name="step")
        losses = layers.array_write(loss, step, declared_array("losses"))
        layers.increment(step)
        length = layers.array_length(losses)
        fluid.optimizer.Adam(0.1, lazy_mode=True).minimize(loss)
        main.global_block().var("table@GRAD").persistable = True
    return Net(main, startup, loss, None, length)


def declared_array(name):
    return declared(name, VarDesc.VarType.LOD_TENSOR_ARRAY, shape=())


def put(scope):
    put_tensor(scope, "words", numbers(9, 5, 2), [2, 3])
    put_rows(scope, "rows", [4, 1], numbers(8, 2, 2))
    array = scope.var("losses").get_lod_tensor_array()
    for _ in range(2):
        array.append(fluid.LoDTensor())
    array[1].set(numbers(7, 1, 3), fluid.CPUPlace())


def state(net, scope):
    kept = sorted(v.name for v in net.main.list_vars() if v.persistable)
    return {name: plain(with_sequences(scope.find_var(name))) for name in kept}


def alone(net, mode):
    """Losses and state of one process with both replicas."""
    build, execution = strategies(mode)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor()
        exe.run(net.startup)
        put(fluid.global_scope())
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=fluid.cpu_places(2)
        )
        losses = [exe.run(compiled, feed, [net.loss])[0] for feed in FEEDS]
        return losses, state(net, fluid.global_scope())


def checkpoints(trainer, folder):
    return Checkpoints(trainer.exe, folder, trainer.compiled)


def check_same(net, trainers, expected):
    losses, kept = expected
    assert [trainer.error for trainer in trainers] == [None, None]
    found = [np.concatenate(both) for both in zip(*(t.losses for t in trainers), strict=True)]
    np.testing.assert_array_equal(found, losses[-len(found) :])
    assert state(net, trainers[0].scope) == kept


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_trainers_keep_what_one_process_keeps(endpoints, mode):
    net, trainers = keeping(), two(keeping(), endpoints, mode=mode, devices=1)
    put(trainers[0].scope)
    together(trainers, [[rows_of(feed, rank, 2) for feed in FEEDS] for rank in range(2)])
    check_same(net, trainers, alone(net, mode))


def test_they_go_on_from_a_checkpoint_of_trainer_0(endpoints, tmp_path):
    net = keeping()
    parts = [[rows_of(feed, rank, 2) for feed in FEEDS] for rank in range(2)]
    before = two(net, endpoints, devices=1)
    put(before[0].scope)
    together(before, [part[:2] for part in parts])
    with fluid.scope_guard(before[0].scope), checkpoints(before[0], tmp_path) as saved:
        saved.save()
    part_all()
    after = two(net, endpoints, devices=1)
    for trainer in after:
        with fluid.scope_guard(trainer.scope), checkpoints(trainer, tmp_path) as saved:
            saved.resume()
    together(after, [part[2:] for part in parts])
    check_same(net, after, alone(net, AllReduce))
