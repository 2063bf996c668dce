"""Pieces of machine code: which operators they hold, and which memory they may overwrite."""

from __future__ import annotations

import time

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.compile.plans.step_binding import bind_step
from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.compile.regions.step import Step
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.dispatch.traces import trace_of
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph
from dpexec.engine.ir.spec import Spec
from tests.engine.run.nets import AllReduce, Reduce, batches, classifier, strategies, train

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.engine import kernels
from dpexec.engine.compile.regions.arena import arena_of
from dpexec.engine.compile.regions.memory import aligned
from dpexec.engine.compile.regions.table import CodeTable
from dpexec.engine.compile.regions.task import TaskCode
from dpexec.engine.kernels import implementations
from dpexec.engine.kernels.stamps import times_of, width

layers = fluid.layers
ROWS, COLUMNS = 4, 16
NBYTES = ROWS * COLUMNS * 4


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: True)


@pytest.fixture
def on_numpy(monkeypatch):
    """Make operators of some types run on NumPy."""

    def without(*types):
        find = implementations.find
        monkeypatch.setattr(
            implementations,
            "find",
            lambda type, *rest: None if type in types else find(type, *rest),
        )

    return without


class Task:
    """The code of a program's operators, as one task.

    Args:
        build: gets x, (ROWS, COLUMNS), and returns the variables that are needed outside.
    """

    def __init__(self, build):
        program = fluid.Program()
        with fluid.unique_name.guard(), fluid.program_guard(program, fluid.Program()):
            found = build(fluid.data("x", [ROWS, COLUMNS], "float32"))
        self.results = [var.name for var in (found if isinstance(found, tuple) else (found,))]
        graph = build_ssa_graph(program, [CPUPlace()], ReplicationOptions())
        variables = program.global_block().vars.values()
        specs = {var.name: Spec(tuple(var.shape), var.dtype) for var in variables}
        self.code = TaskCode(specs, frozenset(self.results), set(), {})
        self.before = [Step(node, bind_step(node, lambda _: np, False)) for node in graph.ops]
        self.code.take(self.before)
        self.inner_bytes = self.code.layout()
        arena = arena_of([self.code.sizes], [{}])
        memory = aligned(arena.nbytes)
        place = memory, arena.inner[0], arena.lasting[0]
        self.steps = self.code.finish(*place, self.before, 0, self.code.sized(0))

    @property
    def kinds(self):
        """What the steps do: one word for an operator on NumPy, a list for a piece of code."""
        return [
            [part.node.op.type for parts, _ in step.code.parts for part in parts]
            if step.code
            else step.node.op.type
            for step in self.steps
        ]

    def run(self, x, shard=None):
        env = Env(shard or Shard())
        env["x"] = x
        for step in self.steps:
            step.call(env)
        return env

    def check(self, x):
        """Compare with NumPy."""
        env, expected = self.run(x), Env(Shard())
        expected["x"] = x
        for step in self.before:
            step.call(expected)
        for name in self.results:
            np.testing.assert_allclose(env[name], expected[name], rtol=1e-6, atol=1e-6)


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype("float32")


def test_a_chain_is_one_piece_that_works_in_the_memory_of_its_result(x):
    task = Task(lambda x: layers.sigmoid(layers.exp(layers.tanh(layers.relu(x)))))
    assert task.kinds == [["relu", "tanh", "exp", "sigmoid"]]
    assert task.inner_bytes == 0  # everything is overwritten by what comes next
    task.check(x)


def test_values_whose_lives_do_not_overlap_share_memory(x):
    def build(x):
        for _ in range(6):
            x = layers.softmax(layers.transpose(layers.transpose(x, [1, 0]), [1, 0]))
        return x

    task = Task(build)
    assert len(task.kinds) == 1
    assert task.inner_bytes == 2 * NBYTES  # transposing reads one place and writes another
    task.check(x)


def test_code_of_views_alone_calls_nothing():
    rows = CodeTable([], {}, {}).rows(0)
    assert (rows.shape, rows.dtype) == ((0, 2), np.int64)


def test_an_input_that_is_read_later_is_not_overwritten(x):
    def build(x):
        a = layers.exp(x)
        b = layers.tanh(a)
        return layers.elementwise_add(layers.sigmoid(b), layers.elementwise_mul(a, b))

    Task(build).check(x)


def test_a_view_that_is_read_later_is_not_overwritten(x):
    def build(x):
        a = layers.exp(x)
        view = layers.reshape(a, [COLUMNS, ROWS])
        b = layers.tanh(a)  # the last reader of a, but not of its elements
        return layers.elementwise_add(layers.reshape(b, [COLUMNS, ROWS]), view)

    task = Task(build)
    assert len(task.kinds) == 1
    task.check(x)


def test_what_a_view_is_of_is_not_overwritten_if_it_is_read_later(x):
    def build(x):
        a = layers.exp(x)
        b = layers.tanh(layers.reshape(a, [COLUMNS, ROWS]))
        return layers.elementwise_add(layers.reshape(b, [ROWS, COLUMNS]), a)

    Task(build).check(x)


def test_results_are_not_overwritten(x):
    def build(x):
        a = layers.exp(x)
        return a, layers.tanh(a)

    Task(build).check(x)


def test_what_the_run_brings_along_is_not_overwritten(x):
    before = x.copy()
    Task(lambda x: layers.relu(layers.reshape(x, [-1]))).check(x)
    np.testing.assert_array_equal(x, before)


def test_values_that_numpy_reads_keep_their_elements(x, on_numpy):
    on_numpy("reshape2")

    def build(x):
        a = layers.exp(x)
        view = layers.reshape(a, [COLUMNS, ROWS])  # on NumPy: a view of what code computed
        b = layers.tanh(a)
        return layers.elementwise_add(layers.transpose(b, [1, 0]), view)

    task = Task(build)
    assert task.kinds == [["exp"], "reshape2", ["tanh", "transpose2", "elementwise_add"]]
    task.check(x)


def test_operators_that_depend_on_no_code_run_before_it(x, on_numpy):
    on_numpy("sqrt")
    task = Task(lambda x: layers.exp(x) + layers.sqrt(layers.fill_constant([1], "float32", 4.0)))
    assert task.kinds == [["exp", "fill_constant"], "sqrt", ["elementwise_add"]]
    task.check(x)
    on_numpy("sqrt", "fill_constant")
    task = Task(lambda x: layers.exp(x) + layers.sqrt(layers.fill_constant([1], "float32", 4.0)))
    assert task.kinds == ["fill_constant", "sqrt", ["exp", "elementwise_add"]]
    task.check(x)


def test_a_name_may_be_written_twice(x):
    def build(x):
        a = layers.exp(x)
        b = layers.tanh(a)
        layers.assign(layers.sigmoid(x), output=a)
        return layers.elementwise_mul(a, b)

    task = Task(build)
    assert len(task.kinds) == 1
    task.check(x)


def test_a_name_that_is_needed_outside_may_be_written_twice(x):
    def build(x):
        a, b = layers.exp(x), layers.tanh(x)
        for found in (a, b):
            layers.sums([found, x], out=found)
        return a, b

    Task(build).check(x)


def test_code_notes_the_time_of_every_operator(x):
    task = Task(lambda x: layers.softmax(layers.relu(layers.transpose(x, [1, 0]))))
    (step,) = task.steps
    env = Env()
    env["x"] = x
    stamps = np.zeros(width(step.code.rows), np.int64)
    begin = time.perf_counter_ns()
    step.code.run(env, stamps)
    end = time.perf_counter_ns()
    times = times_of(stamps).tolist()
    assert begin <= times[0] and times[-1] <= end
    assert times == sorted(times) and len(set(times)) > 1
    assert [len(parts) for parts, _ in step.code.parts] == [1, 1, 1]
    assert step.code.parts[-1][1] == step.code.rows
    np.testing.assert_array_equal(env[task.results[0]], task.run(x)[task.results[0]])


def test_arrays_in_any_order_of_elements_can_be_brought(x):
    task = Task(lambda x: layers.tanh(x))
    out = task.results[0]
    expected = task.run(x)[out].copy()
    np.testing.assert_array_equal(task.run(np.asfortranarray(x))[out], expected)
    np.testing.assert_array_equal(task.run(x[::-1])[out], expected[::-1])


def test_values_that_an_operator_refuses_give_its_own_error():
    net = classifier()
    (feed,) = batches(1)
    feed["y"][5] = 7
    with pytest.raises(EnforceNotMet, match=r"7") as native:
        train(net, [feed], 2)
    with pytest.raises(EnforceNotMet) as plain:
        train(net, [feed], 2, native_kernels=False)
    assert str(native.value) == str(plain.value)


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("options", [{}, {"task_granularity": "op"}, {"scheduler": "sync"}])
def test_training_in_code_is_training_on_numpy(mode, options):
    feeds = [*batches(2), *batches(2, rows=10), *batches(1)]
    made = [
        train(classifier(fluid.optimizer.Adam(0.1)), feeds, 2, mode, native_kernels=on, **options)
        for on in (True, False)
    ]
    np.testing.assert_allclose(made[0].losses, made[1].losses, rtol=1e-5)
    for name, array in made[1].state.items():
        np.testing.assert_allclose(made[0].state[name], array, rtol=1e-4, atol=1e-6, err_msg=name)


def test_the_loss_gradient_is_the_share_of_the_batch_of_this_run():
    """Ten rows on four devices: three, three, two, two; and batches of other sizes in between."""
    feeds = [*batches(2, rows=10), *batches(1, rows=4), *batches(1, rows=10)]
    four = train(classifier(), feeds, 4)
    one = train(classifier(), feeds, 1)
    for name, array in one.state.items():
        np.testing.assert_allclose(four.state[name], array, rtol=1e-4, atol=1e-6, err_msg=name)


def test_traces_show_every_operator():
    build, execution = strategies()
    execution.trace = True
    net = classifier()
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=[fluid.CPUPlace()] * 2
        )
        exe.run(compiled, feed=batches(1)[0], fetch_list=[net.loss])
        engine = compiled._engine
    assert any(step.code for steps in engine.runner.binding.steps for step in steps)
    ops = [event for event in trace_of(engine, engine.recorder) if event.kind == "op"]
    shown = {name for event in ops for name in event.args.get("parts", [event.name])}
    assert "mul+elementwise_add" in {event.name for event in ops}
    assert {op.type for op in net.main.global_block().ops if op.type != "fill_constant"} <= shown


def test_a_step_that_does_not_fit_into_memory_names_its_largest_value():
    x = fluid.data("x", [None, None])
    products = fluid.layers.matmul(x, x, transpose_x=True)
    total = fluid.layers.reduce_sum(products)
    exe = fluid.Executor()
    side = 1 << 22
    message = (
        rf"operator matmul on device 0: .*{4 * side * side:,} bytes(.|\n)*Out\({products.name}\)"
        r"(.|\n)*test_native"
    )
    with pytest.raises(EnforceNotMet, match=message):
        exe.run(feed={"x": np.ones((1, side), "float32")}, fetch_list=[total])
    assert exe.run(feed={"x": np.ones((1, 3), "float32")}, fetch_list=[total])[0] == [9.0]
