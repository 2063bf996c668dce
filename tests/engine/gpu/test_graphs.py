"""Tasks as CUDA graphs on simulated GPUs: the same bits, with few launches and allocations."""

import contextlib

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.places import CUDAPlace
from tests.engine.gpu.programs import (
    NETS,
    assert_same_bits,
    feeds_of,
    regression,
    trained,
    without_labels,
)
from tests.engine.run.nets import AllReduce, Net, Reduce, batches, classifier, persistables


def gpus(numbers):
    return [CUDAPlace(gpu) for gpu in numbers]


def compiled(net, places):
    """The program, to be run with graphs."""
    build, run_as = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    build.allow_cuda_graph_capture = isinstance(places[0], CUDAPlace)
    run_as.scheduler = "threads"
    return fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, run_as, places=places
    )


@pytest.mark.parametrize(
    ("numbers", "mode", "nccl"),
    [([0], AllReduce, False), ([0, 1], AllReduce, True), ([0, 0], Reduce, False)],
    ids=str,
)
@pytest.mark.parametrize("name", NETS)
def test_graphs_compute_what_processors_do(cupy, name, numbers, mode, nccl):
    cupy.cuda.nccl.available = nccl
    net, feeds = NETS[name](), feeds_of(name)
    expected = trained(net, [fluid.CPUPlace()] * len(numbers), mode, feeds)
    found = trained(net, gpus(numbers), mode, feeds, allow_cuda_graph_capture=True)
    assert_same_bits(found, expected)
    assert any(name == "graph" for *_, name in cupy.machine.log)


def test_steps_are_few_launches(cupy):
    net, log = regression(), cupy.machine.log
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(CUDAPlace(0))
        exe.run(net.startup)
        program, launches = compiled(net, gpus([0])), []
        for feed in without_labels(4):
            log.clear()
            exe.run(program, feed, [])
            launches.append([name for *_, name in log])
    assert "graph" not in launches[0] and len(launches[0]) > 30
    for names in launches[1:]:  # the batch, statistics of batch_norm in and out, two graphs
        assert names.count("graph") == 2 and len(names) <= 2 + 6 + 2


def test_steps_allocate_little(cupy):
    net, machine = regression(), cupy.machine
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(CUDAPlace(0))
        exe.run(net.startup)
        program, allocated = compiled(net, gpus([0])), []
        for feed in without_labels(4):
            before = machine.allocated
            exe.run(program, feed, [])
            allocated.append(machine.allocated - before)
    assert allocated[0] > 40
    assert allocated[2:] == [5, 5]  # the batch, and statistics of batch_norm


def test_batches_of_all_sizes_share_the_memory_of_graphs(cupy, monkeypatch):
    make, pools, freed = cupy.cuda.MemoryPool, [], []
    monkeypatch.setattr(cupy.cuda, "MemoryPool", lambda: pools.append(make()) or pools[-1])
    monkeypatch.setattr(make, "free_all_blocks", lambda pool: freed.append(pool))
    net, (feed, *_) = regression(), without_labels(1)
    smaller = {"x": feed["x"][:6]}
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(CUDAPlace(0))
        exe.run(net.startup)
        program = compiled(net, gpus([0]))
        counts = []
        for batch in (feed, feed, smaller, smaller, feed, smaller):
            cupy.machine.log.clear()
            exe.run(program, batch, [])
            counts.append([name for *_, name in cupy.machine.log].count("graph"))
    assert counts == [0, 2, 0, 2, 2, 2]
    assert len(pools) == len(freed) == 2  # one for each piece; what steps had without graphs
    assert not {*pools} & {*freed}


def test_dropout_is_a_part_of_graphs(cupy):
    net, log = NETS["dropout"](), cupy.machine.log
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(CUDAPlace(0))
        exe.run(net.startup)
        program, drawn = compiled(net, gpus([0])), []
        for feed in batches(3):
            log.clear()
            exe.run(program, feed, [])
            drawn.append([name for *_, name in log].count("dp_dropout"))
    assert drawn[0] > 0 and drawn[1:] == [0, 0]


def test_sums_of_nccl_are_read_where_they_are(cupy):
    cupy.cuda.nccl.available = True
    net, log = regression(), cupy.machine.log
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(CUDAPlace(0))
        exe.run(net.startup)
        program = compiled(net, gpus([0, 1]))
        for feed in without_labels(4):
            log.clear()
            exe.run(program, feed, [])
    copies = [name for *_, name in log].count("setitem")
    assert copies == 2 * 3  # the batch and two statistics of batch_norm, on either GPU


@pytest.mark.parametrize("numbers", [[0], [0, 1]], ids=str)
def test_what_moves_or_changes_size_is_noticed(cupy, numbers):
    """Parameters that somebody sets, and batches of two sizes, which share them."""
    net, feeds = classifier(fluid.optimizer.Adam(0.01), batch_norm=True), batches(8)
    feeds[2::3] = [{name: array[:8] for name, array in feed.items()} for feed in feeds[2::3]]
    states = []
    for places in ([fluid.CPUPlace()] * len(numbers), gpus(numbers)):
        scope = fluid.Scope()
        with fluid.scope_guard(scope):
            exe = fluid.Executor(places[0])
            exe.run(net.startup)
            program = compiled(net, places)
            for number, feed in enumerate(feeds):
                if number == 5:
                    parameter = scope.find_var(net.main.all_parameters()[0].name).get_tensor()
                    parameter.set(np.array(parameter) * np.float32(0.5), places[0])
                exe.run(program, feed, [])
            states.append(persistables(net.main, scope))
    for name, value in states[0].items():
        np.testing.assert_allclose(states[1][name], value, 1e-5, 1e-6, err_msg=name)


def test_a_refused_label_changes_nothing(cupy):
    net, scope = classifier(fluid.optimizer.Adam(0.01), batch_norm=True), fluid.Scope()
    (feed,) = batches(1)
    with fluid.scope_guard(scope):
        exe = fluid.Executor(CUDAPlace(0))
        exe.run(net.startup)
        program = compiled(net, gpus([0]))
        for _ in range(3):
            exe.run(program, feed, [])
        before = persistables(net.main, scope)
        with pytest.raises(fluid.core.EnforceNotMet, match=r"Label value .* got 3[^Z]*nets.py"):
            exe.run(program, {**feed, "y": feed["y"] + 1}, [])
        for name, value in persistables(net.main, scope).items():
            np.testing.assert_array_equal(value, before[name], err_msg=name)
        assert np.isfinite(exe.run(program, feed, [net.loss])[0]).all()


def test_recorded_steps_are_launched_one_by_one(cupy):
    net, run_as, build = regression(), fluid.ExecutionStrategy(), fluid.BuildStrategy()
    run_as.trace = build.allow_cuda_graph_capture = True
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(CUDAPlace(0))
        exe.run(net.startup)
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, run_as, places=gpus([0])
        )
        for feed in without_labels(3):
            exe.run(program, feed, [])
    operators = [event for event in program.trace.events if event.kind == "op"]
    assert len(operators) >= 3 * len(program.plan.nodes)
    assert not any(name == "graph" for *_, name in cupy.machine.log)


@pytest.mark.parametrize("numbers", [[0], [0, 1]], ids=str)
def test_sparse_gradients_are_a_part_of_graphs(cupy, numbers):
    net, log = NETS["sparse"](), cupy.machine.log
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(CUDAPlace(0))
        exe.run(net.startup)
        program, launched = compiled(net, gpus(numbers)), []
        for feed in feeds_of("sparse", 4):
            log.clear()
            exe.run(program, feed, [])
            launched.append([name for *_, name in log])
    assert "dp_add_runs" in launched[0] and "argsort" in launched[0]
    assert not {"dp_add_runs", "argsort"} & set(launched[-1])
    assert "graph" in launched[-1]


def test_what_cannot_be_captured_runs_and_says_so_once(cupy, monkeypatch):
    monkeypatch.setattr("dpexec.engine.gpu.graphs.is_capturable", lambda op: True)
    net, feeds = with_constant(), without_labels(4)
    with pytest.warns(UserWarning, match="captured of .*assign_value") as said:
        found = trained(net, gpus([0, 1]), feeds=feeds, allow_cuda_graph_capture=True)
    assert len(said) == 2  # a piece of either replica
    assert_same_bits(found, trained(net, [fluid.CPUPlace()] * 2, feeds=feeds))


def with_constant():
    """A net whose numbers come from the host in every step."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 8], "float32")
        goal = fluid.layers.assign(np.array([0.5, -0.5], "float32"))
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 2) - goal))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return Net(main, startup, loss, main, None)


def test_memory_of_graphs_is_nobody_elses(cupy, monkeypatch):
    monkeypatch.setattr(cupy.cuda, "using_allocator", lambda allocator: contextlib.nullcontext())
    with pytest.raises(AssertionError, match=r"may still use|may be somebody else's"):
        trained(regression(), gpus([0]), feeds=without_labels(3), allow_cuda_graph_capture=True)


def test_processors_have_no_graphs():
    with pytest.warns(UserWarning, match="allow_cuda_graph_capture has no effect: no replica is"):
        trained(
            regression(), [fluid.CPUPlace()], feeds=without_labels(1), allow_cuda_graph_capture=True
        )
