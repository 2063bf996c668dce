"""Places: which GPUs are found, and the errors where there are none."""

import importlib
import types

import pytest

import dpexec as fluid
from dpexec.engine.core import places


class DriverError(RuntimeError):
    pass


def cupy_with(count):
    """A CuPy that sees some GPUs, or whose driver fails."""

    def get_device_count():
        if isinstance(count, str):
            raise DriverError(count)
        return count

    runtime = types.SimpleNamespace(getDeviceCount=get_device_count, CUDARuntimeError=DriverError)
    return types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))


@pytest.fixture
def install(monkeypatch):
    """A function that puts something in the place of the package cupy."""
    whole = importlib.import_module

    def put(cupy):
        def import_module(name, package=None):
            if name != "cupy":
                return whole(name, package)
            if isinstance(cupy, Exception):
                raise cupy
            return cupy

        monkeypatch.setattr(importlib, "import_module", import_module)
        for function in (places._cupy, places.get_cuda_device_count):
            function.cache_clear()

    for name in ("CUDA_VISIBLE_DEVICES", "FLAGS_selected_gpus"):
        monkeypatch.delenv(name, raising=False)
    yield put
    monkeypatch.undo()
    for function in (places._cupy, places.get_cuda_device_count):
        function.cache_clear()


REASONS = [
    (ModuleNotFoundError("No module named 'cupy'"), r"not installed: pip install dpexec\[gpu\]"),
    (ImportError("libcudart.so.13 is missing"), "cannot be imported: libcudart.so.13 is missing"),
    (cupy_with("cudaErrorInsufficientDriver"), "finds no GPU: cudaErrorInsufficientDriver"),
    (cupy_with(0), "finds no GPU: see whether nvidia-smi lists one"),
]


@pytest.mark.parametrize(("cupy", "reason"), REASONS)
def test_errors_name_what_is_missing_for_gpus(install, cupy, reason):
    install(cupy)
    assert not fluid.is_compiled_with_cuda()
    with pytest.raises(RuntimeError, match=f"CUDAPlace\\(0\\) does not exist: .*{reason}"):
        fluid.CUDAPlace(0)
    for function in (fluid.cuda_places, fluid.cuda_pinned_places):
        with pytest.raises(AssertionError, match=f"Not compiled with CUDA: .*{reason}"):
            function()
    with pytest.raises(AssertionError, match=f"Not compiled with CUDA: .*{reason}"):
        fluid.ParallelExecutor(use_cuda=True, main_program=fluid.Program())


def test_hidden_gpus_are_named_as_the_reason(install, monkeypatch):
    install(cupy_with("cudaErrorNoDevice"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RuntimeError, match="CUDA_VISIBLE_DEVICES= hides all GPUs"):
        fluid.CUDAPlace(0)


def test_all_visible_gpus_are_used(install):
    install(cupy_with(3))
    assert [place.device_id for place in fluid.cuda_places()] == [0, 1, 2]
    assert [place.device_id for place in fluid.cuda_places(1)] == [1]
    assert [place.device_id for place in fluid.cuda_places([2, 0])] == [2, 0]
    with pytest.raises(RuntimeError, match="the visible GPUs are 0 to 2"):
        fluid.CUDAPlace(3)


def test_selected_gpus_are_used(install, monkeypatch):
    install(cupy_with(3))
    monkeypatch.setenv("FLAGS_selected_gpus", "2,1")
    assert [place.device_id for place in fluid.cuda_places()] == [2, 1]
    assert [place.device_id for place in fluid.cuda_places([0])] == [0]
    monkeypatch.setenv("FLAGS_selected_gpus", "first")
    with pytest.raises(ValueError, match="FLAGS_selected_gpus='first' is no list"):
        fluid.cuda_places()
    monkeypatch.setenv("FLAGS_selected_gpus", "1,7")
    with pytest.raises(RuntimeError, match=r"CUDAPlace\(7\) does not exist"):
        fluid.cuda_places()


def test_number_of_cpu_devices_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "two")
    with pytest.raises(ValueError, match="CPU_NUM is the number of CPU devices, but is 'two'"):
        fluid.cpu_places()
