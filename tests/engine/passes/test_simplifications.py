"""Constant folding, common subexpressions, identities and dead operators."""

import numpy as np

import dpexec as fluid
from dpexec.engine.graph.operators import Operators
from dpexec.engine.passes import (
    CommonSubexpressions,
    ConstantFolding,
    PassManager,
    RemoveIdentities,
)
from tests.engine.run.nets import batches, classifier, train

layers = fluid.layers


def built(build):
    """A program of what ``build`` makes of its inputs, and the names of the results."""
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        made = build(fluid.data("x", [None, 3]), fluid.data("y", [None, 3]))
    return main, [var.name for var in made]


def rewritten(main, step, kept=()):
    manager = PassManager([], [step])
    operators = manager.rewrite(Operators(main, kept))
    return operators, manager.records[0]


def types(operators):
    return [op.type for op in operators.ops]


def values(main, names, **options):
    """What the results are on two devices."""
    build = fluid.BuildStrategy()
    for name, value in options.items():
        setattr(build, name, value)
    x = np.arange(12, dtype="float32").reshape(4, 3) - 5
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        build_strategy=build, places=[fluid.CPUPlace()] * 2
    )
    return fluid.Executor().run(compiled, {"x": x, "y": x[::-1].copy()}, names, scope=fluid.Scope())


def assert_same_results(main, names, field):
    for one, other in zip(values(main, names), values(main, names, **{field: True}), strict=True):
        assert np.array_equal(one, other)


def test_equal_operators_run_once():
    def build(x, y):
        one, other = layers.elementwise_mul(x, y), layers.elementwise_mul(x, y)
        return [layers.exp(one) + layers.exp(other), layers.elementwise_sub(y, x)]

    main, names = built(build)
    operators, record = rewritten(main, CommonSubexpressions())
    assert types(operators).count("elementwise_mul") == types(operators).count("exp") == 1
    assert record.ops_before - record.ops_after == 2
    total = next(op for op in operators.ops if op.type == "elementwise_add")
    assert total.input("X") == total.input("Y")
    assert_same_results(main, names, "common_subexpressions")


def test_equal_operators_on_other_values_stay():
    def build(x, y):
        before = layers.scale(x, 2.0)
        layers.assign(y, x)
        return [before + layers.scale(x, 2.0)]

    main, _ = built(build)
    assert not rewritten(main, CommonSubexpressions())[1].modified


def test_random_operators_and_other_attributes_stay():
    def build(x, y):
        drawn = layers.dropout(x, 0.5) + layers.dropout(x, 0.5)
        return [drawn, layers.scale(x, 2.0) + layers.scale(x, 3.0)]

    main, _ = built(build)
    assert not rewritten(main, CommonSubexpressions())[1].modified


def test_fetched_result_of_an_equal_operator_stays():
    main, _ = built(lambda x, y: [layers.exp(x) + layers.exp(x)])
    first, second = (op.output("Out")[0] for op in main.global_block().ops if op.type == "exp")
    assert not rewritten(main, CommonSubexpressions(), kept=[second])[1].modified
    found = values(main, [first, second], common_subexpressions=True)
    assert np.array_equal(*found)


def test_constants_are_computed_when_compiling():
    def build(x, y):
        half = layers.fill_constant([1], "float32", 0.1)
        third = layers.scale(layers.cast(layers.fill_constant([1], "int32", 3), "float32"), 0.7)
        return [layers.elementwise_mul(x, layers.elementwise_add(half, third), axis=0)]

    main, names = built(build)
    operators, record = rewritten(main, ConstantFolding())
    assert record.modified
    assert types(operators) == ["fill_constant", "elementwise_mul"]
    constant = operators.ops[0]
    expected = np.float32(0.1) + np.float32(3) * np.float32(0.7)
    assert np.float32(constant.attr("value")) == expected
    assert_same_results(main, names, "constant_folding")


def test_constants_in_variables_that_are_kept_stay():
    def build(x, y):
        counter = layers.create_global_var([1], 2.0, "float32", persistable=True)
        layers.assign(layers.fill_constant([1], "float32", 2.0), counter)
        return [layers.scale(counter, 3.0)]

    main, _ = built(build)
    operators, _ = rewritten(main, ConstantFolding())
    assert types(operators) == types(Operators(main))


def test_copies_are_not_made():
    def build(x, y):
        same = layers.cast(layers.scale(layers.assign(x), 1.0), "float32")
        return [layers.exp(layers.reshape(same, [-1, 3]))]

    main, names = built(build)
    operators, record = rewritten(main, RemoveIdentities())
    assert record.ops_before - record.ops_after >= 3
    assert types(operators) == ["exp"]
    assert operators.ops[0].input("X") == ["x"]
    assert_same_results(main, names, "remove_identities")


def test_copy_of_what_changes_later_stays():
    def build(x, y):
        copy = layers.assign(x)
        layers.assign(y, x)
        return [layers.exp(copy)]

    main, _ = built(build)
    operators, _ = rewritten(main, RemoveIdentities())
    assert types(operators).count("assign") == 2


def with_accuracy():
    net = classifier()
    main, startup = net.main, net.startup
    with fluid.program_guard(main, startup):
        block = main.global_block()
        accuracy = layers.accuracy(net.prediction, block.var("y"))
    return net, accuracy


def test_what_nobody_reads_is_not_computed():
    net, accuracy = with_accuracy()
    run = train(net, batches(1), 2)
    engine = run.compiled._engine
    live, ran = ({node.name for node in nodes} for nodes in (engine.plan.live, engine.plan.nodes))
    assert live - ran == {"accuracy", "top_k"}
    assert len(engine.plan.live) - len(engine.plan.nodes) == 4
    assert "4 operators are skipped" in engine.plan.describe()
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor()
        exe.run(run.compiled, batches(1)[0], [net.loss, accuracy])
    assert len(engine.plan.live) == len(engine.plan.nodes)


def test_dead_operators_run_if_asked_for_and_are_checked_anyway():
    net, _ = with_accuracy()
    run = train(net, batches(1), 2, skip_dead_ops=False)
    plan = run.compiled._engine.plan
    assert len(plan.live) == len(plan.nodes)


def test_operators_that_act_run_though_nobody_reads_them(capfd):
    def build(x, y):
        layers.Print(layers.exp(x), message="seen")
        return [layers.scale(x, 2.0)]

    main, names = built(build)
    values(main, names)
    assert capfd.readouterr().out.count("seen") == 2


def test_run_of_which_nobody_sees_anything():
    main, _ = built(lambda x, y: [layers.exp(x)])
    assert values(main, []) == []
