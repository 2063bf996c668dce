"""NCCL sums between simulated GPUs of one process: their numbers, grouping and order."""

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.gpu.programs import (
    NETS,
    assert_same_bits,
    feeds_of,
    regression,
    trained,
    without_labels,
)
from tests.engine.gpu.test_races import no_waits
from tests.engine.run.nets import AllReduce, Reduce
from tests.fakes.cupy import install
from tests.fakes.streams import Race


@pytest.fixture
def cupy(monkeypatch):
    return install(monkeypatch, 3, nccl=True)


def gpus(count):
    return [fluid.CUDAPlace(gpu) for gpu in range(count)]


@pytest.mark.parametrize(
    ("name", "mode"),
    [*((name, AllReduce) for name in NETS), ("sparse", Reduce), ("adam and batch norm", Reduce)],
)
def test_two_gpus_compute_what_processors_do(cupy, name, mode):
    net, feeds = NETS[name](), feeds_of(name)
    expected = trained(net, [fluid.CPUPlace()] * 2, mode, feeds)
    found = trained(net, gpus(2), mode, feeds, fetch=False, task_granularity="op")
    assert_same_bits(([], found[1]), ([], expected[1]))
    done = {name for group in cupy.cuda.nccl.done for name in group}
    assert done == {Reduce: {"reduce", "broadcast"}, AllReduce: {"allReduce"}}[mode] or (
        "sparse" in name
    )


def test_sums_of_sync_batch_norm_are_nccls(cupy):
    """Halves of operators have variables that no program declares."""
    net, feeds = NETS["adam and batch norm"](), feeds_of("adam and batch norm")
    options = {"sync_batch_norm": True}
    expected = trained(net, [fluid.CPUPlace()] * 2, feeds=feeds, **options)
    found = trained(net, gpus(2), feeds=feeds, **options)
    assert_same_bits(found, expected)
    trained_ones = [p for p in net.main.all_parameters() if p.trainable]
    sums = sum(len(group) for group in cupy.cuda.nccl.done)
    assert sums == len(feeds) * (len(trained_ones) + 2)  # forward and backward


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_order_of_three_gpus_is_that_of_nccl_unless_a_flag_asks(cupy, mode, monkeypatch):
    net, feeds = regression(), without_labels(4)
    expected = trained(net, [fluid.CPUPlace()] * 3, mode, feeds)
    found = trained(net, gpus(3), mode, feeds)
    for name, value in expected[1].items():
        np.testing.assert_allclose(found[1][name], value, 1e-4, 1e-6, err_msg=name)
    assert any(not np.array_equal(found[1][name], value) for name, value in expected[1].items())
    cupy.cuda.nccl.done.clear()
    monkeypatch.setenv("FLAGS_cudnn_deterministic", "true")
    assert_same_bits(trained(net, gpus(3), mode, feeds), expected)
    assert not cupy.cuda.nccl.done


def test_a_task_is_one_group(cupy):
    net = regression()
    trained(net, gpus(2), feeds=without_labels(2))
    (first, second) = cupy.cuda.nccl.done
    assert first == second == ["allReduce"] * sum(p.trainable for p in net.main.all_parameters())


@pytest.mark.parametrize("places", [[0], [0, 0], [0, 1, 1]])
def test_replicas_that_share_a_gpu_use_copies(cupy, places):
    trained(regression(), [fluid.CUDAPlace(gpu) for gpu in places], feeds=without_labels(1))
    assert not cupy.cuda.nccl.done


def test_groups_wait_for_the_backward_pass(cupy, monkeypatch):
    no_waits(monkeypatch)
    with pytest.raises((Race, fluid.core.EnforceNotMet), match="no event orders them"):
        trained(regression(), gpus(2), feeds=without_labels(2), fetch=False)


def test_batches_without_rows_for_some_gpus_are_added_up(cupy):
    net = regression()
    feeds = [{"x": feed["x"][:1]} for feed in without_labels(2)]
    expected = trained(net, [fluid.CPUPlace()] * 2, feeds=feeds)
    assert_same_bits(trained(net, gpus(2), feeds=feeds), expected)
