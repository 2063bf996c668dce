"""Training on simulated GPUs gives the numbers of CPUs, and the host waits for fetches alone."""

import gc

import numpy as np
import pytest
from dpexec.viz.measured.memory_use import memory_of

import dpexec as fluid
from dpexec.engine.compile.plans.compilation import Compilation
from tests.engine.gpu.programs import (
    NETS,
    assert_same_bits,
    feeds_of,
    regression,
    trained,
    without_labels,
)
from tests.engine.run.nets import AllReduce, Net, Reduce, batches, classifier, persistables


@pytest.mark.parametrize("gpus", [[0], [0, 1], [0, 0]], ids=str)
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("name", NETS)
def test_gpus_compute_what_processors_do(cupy, name, mode, gpus):
    net = NETS[name]()
    feeds = feeds_of(name)
    expected = trained(net, [fluid.CPUPlace()] * len(gpus), mode, feeds)
    found = trained(net, [fluid.CUDAPlace(gpu) for gpu in gpus], mode, feeds)
    assert_same_bits(found, expected)


def test_defaults_and_parallel_executor_run_on_all_gpus(cupy, monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    net, feeds = classifier(dropout=0.3), batches(3)
    losses = []
    for use_cuda in (False, True):
        with fluid.scope_guard(fluid.Scope()):
            place = fluid.CUDAPlace(0) if use_cuda else fluid.CPUPlace()
            exe = fluid.Executor(place)
            exe.run(net.startup)
            single = [float(exe.run(net.main, feed, [net.loss])[0]) for feed in feeds]
            run_as = fluid.ExecutionStrategy()
            run_as.scheduler = "threads"
            parallel = fluid.ParallelExecutor(
                use_cuda, net.loss.name, net.main, exec_strategy=run_as
            )
            assert not use_cuda or parallel.device_count == 2
            several = [parallel.run([net.loss.name], feed)[0].mean() for feed in feeds]
            (test,) = exe.run(net.test, feeds[0], [net.loss])
            losses.append([*single, *several, float(test)])
    np.testing.assert_allclose(losses[1], losses[0], 1e-5)


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("name", NETS)
def test_nothing_overtakes_when_no_fetch_waits(cupy, name, mode):
    """Collectives in many pieces, at the same time as the backward pass."""
    net = NETS[name]()
    feeds = feeds_of(name)
    expected = trained(net, [fluid.CPUPlace()] * 2, mode, feeds)
    gpus = [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    found = trained(net, gpus, mode, feeds, fetch=False, task_granularity="op")
    assert_same_bits(([], found[1]), ([], expected[1]))


def test_only_fetches_make_the_host_wait(cupy):
    places = [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    reads = cupy.machine.reads
    trained(regression(), places, feeds=without_labels(2), fetch=False)
    copied = ["get"] * len(regression().main.all_parameters())
    assert reads == copied  # of parameters, when training is over
    reads.clear()
    trained(regression(), places, feeds=without_labels(2))
    assert reads == ["event"] * 2 * 2 + copied  # two GPUs, two steps
    reads.clear()
    trained(classifier(), places, feeds=batches(2), fetch=False)
    assert set(reads) == {"event", "get"}  # labels are looked at behind the backward pass


@pytest.mark.parametrize("name", ["sparse", "sparse adam"])
def test_sparse_gradients_do_not_make_the_host_wait(cupy, name):
    net, places, reads = NETS[name](), [fluid.CUDAPlace(0), fluid.CUDAPlace(1)], cupy.machine.reads
    trained(net, places, feeds=feeds_of(name, 2), fetch=False)
    looks = [what for what in reads if what != "get"]
    assert set(looks) == {"event"}  # ids and labels are looked at behind the backward pass
    assert reads.count("get") == len(net.main.all_parameters())  # when training is over


def test_batches_of_a_loader_go_ahead_on_the_stream_for_feeds(cupy):
    """Its thread copies batches into memory of earlier ones while steps are enqueued."""
    net, feeds, scope = regression(), without_labels(12), fluid.Scope()
    places = [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    expected = trained(net, [fluid.CPUPlace()] * 2, feeds=feeds)
    loader = fluid.io.DataLoader.from_generator([net.main.global_block().var("x")], capacity=2)
    halves = [feed["x"][half] for feed in feeds for half in (slice(0, 6), slice(6, 12))]
    loader.set_batch_generator(lambda: iter([half] for half in halves), places)
    with fluid.scope_guard(scope):
        exe = fluid.Executor(places[0])
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(net.loss.name, places=places)
        for batch in loader():
            exe.run(program, batch, [])
        found = {name: np.array(scope.find_var(name).get_tensor()) for name in expected[1]}
    assert_same_bits(([], found), ([], expected[1]))


def test_memory_of_a_program_that_goes_is_used_again_when_it_is_done(cupy):
    net, scope = regression(), fluid.Scope()
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CUDAPlace(0))
        exe.run(net.startup)
        for _ in range(3):
            program = fluid.CompiledProgram(net.main).with_data_parallel(
                net.loss.name, places=[fluid.CUDAPlace(0)]
            )
            for feed in without_labels(2):
                exe.run(program, feed, [])
            del program
            gc.collect()


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_tensors_are_waited_for_when_they_are_read(cupy, mode):
    net, feeds, places = regression(), without_labels(4), [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    expected, _ = trained(net, places, mode, feeds)
    build, reads = fluid.BuildStrategy(), cupy.machine.reads
    build.reduce_strategy, build.native_kernels = mode, False
    names = [net.loss.name, net.main.all_parameters()[0].name + "@GRAD"]
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(places[0])
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, places=places
        )
        reads.clear()
        fetched = [exe.run(program, feed, names, return_numpy=False) for feed in feeds]
        assert not reads
        for (loss, _), (other,) in zip(fetched, expected, strict=True):
            np.testing.assert_array_equal(np.array(loss), other)
        assert set(reads) == {"event"}
        exe.run(program, feeds[0], names, return_numpy=False)  # nobody reads it
        cupy.machine.synchronize()  # its memory must not be somebody else's before


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("gpus", [[0], [0, 1]])
def test_a_refused_label_changes_nothing(cupy, in_place, gpus):
    net, places, scope = classifier(), [fluid.CUDAPlace(gpu) for gpu in gpus], fluid.Scope()
    (feed,) = batches(1)
    wrong = {**feed, "y": feed["y"] + 1}
    build = fluid.BuildStrategy()
    build.enable_inplace = in_place
    with fluid.scope_guard(scope):
        exe = fluid.Executor(places[0])
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, places=places
        )
        exe.run(program, feed, [])
        before = persistables(net.main, scope)
        with pytest.raises(fluid.core.EnforceNotMet) as error:
            exe.run(program, wrong, [])
        for text in ("operator cross_entropy", "Label value >= 0 and < 3 expected, but got 3",
                     f"input Label(y): int64[{12 // len(gpus)}, 1]", "nets.py"):  # fmt: skip
            assert text in str(error.value)
        for name, value in persistables(net.main, scope).items():
            np.testing.assert_array_equal(value, before[name], err_msg=name)
        (loss,) = exe.run(program, feed, [net.loss])
    assert np.isfinite(loss).all()


def test_refused_scores_are_counted_nowhere(cupy):
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        scores, label = fluid.data("scores", [None, 2]), fluid.data("label", [None, 1], "int64")
        area, *_ = fluid.layers.auc(scores, label, num_thresholds=7)
    feed = {"scores": np.float32([[0.7, 0.3], [0.2, 0.8]]), "label": np.array([[0], [1]])}
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CUDAPlace(0))
        exe.run(startup)
        exe.run(main, feed, [area])
        before = persistables(main, scope)
        with pytest.raises(fluid.core.EnforceNotMet, match=r"<= 1 expected, but got 1\.5"):
            exe.run(main, {**feed, "scores": feed["scores"] + np.float32(0.7)}, [])
        after = persistables(main, scope)
    assert sum(value.sum() for value in before.values()) > 0
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def test_times_of_a_trace_are_those_of_the_gpus(cupy):
    net, scope = regression(), fluid.Scope()
    run_as = fluid.ExecutionStrategy()
    run_as.trace = True
    run_as.scheduler = "threads"
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CUDAPlace(0))
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, exec_strategy=run_as, places=[fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
        )
        for feed in without_labels(2):
            exe.run(program, feed, [net.loss])
    events = program.trace.events
    operators = [event for event in events if event.kind == "op"]
    tasks = {event.key: event for event in events if event.kind in ("task",)}
    assert operators and tasks
    lanes = {
        event.device: {e.thread for e in operators if e.device == event.device}
        for event in operators
    }
    assert all(len(found) == 1 for found in lanes.values()) and lanes[0] != lanes[1]
    for event in operators:
        ticks = event.duration * 1e6  # the GPUs that do not exist take a microsecond for a kernel
        assert abs(ticks - round(ticks)) < 0.01


def test_views_take_no_memory_in_a_trace(cupy):
    main, run_as = fluid.Program(), fluid.ExecutionStrategy()
    run_as.trace = True
    with fluid.program_guard(main):
        flat = fluid.layers.reshape(fluid.data("x", [None, 8]), [-1, 2, 4])
        twice = fluid.layers.scale(flat, 2.0)
    program = fluid.CompiledProgram(main).with_data_parallel(
        exec_strategy=run_as, places=[fluid.CUDAPlace(0)]
    )
    fluid.Executor(fluid.CUDAPlace(0)).run(program, without_labels(1)[0], [twice])
    (used,) = memory_of(program.trace)
    assert used.peak.bytes == 2 * 12 * 8 * 4  # the batch, and the result


def test_replicas_of_a_cluster_use_the_first_gpu_of_their_worker(cupy):
    net, places = regression(), [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    made = Compilation.of(net.main, places, fluid.BuildStrategy(), True, "tasks")
    assert made.places == [fluid.CUDAPlace(0)] * 2


def test_fused_programs_are_fewer_launches(cupy):
    places, log = [fluid.CUDAPlace(0), fluid.CUDAPlace(1)], cupy.machine.log
    plain = trained(gated(), places, feeds=without_labels(3))
    launches = len(log)
    log.clear()
    options = {"enable_auto_fusion": True, "fuse_all_optimizer_ops": True}
    fused = trained(gated(), places, feeds=without_labels(3), **options)
    assert any(name.startswith("dp_group_") for *_, name in log)
    assert len(log) < 0.9 * launches
    for name, value in plain[1].items():
        np.testing.assert_allclose(fused[1][name], value, 1e-5, 1e-6, err_msg=name)


def gated():
    """A net with some operators in a row that work element by element."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 8], "float32")
        gate = fluid.layers.sigmoid(fluid.layers.fc(x, 16))
        hidden = fluid.layers.tanh(fluid.layers.fc(x, 16)) * gate + gate * 0.5
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 3) - 1.0))
        fluid.optimizer.Adam(0.01).minimize(loss)
    return Net(main, startup, loss, main, None)


def test_gpus_share_the_sums(cupy):
    trained(regression(), [fluid.CUDAPlace(0), fluid.CUDAPlace(1)], feeds=without_labels(1))
    done = {}
    for device, stream, name in cupy.machine.log:
        done.setdefault((device, stream), set()).add(name)
    adding = [device for (device, _), names in done.items() if names == {"copy", "add"}]
    assert sorted(adding) == [0, 1]  # on the streams that exchange


def test_tasks_are_named_for_profilers(cupy):
    trained(regression(), [fluid.CUDAPlace(0)], feeds=without_labels(1))
    ranges = cupy.cuda.nvtx.ranges
    assert "optimizer" in " ".join(ranges) and cupy.cuda.nvtx.open == 0


def test_sequences_come_back_with_their_offsets(cupy):
    main = fluid.Program()
    with fluid.program_guard(main):
        twice = fluid.layers.scale(fluid.data("x", [None, 2], "float32", lod_level=1), 2.0)
    fed = fluid.create_lod_tensor(np.arange(12.0, dtype="f").reshape(6, 2), [[1, 3, 2]], None)
    program = fluid.CompiledProgram(main).with_data_parallel(
        places=[fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    )
    exe = fluid.Executor(fluid.CUDAPlace(0))
    (found,) = exe.run(program, {"x": fed}, [twice], return_numpy=False)
    assert found.recursive_sequence_lengths() == [[1, 3, 2]]
    np.testing.assert_array_equal(found, 2 * np.array(fed))
