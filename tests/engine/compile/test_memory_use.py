"""Memory in a trace, compared with the plan, the arrays and the arenas of the code."""

import gc
import weakref
from collections import defaultdict

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.compile.bindings.memory_use import measure
from dpexec.engine.graph.kinds import COMPUTE
from dpexec.engine.graph.ssa import OpNode, VarNode
from tests.engine.run.nets import batches, classifier, train
from tests.waiting import until


def replay(trace, wanted=lambda item: True):
    """Bytes per device at the end, and the most there ever were."""
    held: dict[int, int] = defaultdict(int)
    most: dict[int, int] = defaultdict(int)
    for item in trace.memory:
        if wanted(item):
            held[item.device] += item.bytes
            most[item.device] = max(most[item.device], held[item.device])
    return dict(held), dict(most)


def alive(item):
    return item.kind != "arena"


@pytest.fixture(scope="module", params=[True, False], ids=["code", "NumPy"])
def run(request):
    if request.param:
        pytest.importorskip("numba", reason="code needs numba")
    net = classifier(fluid.optimizer.Momentum(0.1, 0.9), sizes=(8, 16, 3))
    made = train(net, batches(3), 2, trace=True, native_kernels=request.param)
    return net, made, made.compiled.trace


def test_nothing_is_given_back_that_was_not_taken(run):
    _, _, trace = run
    held: dict[tuple[int, str], int] = defaultdict(int)
    times = [item.time for item in trace.memory]
    assert times == sorted(times)
    for item in trace.memory:
        held[item.device, item.name] += item.bytes
        assert held[item.device, item.name] >= 0, item


def test_what_stays_are_parameters_and_states(run):
    net, made, trace = run
    stay, _ = replay(trace, alive)
    block = net.main.global_block()
    expected = sum(
        array.nbytes for name, array in made.state.items() if block.vars[name].persistable
    )
    assert stay == {0: expected, 1: expected}
    parameters = {parameter.name for parameter in block.all_parameters()}
    assert {i.name for i in trace.memory if i.kind == "parameter"} == parameters
    assert any("velocity" in item.name for item in trace.memory if item.kind == "state")


def test_what_a_loop_makes_is_no_feed():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        words = fluid.data("words", [None, 2], "float32", lod_level=1)
        rnn = fluid.layers.DynamicRNN()
        with rnn.block():
            rnn.output(fluid.layers.fc(rnn.step_input(words), 3))
        loss = fluid.layers.mean(rnn())
        fluid.optimizer.SGD(0.1).minimize(loss)
    execution = fluid.ExecutionStrategy()
    execution.trace = True
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, exec_strategy=execution, places=[fluid.CPUPlace()]
    )
    exe = fluid.Executor(fluid.CPUPlace())
    batch = fluid.create_lod_tensor(np.ones((3, 2), np.float32), [[2, 1]], fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        exe.run(compiled, feed={"words": batch}, fetch_list=[loss])
    fed = {item.name for item in compiled.trace.memory if item.kind == "feed"}
    assert fed == {"words"}


def test_values_have_the_bytes_of_their_arrays(run):
    net, _, trace = run
    (feed,) = batches(1)
    taken = {(i.device, i.name): i for i in trace.memory if i.bytes > 0}
    for name, array in feed.items():
        assert taken[0, name].kind == "feed" and taken[0, name].bytes == array.nbytes // 2
    rows = len(feed["x"]) // 2
    gradients = [name for _, name in taken if name.endswith("w_0@GRAD")]
    assert sorted(gradients)[0] == "fc_0.w_0@GRAD"
    for parameter in net.main.global_block().all_parameters():
        gradient = taken[1, f"{parameter.name}@GRAD"]
        assert (gradient.bytes, gradient.kind) == (4 * np.prod(parameter.shape), "gradient")
    hidden = taken[1, "fc_0.tmp_2"]
    assert (hidden.bytes, hidden.kind) == (rows * 16 * 4, "temporary")


def test_arenas_are_the_memory_of_the_code(run):
    _, made, trace = run
    engine = made.compiled._engine
    arenas = sum(item.bytes for item in trace.memory if item.kind == "arena")
    sizes = engine.runner.binding.memory.sizes
    assert arenas == sum(nbytes for key, nbytes in sizes.items() if key[0] != "sum")
    native = bool(engine.compilation.native)
    assert (arenas > 0) == native


def test_the_first_note_of_a_result_looks_at_nothing_else():
    """Or a recording of n operators of Python takes n * n looks."""

    class Other:
        nbytes = property(lambda self: pytest.fail("looked at"))

    x, view, new = (VarNode(k, name, 0, 0) for k, name in enumerate(("x", "view", "new")))
    node = OpNode(0, COMPUTE, "split", 0, "forward", inputs=[x], outputs=[view, new])
    value = np.ones(8)
    measured: dict[VarNode, int] = {}
    env = {"x": value, "view": value[:4], "new": np.ones(3), "other": Other()}
    measure(node, [env], measured)
    assert measured == {view: 0, new: 24}


def test_every_step_has_the_same_peak(run):
    _, _, trace = run
    steps = [[e for e in trace if e.step == step and e.kind == "task"] for step in trace.steps]
    ends = [max(event.stop for event in events) for events in steps]
    held, peaks = 0, [0] * len(ends)
    for item in trace.memory:
        if alive(item) and item.device == 0:
            held += item.bytes
            step = sum(item.time > end for end in ends)
            peaks[min(step, len(ends) - 1)] = max(peaks[min(step, len(ends) - 1)], held)
    assert len(set(peaks[1:])) == 1


def test_a_trace_keeps_no_engine_alive(monkeypatch):
    made = train(classifier(), batches(3), 2, trace=True)
    binding = weakref.ref(made.compiled._engine.runner.binding)
    memory = made.compiled.trace.memory
    del made

    def is_gone():
        gc.collect()
        return binding() is None

    assert until(is_gone) and memory  # a helping thread may still have to let go of the last run
