"""Values that workers send to each other stay on GPUs where UCX can send them."""

import numpy as np
import pytest
from distributed import Client
from distributed.protocol import deserialize, serialize
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize

import dpexec as fluid
from dpexec.engine.cluster.worker.exports import Exports, exported, how_exchanged
from dpexec.engine.core import places
from dpexec.engine.core.selected_rows import SelectedRows
from tests.distributed.test_gpus import expected, trained
from tests.engine.run.nets import AllReduce, Reduce, assert_same_bits
from tests.fakes.cupy import install

UCX = ("cuda", "dask", "pickle", "error")  # dask's serializers for this protocol


class OnGpu:
    """An array that dask sends as it lies on a GPU."""

    __cuda_array_interface__ = None

    def __init__(self, host):
        self.host, self.shape, self.dtype = host, host.shape, host.dtype

    def __reduce__(self):
        raise AssertionError("it is copied to the host")


@cuda_serialize.register(OnGpu)
def _to_frames(array):
    return {}, [array.host]


@cuda_deserialize.register(OnGpu)
def _from_frames(header, frames):
    (host,) = frames
    return OnGpu(host)


@pytest.fixture
def gpu(monkeypatch):
    install(monkeypatch, 1)
    return fluid.CUDAPlace(0)


def test_arrays_travel_as_they_are_and_once():
    total, rows, values = OnGpu(np.ones(3)), OnGpu(np.arange(2)), OnGpu(np.zeros((2, 5)))
    sparse = SelectedRows(rows, 9, values)
    exports = Exports({(0, "w"): total, (1, "w"): total, (0, "rows"): sparse, (0, "lengths"): [3]})
    header, frames = serialize(exports, UCX)
    assert [id(frame) for frame in frames] == [id(array.host) for array in (total, rows, values)]
    came = deserialize(header, frames, UCX)
    assert came[0, "w"] is came[1, "w"] and came[0, "w"].host is total.host
    assert came[0, "rows"].row_array.host is rows.host
    assert came[0, "rows"].value.host is values.host
    assert came[0, "lengths"] == [3]


def test_values_of_the_host_are_left_to_other_serializers():
    header, frames = serialize(Exports({(0, "w"): np.ones(3)}), UCX)
    assert header["serializer"] == "pickle"
    np.testing.assert_array_equal(deserialize(header, frames)[0, "w"], np.ones(3))


def test_only_ucx_keeps_values_on_gpus(gpu):
    value = places._cupy().asarray(np.ones(3))
    assert exported({(0, "w"): value}, gpu, "ucxx://10.0.0.1:1")[0, "w"] is value
    assert isinstance(exported({(0, "w"): value}, gpu, "tcp://10.0.0.1:1")[0, "w"], np.ndarray)
    assert how_exchanged(gpu, ["ucx://a:1", "ucx://b:1"]).startswith("by UCX")
    assert how_exchanged(gpu, ["tcp://a:1"]).startswith("through the host")
    assert not how_exchanged(fluid.CPUPlace(), ["ucx://a:1"])


@pytest.mark.parametrize(("name", "mode"), [("mlp", Reduce), ("word2vec", AllReduce)], ids=str)
def test_what_stays_on_gpus_is_added_up_there(gpu, monkeypatch, name, mode):
    monkeypatch.setattr("dpexec.engine.cluster.worker.exports._stays_on_gpu", lambda *where: True)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    with Client(**options, dashboard_address=":0", set_as_default=False) as client:
        run = trained(name, client, 2, mode, collectives="tasks")
    assert_same_bits(run, expected(name, 2))
    assert "by UCX" in run.compiled.plan.describe()
