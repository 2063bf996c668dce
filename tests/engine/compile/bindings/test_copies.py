"""Updates on copies.

The previous values of parameters stay readable, with the bits of updates in place.
"""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine import kernels
from tests.engine.run.nets import batches, classifier, word_batches, words
from tests.engine.run.stepping import Stepping

if not kernels.available():
    pytest.skip("needs numba", allow_module_level=True)

from dpexec.engine.compile.bindings.copies import CopyingCalls

ROWS = 600
OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "adam": lambda: fluid.optimizer.Adam(0.1),
    "lazy adam": lambda: fluid.optimizer.Adam(0.1, lazy_mode=True),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "nesterov": lambda: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "decayed adagrad": lambda: fluid.optimizer.DecayedAdagrad(0.1),
    "adamax": lambda: fluid.optimizer.Adamax(0.1),
    "adadelta": lambda: fluid.optimizer.Adadelta(0.1),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.1),
    "rmsprop": lambda: fluid.optimizer.RMSProp(0.1),
    "centered": lambda: fluid.optimizer.RMSProp(0.1, centered=True),
    "lamb": lambda: fluid.optimizer.Lamb(0.1),
    "lars": lambda: fluid.optimizer.LarsMomentum(0.1, 0.9),
}
NETS = {
    "dense": lambda made: classifier(made, (8, 700, 3)),
    "sparse": lambda made: words(made, ROWS),
}
CASES = [
    *(("dense", name) for name in OPTIMIZERS if name != "lazy adam"),
    *(("sparse", name) for name in ("sgd", "adam", "lazy adam", "momentum", "adagrad")),
]
COPIED_BEFORE = {
    ("sparse", "adam"): {
        "embedding_0.w_0",
        "embedding_0.w_0_moment1_0",
        "embedding_0.w_0_moment2_0",
    },
    ("sparse", "momentum"): {"embedding_0.w_0", "embedding_0.w_0_velocity_0"},
    ("dense", "lars"): {
        f"fc_{i}.{kind}_0{state}" for i in "01" for kind in "wb" for state in ("", "_velocity_0")
    },
}
"""What must be whole before its update begins: all rows change, or a norm is needed."""


def stepping(net, optimizer, store="versions", in_code=True, devices=1):
    made = NETS[net](OPTIMIZERS[optimizer]())
    return Stepping(store, "inline", "host", in_code, made, devices)


def feeds(net, steps, rows=12):
    return batches(steps, rows) if net == "dense" else word_batches(steps, rows, ROWS)


@pytest.fixture
def copied_before(monkeypatch):
    """Names of what is copied before the first update."""
    found, take = set(), CopyingCalls.take

    def noted(self, *given):
        rest = take(self, *given)
        found.update(source.name for source in rest)
        return rest

    monkeypatch.setattr(CopyingCalls, "take", noted)
    return found


@pytest.mark.parametrize(("net", "optimizer"), CASES)
def test_bits_are_those_of_updates_in_place(net, optimizer, copied_before):
    sizes = [feeds(net, 6), feeds(net, 2, 7), feeds(net, 3)]
    given = [feed for found in sizes for feed in found]
    made = stepping(net, optimizer)
    assert made.train(given) == stepping(net, optimizer, "scope", False).train(given)
    whole = {name for name in copied_before if "pow" not in name}  # which are single numbers
    assert whole == COPIED_BEFORE.get((net, optimizer), set())


@pytest.mark.parametrize(
    ("net", "optimizer"), [case for case in CASES if case[1] != "adamax"]
)  # which stores powers that it makes behind updates
def test_updates_that_wait_have_the_same_bits_also_when_steps_are_made_again(net, optimizer):
    given = [feed for steps, rows in ((5, 12), (3, 7)) for feed in feeds(net, steps, rows)]
    made = stepping(net, optimizer, "waiting", devices=2)
    other = stepping(net, optimizer, "scope", False, 2)
    for number, feed in enumerate(given, 1):
        if number > 3:  # the first ones run task by task
            made.step(number, given[0])
            assert made.versions.late is not None
            before = {name: array.ctypes.data for name, array in made.versions.values.items()}
            for versions in made.replicas.values():
                versions.stand_at(number - 1)
        assert made.step(number, feed).tobytes() == other.step(number, feed).tobytes()
    moved = {n for n, array in made.versions.values.items() if array.ctypes.data != before[n]}
    assert not moved
    assert made.state() == other.state()


def test_of_a_table_only_rows_are_copied_that_change():
    made, given = stepping("sparse", "sgd"), feeds("sparse", 12)
    table = "embedding_0.w_0"
    for number, feed in enumerate(given[:6], 1):
        made.step(number, feed)
    used = np.unique([feed["x"] for feed in given])
    (unused, *_) = set(range(ROWS)).difference(used)
    made.versions.before[table][unused] = 7.0  # nobody may write there, so it shows what was copied
    made.step(7, given[6])
    assert (made.versions.values[table][unused] == 7.0).all()


def test_a_table_is_copied_whole_when_something_else_came_in_between(monkeypatch):
    made, given = stepping("sparse", "sgd"), feeds("sparse", 12)
    other = stepping("sparse", "sgd", "scope", in_code=False)
    for number, feed in enumerate(given, 1):
        made.in_code = number != 8  # a step task by task changes other rows
        if number == 6:  # a step that fails when it has begun to update
            monkeypatch.setattr(made, "fetch", lambda *given: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                made.step(number, given[0])
            monkeypatch.undo()
        assert made.step(number, feed).tobytes() == other.step(number, feed).tobytes()
    assert made.state() == other.state()


@pytest.mark.parametrize("devices", [1, 2])
def test_tables_are_updated_in_place_behind_operators_that_check_values(devices):
    main, startup, exe = fluid.Program(), fluid.Program(), fluid.Executor(fluid.CPUPlace())
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids, y = fluid.data("ids", [None, 1], "int64"), fluid.data("y", [None, 1], "int64")
        shift = fluid.data("shift", [None, 2])
        rows = fluid.embedding(ids, [ROWS, 2], is_sparse=True, param_attr="table")
        score = fluid.layers.softmax(fluid.layers.reshape(rows, [0, 2])) + shift
        area = fluid.layers.auc(score, y)[0]  # two operators: of this batch, and of all
        loss = fluid.layers.mean(fluid.layers.cross_entropy(score, y))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(startup)
    places = [fluid.CPUPlace()] * devices
    program = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=places)
    feed = {"ids": [[1], [2], [3], [4]], "y": [[0], [1], [1], [0]], "shift": np.zeros((4, 2))}
    feed = {
        name: np.array(v, "float32" if name == "shift" else "int64") for name, v in feed.items()
    }
    for _ in range(3):
        exe.run(program, feed, [loss, area])
    assert {(d, "table") for d in range(devices)} <= set(program._engine.plan.overwritten)
    before = {v.name: np.array(fluid.global_scope().find_var(v.name).get_tensor()).copy()
              for v in main.list_vars() if v.persistable}  # fmt: skip
    wrong = {**feed, "shift": np.array([[0, 0], [0, 0], [0, 0], [0, 2]], "float32")}
    with pytest.raises(fluid.core.EnforceNotMet, match="scores >= 0 and <= 1"):
        exe.run(program, wrong, [loss, area])  # the last device finds it, when others have counted
    for name, value in before.items():
        now = np.array(fluid.global_scope().find_var(name).get_tensor())
        np.testing.assert_array_equal(now, value, err_msg=name)
