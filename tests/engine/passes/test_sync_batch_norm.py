"""Batch norm over all devices, compared with one device on the whole batch."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.graph.operators import Operators
from dpexec.engine.passes import PassManager, SyncBatchNorm
from tests.engine.passes.test_fuse_images import feeds, images
from tests.engine.run.nets import AllReduce, Reduce, assert_same_bits, batches, classifier, train


def net():
    return classifier(fluid.optimizer.Adam(0.01), sizes=(8, 7, 6, 3), batch_norm=True)


def shifted(rows, steps=3):
    """Batches whose two halves have other means."""
    made = batches(steps, rows=rows)
    for feed in made:
        feed["x"][: rows // 2] += 4
    return made


def assert_close(one, other):
    for name, value in one.state.items():
        np.testing.assert_allclose(value, other.state[name], rtol=2e-4, atol=5e-6, err_msg=name)


@pytest.mark.parametrize("rows", [12, 11])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_two_devices_give_what_one_gives(mode, rows):
    one = train(net(), shifted(rows), 1)
    two = train(net(), shifted(rows), 2, mode, sync_batch_norm=True)
    assert_close(two, one)
    apart = train(net(), shifted(rows), 2, mode)
    moving = "batch_norm_0.w_1"
    assert not np.allclose(apart.state[moving], one.state[moving], rtol=1e-2)


def test_images_in_parallel_give_what_one_device_gives():
    one, three = (train(images(True), feeds(), devices, sync_batch_norm=True) for devices in (1, 3))
    assert_close(three, one)


def test_machine_code_gives_what_numpy_gives():
    pytest.importorskip("numba", reason="kernels in machine code need numba")
    runs = [
        train(images(True), feeds(), 2, sync_batch_norm=True, native_kernels=native)
        for native in (True, False)
    ]
    assert_close(*runs)
    ops = [
        part.node.name
        for binding in runs[0].compiled._engine.bindings.kept
        for steps in binding.steps
        for step in steps
        if step.code
        for parts, _ in step.code.parts
        for part in parts
    ]
    assert {"sync_batch_norm", "sync_batch_norm_grad"} <= set(ops)


def test_modes_and_idle_devices_give_the_same_bits():
    runs = [
        train(net(), batches(3, rows=2), 3, mode, sync_batch_norm=True)
        for mode in (AllReduce, Reduce)
    ]
    assert_same_bits(*runs)
    again = train(net(), batches(3, rows=2), 3, sync_batch_norm=True, task_granularity="op")
    assert_same_bits(runs[0], again)


def test_idle_devices_add_nothing():
    def run(devices, **options):
        plain = classifier(fluid.optimizer.SGD(0.1), sizes=(8, 7, 3), batch_norm=True)
        return train(plain, batches(2, rows=3), devices, **options)

    assert_close(run(4, sync_batch_norm=True), run(1))


def test_collectives_stand_between_the_halves(replicated):
    main = net().main
    manager = PassManager([], [SyncBatchNorm()])
    operators = manager.rewrite(Operators(main))
    (record,) = manager.records
    assert record.modified and record.ops_after - record.ops_before == 4
    types = [op.type for op in operators.ops]
    assert types.count("sync_batch_norm") == types.count("sync_batch_norm_grad") == 2
    assert not {"batch_norm", "batch_norm_grad"} & set(types)
    run = train(net(), batches(1), 2, sync_batch_norm=True)
    counts = run.compiled._engine.graph.counts()["ops"]
    assert counts["all_sum"] == 4
    assert counts["sync_batch_norm"] == 4
    assert replicated(main).counts()["ops"]["batch_norm"] == 4


def test_test_programs_stay_as_they_are():
    operators = Operators(net().test)
    assert not SyncBatchNorm().rewrite(operators)
