"""Numbers that determine shapes are computed on the host, so that no step waits for a GPU."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from tests.engine.gpu.programs import assert_same_bits, reshaping, trained, without_labels
from tests.engine.run.nets import AllReduce, Reduce


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("gpus", [[0], [0, 1]], ids=str)
def test_computed_sizes_do_not_make_the_host_wait(cupy, gpus, mode, graphs):
    net, reads = reshaping(), cupy.machine.reads
    feeds = [{"x": feed["x"][: 12 - 4 * (n % 2)]} for n, feed in enumerate(without_labels(6))]
    expected = trained(net, [fluid.CPUPlace()] * len(gpus), mode, feeds)
    reads.clear()
    places = [fluid.CUDAPlace(gpu) for gpu in gpus]
    options = {"allow_cuda_graph_capture": graphs}
    found = trained(net, places, mode, feeds, fetch=False, **options)
    assert set(reads) == {"get"}  # of parameters, when training is over
    assert_same_bits(([], found[1]), ([], expected[1]))


def test_numbers_that_are_kept_stay_on_the_gpu(cupy):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        rows = layers.create_global_var([1], 2, "int32", persistable=True)
        layers.increment(rows, in_place=True)
        made = layers.reshape(fluid.data("x", [None, 6]), [rows, -1])
    program = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CUDAPlace(0)])
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CUDAPlace(0))
        exe.run(startup)
        (found,) = exe.run(program, {"x": np.ones((2, 6), "f")}, [made])
        kept = fluid.global_scope().find_var(rows.name).get_tensor()
        assert found.shape == (3, 4) and np.array(kept).tolist() == [3]
    assert not any(rows.name in op.output_arg_names for op in program.plan.on_host)


def test_what_others_read_stays_on_the_gpu(cupy):
    main, scope = fluid.Program(), fluid.Scope()
    with fluid.program_guard(main):
        x = fluid.data("x", [None, 6])
        shape = layers.shape(x)
        three, two = (layers.fill_constant([1], "int32", n) for n in (3, 2))
        made = layers.reshape(x, [-1, three, two]) * layers.cast(two, "float32")
    program = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CUDAPlace(0)])
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CUDAPlace(0))
        fed = np.arange(12, dtype="f").reshape(2, 6)
        found = exe.run(program, {"x": fed}, [made, shape])
    np.testing.assert_array_equal(found[0], 2 * fed.reshape(2, 3, 2))
    assert found[1].tolist() == [2, 6]
    outputs = {name for op in program.plan.on_host for name in op.output_arg_names}
    assert three.name in outputs
    assert outputs.isdisjoint([shape.name, two.name])  # which is fetched, and a factor, too
