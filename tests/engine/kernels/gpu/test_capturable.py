"""Operators in CUDA graphs compute from the current values of their inputs at every launch."""

import numpy as np
import pytest

import dpexec.engine.ops
from dpexec.engine.core.ranges import looking_later
from dpexec.engine.gpu.graphs import is_capturable
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import Sample
from dpexec.engine.kernels.gpu.products import products
from tests.engine.ops.calls import SampleCall, samples
from tests.engine.ops.test_contract_on_gpus import compared
from tests.fakes.cupy import install
from tests.fakes.streams import CaptureError

assert dpexec.engine.ops
CAPTURABLE = set(opdef.types_where(lambda d: d.capturable and d.samples))
DROPOUT = {"dropout", "dropout_grad"}
"""Whose own kernel for GPUs is captured, see ``tests/engine/gpu/test_graphs.py``."""


def test_graphs_repeat_what_their_operators_compute(monkeypatch):
    cupy = install(monkeypatch, 1)
    stream = cupy.cuda.Stream(non_blocking=True)
    captured = set()

    def in_a_graph(type, general):
        def kernel(xp, *values, **attrs):
            cupy.cuda.Device(0).synchronize()
            pool = cupy.cuda.MemoryPool()
            with stream, cupy.cuda.using_allocator(pool.malloc), looking_later():
                stream.begin_capture()
                try:
                    made = general(products(xp), *values, **attrs)
                finally:
                    graph = stream.end_capture()
                graph.launch()
                stream.synchronize()
            captured.add(type)
            return made

        return kernel

    kept = samples
    for type in sorted(CAPTURABLE - DROPOUT):
        fitting = [s for s in kept(type) if is_capturable(SampleCall(type, s, np.float32).op)]
        assert fitting, type
        chosen = {type: fitting[:2]}
        monkeypatch.setattr("tests.engine.ops.test_contract_on_gpus.samples", chosen.get)
        compared(type, cupy, 1e-4, in_a_graph)
    assert captured > CAPTURABLE - DROPOUT
    assert {opdef.get(type).is_random for type in captured} == {False}


@pytest.mark.parametrize("type", ["concat", "stack"])
@pytest.mark.parametrize("count", [8, 9])
def test_long_lists_of_addresses_come_from_the_host(monkeypatch, type, count):
    cupy = install(monkeypatch, 1)
    sample = Sample({"X": [np.ones((2, 3), np.float32)] * count})
    call = SampleCall(type, sample, np.float32)
    assert is_capturable(call.op) == (count == 8)
    call.xp = cupy
    call.values = {name: cupy.asarray(value) for name, value in call.values.items()}
    cupy.cuda.Device(0).synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream, cupy.cuda.using_allocator(cupy.cuda.MemoryPool().malloc):
        stream.begin_capture()
        if count == 8:
            call.forward()
        else:
            with pytest.raises(CaptureError, match="a list of 9 addresses takes values of the"):
                call.forward()
        stream.end_capture()
