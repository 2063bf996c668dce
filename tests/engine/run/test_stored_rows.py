"""``SelectedRows`` in the scope: gradients set by users, growing tables."""

import contextlib

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef

ROWS, HEIGHT, WIDTH = VarType.SELECTED_ROWS, 6, 2
LIKE_PARAM = ("Param", "Moment", "Moment1", "Moment2", "Velocity", "MeanSquare", "MeanGrad")
OPTIMIZERS = [
    ("sgd", "", {}),
    ("momentum", "Velocity", {"mu": 0.9, "use_nesterov": True}),
    ("adagrad", "Moment", {"epsilon": 1e-6}),
    ("adam", "Moment1 Moment2 Beta1Pow Beta2Pow", {"lazy_mode": False}),
    ("adam", "Moment1 Moment2 Beta1Pow Beta2Pow", {"lazy_mode": True}),
    ("rmsprop", "MeanSquare MeanGrad Moment", {"centered": True, "momentum": 0.5}),
    ("lamb", "Moment1 Moment2 Beta1Pow Beta2Pow", {"weight_decay": 0.01}),
]


def keep_rows(scope, name, rows, values, height=HEIGHT):
    """Put SelectedRows into a scope, as users of fluid do."""
    found = scope.var(name).get_selected_rows()
    found.set_rows(rows)
    found.set_height(height)
    found.get_tensor().set(np.asarray(values, "float32"), fluid.CPUPlace())


def keep(scope, name, value):
    scope.var(name).get_tensor().set(np.asarray(value), fluid.CPUPlace())


def rows_of(scope, name):
    """Row numbers, height and values of a variable."""
    found = scope.find_var(name).get_selected_rows()
    return found.rows(), found.height(), np.asarray(found.get_tensor())


class Setting:
    """A program whose variables all lie in a scope of its own."""

    def __init__(self):
        self.main, self.scope = fluid.Program(), fluid.Scope()
        self.block = self.main.global_block()

    def var(self, name, shape=(HEIGHT, WIDTH), kind=VarType.LOD_TENSOR, dtype="float32"):
        return self.block.create_var(
            name=name, shape=list(shape), dtype=dtype, type=kind, persistable=True
        )

    def rows(self, name, rows, values):
        keep_rows(self.scope, name, rows, values)
        return self.var(name, kind=ROWS)

    def tensor(self, name, value):
        keep(self.scope, name, value)
        return self.var(name, np.shape(value), dtype=np.asarray(value).dtype.name)

    def run(self, program=None, **options):
        with fluid.scope_guard(self.scope):
            return fluid.Executor().run(program or self.main, **options)


def optimizer(type, slots, attrs, dense=None):
    """An optimizer on a gradient in the scope, rows or ``dense``; the arrays of its inputs."""
    rng, setting = np.random.default_rng(5), Setting()
    values = {"LearningRate": np.array([0.1], "float32")}
    for slot in ["Param", *slots.split()]:
        shape = (HEIGHT, WIDTH) if slot in LIKE_PARAM else (1,)
        values[slot] = rng.uniform(0.5, 0.9, shape).astype("float32")
    inputs = {slot: setting.tensor(slot, value) for slot, value in values.items()}
    if dense is None:
        inputs["Grad"] = setting.rows("grad", [4, 1, 4], rng.normal(size=(3, WIDTH)))
    else:
        inputs["Grad"] = setting.tensor("grad", dense)
    definition = opdef.get(type)
    outputs = {out: inputs[source] for out, source in definition.inplace.items()}
    with setting.main._optimized_guard([inputs["Param"], inputs["Grad"]]):
        setting.block.append_op(type=type, inputs=inputs, outputs=outputs, attrs=attrs)
    return setting, values


def expected_after(type, values, attrs, gradients):
    """What the operator makes of these values, one gradient after another."""
    definition = opdef.get(type)
    values = {slot: value.copy() for slot, value in values.items()}
    names = {source: out for out, source in definition.inplace.items()}
    for grad in gradients:
        given = {**values, "Grad": grad}
        made = definition(np, *(given.get(slot.name) for slot in definition.inputs), **attrs)
        made = made if isinstance(made, tuple) else (made,)
        found = dict(zip([slot.name for slot in definition.outputs], made, strict=True))
        values.update({slot: found[out] for slot, out in names.items()})
    return {slot: values[slot] for slot in names}


@pytest.mark.parametrize(("type", "slots", "attrs"), OPTIMIZERS)
def test_optimizers_see_rows_that_users_put_into_the_scope(type, slots, attrs):
    setting, values = optimizer(type, slots, attrs)
    first = SelectedRows(*[rows_of(setting.scope, "grad")[i] for i in (0, 1, 2)])
    second = SelectedRows([0, 5], HEIGHT, np.ones((2, WIDTH), "float32"))
    for grad in (first, first, second, second):
        keep_rows(setting.scope, "grad", grad.rows(), grad.value)
        setting.run()
    for slot, value in expected_after(type, values, attrs, [first, first, second, second]).items():
        found = np.asarray(setting.scope.find_var(slot).get_tensor())
        np.testing.assert_allclose(found, value, rtol=1e-6, err_msg=slot)


def test_replicas_see_them_too():
    setting, values = optimizer("momentum", "Velocity", {"mu": 0.9})
    first = SelectedRows(*rows_of(setting.scope, "grad"))
    places = [fluid.CPUPlace()] * 2
    compiled = fluid.CompiledProgram(setting.main).with_data_parallel(places=places)
    setting.run(compiled)
    second = SelectedRows([3], HEIGHT, np.ones((1, WIDTH), "float32"))
    keep_rows(setting.scope, "grad", [3], second.value)
    setting.run(compiled)
    expected = expected_after("momentum", values, {"mu": 0.9}, [first, second])
    for slot, value in expected.items():
        found = np.asarray(setting.scope.find_var(slot).get_tensor())
        np.testing.assert_allclose(found, value, rtol=1e-6, err_msg=slot)


@pytest.mark.parametrize("kind", ["rows", "dense"])
@pytest.mark.parametrize(("type", "slots", "attrs"), OPTIMIZERS)
def test_replicas_that_share_a_parameter_update_it_once(type, slots, attrs, kind):
    dense = np.linspace(-0.4, 0.4, HEIGHT * WIDTH, dtype="float32").reshape(HEIGHT, WIDTH)
    dense = None if kind == "rows" else dense
    found = []
    for mode in ("AllReduce", "Reduce"):
        setting, _ = optimizer(type, slots, attrs, dense)
        strategy = fluid.BuildStrategy()
        strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy[mode]
        places = [fluid.CPUPlace()] * 2
        compiled = fluid.CompiledProgram(setting.main)
        compiled.with_data_parallel(build_strategy=strategy, places=places)
        for _ in range(3):
            setting.run(compiled)
        scope, slots_of = setting.scope, opdef.get(type).inplace.values()
        found.append({s: np.asarray(scope.find_var(s).get_tensor()) for s in slots_of})
    for slot, value in found[0].items():
        np.testing.assert_allclose(found[1][slot], value, rtol=1e-6, err_msg=slot)


@pytest.mark.parametrize("role", ["forward", "optimize"])
def test_they_update_it_once_when_nothing_says_whose_gradient_it_is(role):
    setting = Setting()
    param, grad = setting.tensor("param", np.ones(2, "float32")), np.array([1, 2], "float32")
    slots = {"Param": param, "Grad": setting.tensor("grad", grad)}
    slots["LearningRate"] = setting.tensor("rate", np.array([0.5], "float32"))
    guard = setting.main._optimized_guard([]) if role == "optimize" else contextlib.nullcontext()
    with guard:
        setting.block.append_op(type="sgd", inputs=slots, outputs={"ParamOut": param})
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    compiled = fluid.CompiledProgram(setting.main).with_data_parallel(
        build_strategy=strategy, places=[fluid.CPUPlace()] * 3
    )
    for step in (1, 2, 3):
        setting.run(compiled)
        value = np.asarray(setting.scope.find_var("param").get_tensor())
        np.testing.assert_array_equal(value, 1 - 0.5 * step * grad)


def test_a_run_sees_new_rows_values_and_heights():
    setting = Setting()
    grad = setting.rows("grad", [1], [[1, 2]])
    out = setting.var("out", kind=ROWS)
    setting.block.append_op(type="assign", inputs={"X": grad}, outputs={"Out": out})
    setting.run()
    handle = setting.scope.find_var("out").get_selected_rows()
    source = setting.scope.find_var("grad").get_selected_rows()
    source.set_rows([4])
    setting.run()
    assert handle.rows() == [4]
    source.get_tensor().set(np.array([[5, 6]], "float32"), fluid.CPUPlace())
    setting.run()
    np.testing.assert_array_equal(handle.get_tensor(), [[5, 6]])
    source.set_height(9)
    setting.run()
    assert handle.height() == 9
    source.get_tensor().set(np.array([[7, 8]], "float32"), fluid.CPUPlace())
    np.testing.assert_array_equal(handle.get_tensor(), [[5, 6]])  # memory of its own


def test_a_table_of_rows_is_looked_up_and_trained():
    setting = Setting()
    table = setting.rows("table", [3, 0, 5], np.arange(6).reshape(3, 2))
    ids = setting.tensor("ids", np.array([[5], [3], [5]]))
    rate = setting.tensor("rate", np.array([0.5], "float32"))
    grad = setting.rows("grad", [5, 3, 5], np.ones((3, WIDTH)))
    out = setting.block.create_var(name="out")
    setting.block.append_op(
        type="lookup_table", inputs={"W": table, "Ids": ids}, outputs={"Out": out}
    )
    setting.block.append_op(
        type="sgd",
        inputs={"Param": table, "Grad": grad, "LearningRate": rate},
        outputs={"ParamOut": table},
    )
    assert out.shape == (3, WIDTH)
    (found,) = setting.run(fetch_list=[out])
    np.testing.assert_array_equal(found, [[4, 5], [0, 1], [4, 5]])
    (found,) = setting.run(fetch_list=[out])
    np.testing.assert_array_equal(found, [[3, 4], [-0.5, 0.5], [3, 4]])
    rows, _, values = rows_of(setting.scope, "table")
    assert rows == [3, 0, 5]
    np.testing.assert_array_equal(values, [[-1, 0], [2, 3], [2, 3]])


@pytest.mark.parametrize("wrong", ["ids", "grad"])
def test_rows_that_a_table_does_not_have_are_named(wrong):
    setting = Setting()
    table = setting.rows("table", [3, 0], np.ones((2, WIDTH)))
    if wrong == "ids":
        ids, out = setting.tensor("ids", np.array([3, 4])), setting.block.create_var(name="out")
        inputs, outputs = {"W": table, "Ids": ids}, {"Out": out}
        setting.block.append_op(type="lookup_table_v2", inputs=inputs, outputs=outputs)
    else:
        grad = setting.rows("grad", [3, 4], np.ones((2, WIDTH)))
        rate = setting.tensor("rate", np.array([0.5], "float32"))
        inputs = {"Param": table, "Grad": grad, "LearningRate": rate}
        setting.block.append_op(type="sgd", inputs=inputs, outputs={"ParamOut": table})
    with pytest.raises(EnforceNotMet, match=r"row 4 is not among the 2 of \(6, 2\)"):
        setting.run()
    np.testing.assert_array_equal(rows_of(setting.scope, "table")[2], np.ones((2, WIDTH)))


@pytest.mark.parametrize("type", ["fill_constant", "uniform_random"])
def test_rows_are_filled_without_numbers(type):
    setting = Setting()
    table = setting.var("table", kind=ROWS)
    attrs = {"shape": [3, 2], "value": 2.5, "min": 1.0, "max": 2.0, "seed": 7}
    attrs = {name: attrs[name] for name in opdef.get(type).attrs if name in attrs}
    setting.block.append_op(type=type, outputs={"Out": table}, attrs=attrs)
    setting.run()
    assert table.type == ROWS
    rows, height, values = rows_of(setting.scope, "table")
    expected = {  # those of Paddle
        "fill_constant": np.full((3, 2), 2.5),
        "uniform_random": [[1.00016, 1.59523], [1.20947, 1.24128], [1.77569, 1.32783]],
    }
    assert (rows, height) == ([], 3)
    np.testing.assert_allclose(values, expected[type], atol=1e-5)


def test_blocks_of_rows_are_kept():
    setting = Setting()
    grad = setting.rows("grad", [4, 1, 4], [[1, 2], [3, 4], [5, 6]])
    blocks = [setting.var(name, kind=ROWS) for name in ("first", "second")]
    attrs = {"height_sections": [2, 4]}
    setting.block.append_op(
        type="split_selected_rows", inputs={"X": grad}, outputs={"Out": blocks}, attrs=attrs
    )
    setting.run()
    assert rows_of(setting.scope, "first")[:2] == ([1], 2)
    rows, height, values = rows_of(setting.scope, "second")
    assert (rows, height) == ([2, 2], 4)
    np.testing.assert_array_equal(values, [[1, 2], [5, 6]])


def test_a_gradient_that_is_kept_is_merged_where_a_table_was_asked_twice():
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = [fluid.data(name, [-1, 1], "int64") for name in ("a", "b")]
        found = [fluid.layers.embedding(i, [6, 2], True, param_attr="table") for i in ids]
        loss = fluid.layers.reduce_sum(fluid.layers.sum(found))
        fluid.optimizer.SGD(0.1).minimize(loss)
        main.global_block().var("table@GRAD").persistable = True
    feed = {"a": np.array([[4], [1], [4]]), "b": np.array([[1], [0], [2]])}
    exe = fluid.Executor()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for _ in range(3):  # task by task, and as code
            exe.run(main, feed=feed)
            rows, height, values = rows_of(scope, "table@GRAD")
            assert (rows, height) == ([0, 1, 2, 4], 6)
            np.testing.assert_array_equal(values[:, 0], [1, 2, 1, 2])
