"""The simulated GPUs give NumPy's results and report what would fail on real ones."""

import gc
import inspect

import numpy as np
import pytest

from tests.fakes.arrays import NAMES
from tests.fakes.cudnn import NAMES as KNOWN
from tests.fakes.cudnn import Cudnn
from tests.fakes.cupy import make_cupy
from tests.fakes.streams import CaptureError, Race

TYPES_OF_A_GRAPH = ("io_data_type", "intermediate_data_type", "compute_data_type")


@pytest.fixture
def cupy():
    return make_cupy(2)


def test_results_are_those_of_numpy(cupy):
    x = cupy.asarray(np.arange(6.0).reshape(2, 3))
    y = x * 2 + cupy.ones((3,))
    y[0] = 7
    y[:, 1] += 1
    expected = np.array([[7, 8, 7], [7, 10, 11.0]])
    np.testing.assert_array_equal(y.get(), expected)
    total = y.sum()
    assert isinstance(total, cupy.ndarray) and float(total) == expected.sum()


def test_streams_need_an_event_between_them(cupy):
    first, second = cupy.cuda.Stream(), cupy.cuda.Stream()
    with first:
        x = cupy.ones(3)
    with second, pytest.raises(Race, match="may still write: no event orders them"):
        x + 1
    second.wait_event(first.record())
    with second:
        y = x + 1
    with first, pytest.raises(Race, match="may still use"):
        x += 1
    assert y.get(second).tolist() == [2, 2, 2]
    with first:
        x += 1  # the host has waited


def test_the_null_stream_orders_all_but_those_that_do_not_block(cupy):
    with cupy.cuda.Stream():
        x = cupy.ones(3)
    assert (x + 1).get().tolist() == [2, 2, 2]
    with cupy.cuda.Stream(non_blocking=True):
        y = cupy.ones(3)
    with pytest.raises(Race):
        y + 1


def test_arrays_are_used_on_their_device(cupy):
    x = cupy.ones(3)
    with cupy.cuda.Device(1):
        with pytest.raises(AssertionError, match="runs on device 1, but an array is on device 0"):
            x + 1
        with pytest.raises(Race):
            x.copy()
        cupy.cuda.Device(0).synchronize()
        assert (x.copy() + 1).device.id == 1
        stream = cupy.cuda.Stream()
    with pytest.raises(RuntimeError, match="does not match with the current device"), stream:
        pass


def test_memory_that_another_stream_uses_is_not_given_away(cupy):
    first, second = cupy.cuda.Stream(), cupy.cuda.Stream()
    with first:
        x = cupy.ones(3)
    second.wait_event(first.record())
    with second:
        kept = x + 1
    del x
    gc.collect()
    with first, pytest.raises(Race, match="was freed and is used again"):
        cupy.ones(3)
    first.wait_event(second.record())
    with first:
        cupy.ones(3)
    assert kept is not None


def test_what_comes_from_the_host_is_a_copy(cupy):
    host = np.zeros(3)
    x = cupy.asarray(host)
    x += 1
    host[...] = 7
    assert x.get().tolist() == [1, 1, 1] and cupy.asarray(x) is x


def test_positions_beyond_the_end_are_those_at_the_beginning(cupy):
    x = cupy.asarray([5.0, 6.0, 7.0])
    assert x[cupy.asarray([1, 4])].get().tolist() == [6, 6]
    assert x.take(cupy.asarray([3]), axis=0).get().tolist() == [5]
    x[cupy.asarray([3])] = 9.0
    assert x.get().tolist() == [9, 6, 7]


def test_order_of_equal_positions_is_open(cupy):
    x = cupy.zeros(3)
    x[cupy.asarray([1, 1])] = 5.0
    with pytest.raises(AssertionError, match="set twice"):
        x[cupy.asarray([1, 1])] = cupy.asarray([5.0, 6.0])


def test_asynchronous_copies_give_garbage_before_their_end(cupy):
    stream = cupy.cuda.Stream()
    with stream:
        x = cupy.ones(3)
    out = np.zeros(3)
    x.get(stream, out=out, blocking=False)
    assert out.tolist() != [1, 1, 1]
    stream.synchronize()
    assert out.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda cp, x: cp.no_such_function(x),
        lambda cp, x: cp.max(x, initial=0.0),
        lambda cp, x: x + np.ones(3),
        lambda cp, x: np.asarray(x),
        lambda cp, x: cp.add.at(x.astype(np.int64), x.astype(np.int64), 1),
        lambda cp, x: cp.maximum.at(x.astype(np.float16), x.astype(np.int64), 1),
        lambda cp, x: cp.multiply.at(x, x.astype(np.int64), 2.0),
        lambda cp, x: cp.maximum.reduceat(x, [0]),
        lambda cp, x: cp.add.reduceat(x, [0]),
        lambda cp, x: cp.sort(x, kind="quicksort"),
        lambda cp, x: x.partition_rows(),
    ],
)
def test_what_cupy_lacks_is_refused(cupy, call):
    with pytest.raises((AttributeError, TypeError, ValueError, NotImplementedError)):
        call(cupy, cupy.ones(3))


@pytest.mark.parametrize("kind", ["Stream", "Event", "Device", "MemoryPool"])
def test_objects_have_nothing_that_those_of_cupy_lack(cupy, kind):
    ours = {name for name in vars(getattr(cupy.cuda, kind)) if not name.startswith("_")}
    assert ours - {"machine"} <= set(NAMES["cuda"][kind])


def test_a_captured_stream_notes_and_does_nothing(cupy):
    stream, pool = cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool()
    x = cupy.zeros(3)
    cupy.cuda.Device(0).synchronize()
    with stream, cupy.cuda.using_allocator(pool.malloc):
        stream.begin_capture()
        x += 1
        y = x * 2
        with pytest.raises(CaptureError, match="get while a stream is captured"):
            y.get()
        with pytest.raises(CaptureError, match="takes values of the host"):
            cupy.asarray([1.0])
        graph = stream.end_capture()
    assert x.get(stream).tolist() == [0, 0, 0]
    graph.launch(stream)
    graph.launch(stream)
    assert (x.get(stream).tolist(), y.get(stream).tolist()) == ([2, 2, 2], [4, 4, 4])


def test_ranks_of_nccl_meet_in_a_group(cupy):
    ranks = cupy.cuda.nccl.NcclCommunicator.initAll([0, 1])
    arrays = []
    for gpu in (0, 1):
        with cupy.cuda.Device(gpu):
            arrays.append(cupy.ones(2, "float32"))
    calls = [
        (array.data.ptr, array.data.ptr, 2, cupy.cuda.nccl.NCCL_FLOAT32, 0, gpu + 1)
        for gpu, array in enumerate(arrays)
    ]
    with pytest.raises(AssertionError, match="outside of a group"):
        ranks[0].allReduce(*calls[0])
    cupy.cuda.nccl.groupStart()
    ranks[0].allReduce(*calls[0])
    with pytest.raises(ValueError, match="zip"):  # the second rank is missing
        cupy.cuda.nccl.groupEnd()
    cupy.cuda.nccl.groupStart()
    for rank, call in zip(ranks, calls, strict=True):
        rank.allReduce(*call)
    cupy.cuda.nccl.groupEnd()
    with cupy.cuda.Device(1):
        assert arrays[1].get().tolist() == [2, 2]


def test_graphs_of_one_pool_overwrite_what_others_made(cupy):
    stream, pool, made = cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool(), []
    for _ in range(2):
        with stream, cupy.cuda.using_allocator(pool.malloc):
            stream.begin_capture()
            ones = cupy.ones(3)
            made.append((stream.end_capture(), ones))
    (first, one), (second, other) = made
    first.launch(stream)
    assert one.get(stream).tolist() == [1, 1, 1]
    second.launch(stream)
    assert other.get(stream).tolist() == [1, 1, 1] != one.get(stream).tolist()


def test_cudnn_takes_nothing_that_the_real_one_does_not():
    module = Cudnn(None)
    graph = module.pygraph(handle=None, **dict.fromkeys(TYPES_OF_A_GRAPH, module.data_type.FLOAT))
    tensor = graph.tensor([1] * 4, [1] * 4, module.data_type.FLOAT)
    assert {name for name in dir(tensor) if name.startswith("set_")} <= set(KNOWN["tensor"])
    assert {"handle", *TYPES_OF_A_GRAPH} <= set(KNOWN["pygraph"])
    known = KNOWN["methods"] | KNOWN["operators"]
    for name in (name for name in vars(type(graph)) if not name.startswith("_")):
        takes = inspect.signature(getattr(graph, name)).parameters
        assert set(takes) - {"how"} <= set(known[name]), name
    for name, members in KNOWN["enums"].items():
        assert set(vars(getattr(module, name))) <= set(members)
    assert KNOWN["absent"] == ["resample", "pooling", "softmax"]  # else ours could be compared
