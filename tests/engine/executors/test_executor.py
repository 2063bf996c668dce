"""Arguments that executors refuse before a run, and what their errors and warnings say."""

import pytest

import dpexec as fluid
from tests.engine.run.nets import Reduce, batches, classifier, strategies


def test_a_place_that_is_none():
    with pytest.raises(TypeError, match=r"takes a place such as CPUPlace\(\), .* 'cpu'"):
        fluid.Executor("cpu")


def test_a_scope_that_is_none():
    with pytest.raises(TypeError, match="takes a Scope, but received scope='global'"):
        fluid.Executor(fluid.CPUPlace()).run(fluid.Program(), scope="global")


def test_a_compiled_program_belongs_to_the_scope_of_its_first_run():
    y = fluid.layers.fill_constant([1], "float32", 2.0)
    executor = fluid.Executor(fluid.CPUPlace())
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    assert executor.run(compiled, fetch_list=[y]) == [2.0]
    with pytest.raises(ValueError, match=r"different scope\..* make another CompiledProgram"):
        executor.run(compiled, fetch_list=[y], scope=fluid.Scope())


def test_an_error_of_a_function_is_told_with_its_type():
    def fails(x):
        raise KeyError("mine")

    x = fluid.layers.fill_constant([2], "float32", 1.0)
    out = fluid.default_main_program().global_block().create_var(name="out", shape=[2])
    fluid.layers.py_func(fails, x, out)
    with pytest.raises(fluid.core.EnforceNotMet, match="py_func on device 0: KeyError: 'mine'"):
        fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])


def test_warnings_name_the_line_of_the_user(recwarn):
    y = fluid.layers.fill_constant([1], "float32", 2.0)
    execution = fluid.ExecutionStrategy()
    execution.num_threads = 1
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        exec_strategy=execution, places=fluid.cpu_places(2)
    )
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(compiled, fetch_list=[y])
    executor.run(fluid.Program())
    assert [(w.filename, str(w.message)[:21]) for w in recwarn] == [
        (__file__, "ExecutionStrategy.num"),
        (__file__, "The current program i"),
    ]


def test_what_is_compiled_says_what_and_where():
    net = classifier(fluid.optimizer.SGD(0.1))
    scope, exe = fluid.Scope(), fluid.Executor()
    exe.run(net.startup, scope=scope)
    assert repr(scope) == f"<Scope: {len(scope.local_var_names())} variables>"
    assert repr(scope.new_scope()) == "<Scope: 0 variables inside another scope>"
    ops = len(net.main.global_block().ops)
    alone = fluid.CompiledProgram(net.main)
    assert repr(alone) == f"<CompiledProgram: {ops} operators on one device, not run yet>"
    replicas = fluid.CompiledProgram(net.main).with_data_parallel(net.loss.name)
    assert repr(replicas).endswith("operators on all devices, AllReduce, not run yet>")
    build, _ = strategies(Reduce)
    several = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, places=fluid.cpu_places(2)
    )
    exe.run(several, batches(1)[0], [net.loss], scope=scope)
    assert repr(several).endswith("operators on 2 devices (CPUPlace), Reduce, compiled>")
    with fluid.program_guard(net.main):
        parallel = fluid.ParallelExecutor(False, loss_name=net.loss.name)
    assert repr(parallel).startswith("<ParallelExecutor of <CompiledProgram: ")
