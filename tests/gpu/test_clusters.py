"""Workers of a cluster on real GPUs give what one process gives."""

import os

import numpy as np
import pytest
from distributed import Client, Nanny, Scheduler, SpecCluster

import dpexec as fluid
from dpexec.engine.core.places import array_module, is_compiled_with_cuda, why_no_gpu
from dpexec.engine.gpu.nccl import library
from tests.distributed.nets import NETS
from tests.engine.run.nets import AllReduce, Reduce, train

if not is_compiled_with_cuda():
    pytest.skip(f"nothing was tested on a GPU: {why_no_gpu()}", allow_module_level=True)

WORKERS = 2


def own_gpus():
    """What each worker sees."""
    count = len(fluid.cuda_places())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [*map(str, range(count))]
    return [names[number % count] for number in range(WORKERS)]


@pytest.fixture(scope="module")
def client():
    """The client of two worker processes."""
    workers = {
        number: {
            "cls": Nanny,
            "options": {"nthreads": 1, "env": {"CUDA_VISIBLE_DEVICES": gpu}},
        }
        for number, gpu in enumerate(own_gpus())
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": ":0"}}
    with (
        SpecCluster(workers=workers, scheduler=scheduler, silence_logs=50) as cluster,
        Client(cluster, set_as_default=False) as found,
    ):
        found.wait_for_workers(WORKERS, timeout=60)
        yield found


def trained(name, mode, scheduler, **options):
    return train(*NETS[name](), WORKERS, mode, fluid.CUDAPlace(0), scheduler=scheduler, **options)


def assert_close(found, expected):
    for variable, value in expected.state.items():
        np.testing.assert_allclose(found.state[variable], value, 1e-4, 1e-6, err_msg=variable)


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("name", NETS)
def test_training_gives_what_one_process_gives(client, name, mode, collectives):
    found = trained(name, mode, client, collectives=collectives)
    assert_close(found, trained(name, mode, "threads"))


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
@pytest.mark.parametrize("name", NETS)
def test_graphs_give_what_single_launches_give(client, name, collectives):
    options = {"collectives": collectives, "allow_cuda_graph_capture": True}
    assert_close(trained(name, Reduce, client, **options), trained(name, Reduce, "threads"))


def test_gangs_use_nccl_between_gpus_of_their_own(client):
    if len(set(own_gpus())) < WORKERS:
        pytest.skip("NCCL needs two GPUs")
    if not library(array_module(fluid.CUDAPlace(0))).available:
        pytest.skip("NCCL is not installed: pip install nvidia-nccl-cu13")
    found = trained("mlp", AllReduce, client, collectives="gang")
    assert "by NCCL" in found.compiled.plan.describe()
