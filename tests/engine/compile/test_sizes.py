"""Batches of changing size reuse compiled code, with the bits of code for one size."""

from __future__ import annotations

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.dispatch.binder import Binder
from dpexec.engine.feeds import splitting as feed_module
from dpexec.engine.ir import opdef
from dpexec.engine.ir.sizes import Size
from tests.engine.run.nets import (
    AllReduce,
    Net,
    Reduce,
    assert_same_bits,
    classifier,
    sequence_batches,
    sequences,
    train,
    words,
)

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.engine import kernels
from dpexec.engine.compile.bindings.code_step import CodeStep
from dpexec.engine.kernels import implementations

SIZES = [12, 7, 9, 30, 2, 8, 40, 1, 5, 12, 33, 3, 6, 20, 64, 17]


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: True)


def feeds(sizes, features=8):
    rng = np.random.RandomState(4)
    return [
        {
            "x": rng.randn(rows, features).astype("float32"),
            "y": rng.randint(0, 3, (rows, 1)).astype("int64"),
        }
        for rows in sizes
    ]


def word_feeds(sizes):
    rng = np.random.RandomState(4)
    return [
        {"x": rng.randint(0, 12, (rows, 4)).astype("int64"), "y": rng.randint(0, 3, (rows, 1))}
        for rows in sizes
    ]


def convolutions():
    """Two convolutions, one with groups, batch norm and a pool."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4, 9, 9], "float32")
        y = fluid.data("y", [None, 1], "int64")
        hidden = fluid.layers.conv2d(x, 16, 3, padding=1, bias_attr=False)
        hidden = fluid.layers.batch_norm(hidden, act="relu")
        hidden = fluid.layers.conv2d(hidden, 16, 3, stride=2, groups=2, act="relu")
        hidden = fluid.layers.pool2d(hidden, 2, "max", 2)
        prediction = fluid.layers.fc(hidden, 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return Net(main, startup, loss, None, prediction)


def image_feeds(sizes):
    found = feeds(sizes, 4 * 9 * 9)
    return [{**feed, "x": feed["x"].reshape(-1, 4, 9, 9)} for feed in found]


def translation():
    """A sum over every sentence, which all words of the other language see."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        source, target, following = (
            fluid.data(name, [None, 1], "int64", lod_level=1)
            for name in ("source", "target", "following")
        )
        words = fluid.layers.fc(fluid.embedding(source, [12, 8]), 8, act="tanh")
        seen = fluid.layers.sequence_pool(words, "sum")
        hidden = fluid.layers.fc(fluid.embedding(target, [12, 8]), 8, act="tanh")
        hidden = hidden + fluid.layers.sequence_expand_as(seen, hidden)
        prediction = fluid.layers.fc(hidden, 12, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, following))
        fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return Net(main, startup, loss, None, prediction)


def translation_feeds(sizes):
    """Four to six sentences, the other language's somewhat longer or shorter."""
    rng = np.random.RandomState(4)

    def sentences(lengths):
        numbers = rng.randint(0, 12, (sum(lengths), 1)).astype("int64")
        return fluid.create_lod_tensor(numbers, [lengths], fluid.CPUPlace())

    found = []
    for size in sizes:
        lengths = rng.randint(1, 2 + size // 4, (2, rng.randint(4, 7))).tolist()
        source, target, following = map(sentences, (lengths[0], lengths[1], lengths[1]))
        found.append({"source": source, "target": target, "following": following})
    return found


def closed(monkeypatch):
    """From now on every size is bound by itself."""
    monkeypatch.setattr(Binder, "_opened", lambda *arguments: None)


NETS = {
    "dense": (lambda: classifier(fluid.optimizer.Adam(0.01)), feeds),
    "dropout": (lambda: classifier(fluid.optimizer.Momentum(0.1, 0.9), dropout=0.4), feeds),
    "batch_norm": (lambda: classifier(batch_norm=True), feeds),
    "images": (convolutions, image_feeds),
    "sequences": (sequences, sequence_batches),
    "translation": (translation, translation_feeds),
    "sparse": (words, word_feeds),
    "sparse Adagrad": (lambda: words(fluid.optimizer.Adagrad(0.1)), word_feeds),
}


@pytest.mark.parametrize(
    ("name", "devices", "mode"),
    [
        ("dense", 1, AllReduce),
        ("dense", 2, AllReduce),
        ("dense", 3, Reduce),
        ("dropout", 2, AllReduce),
        ("batch_norm", 1, AllReduce),
        ("batch_norm", 2, Reduce),
        ("images", 2, AllReduce),
        ("sequences", 1, AllReduce),
        ("sequences", 2, Reduce),
        ("translation", 2, AllReduce),
        ("sparse", 2, AllReduce),
        ("sparse", 2, Reduce),
        ("sparse Adagrad", 3, AllReduce),
    ],
)
def test_open_sizes_give_the_bits_of_closed_ones(name, devices, mode, monkeypatch):
    make, batches = NETS[name]
    sizes = [max(size, devices) for size in SIZES]
    opened = train(make(), batches(sizes), devices, mode)
    closed(monkeypatch)
    assert_same_bits(opened, train(make(), batches(sizes), devices, mode))


@pytest.mark.parametrize("name", ["dense", "sequences", "translation"])
def test_fifty_sizes_are_lowered_a_few_times(name, monkeypatch):
    net, batches = NETS[name]
    made = []
    make = Binder._opened
    monkeypatch.setattr(
        Binder, "_opened", lambda *arguments: made.append(make(*arguments)) or made[-1]
    )
    sizes = np.random.RandomState(0).permutation(np.arange(10, 110))[:50]
    opened = train(net(), batches(sizes), 2)
    assert 1 <= len(made) <= 6
    assert None not in made
    closed(monkeypatch)
    assert_same_bits(opened, train(net(), batches(sizes), 2))


def test_results_do_not_depend_on_the_sizes_before():
    net = classifier(fluid.optimizer.SGD(0.0))
    sizes = [4, 9, 25, 6, 50, 13, 31]
    forward = train(net, feeds(sizes), 2)
    backward = train(net, feeds(sizes)[::-1], 2)
    for size, one, other in zip(sizes, forward.losses, backward.losses[::-1], strict=True):
        assert np.array_equal(one, other), size


def reshaped(rows_of):
    """A program that makes rows of four numbers of a vector, or of every second row."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2], "float32")
        out = fluid.layers.scale(rows_of(x), 2.0)
    return main, out


def run(main, out, sizes):
    exe = fluid.Executor(fluid.CPUPlace())
    rng = np.random.RandomState(1)
    arrays = [rng.randn(size, 2).astype("float32") for size in sizes]
    with fluid.scope_guard(fluid.Scope()):
        return arrays, [exe.run(main, feed={"x": x}, fetch_list=[out])[0] for x in arrays]


def test_rows_that_depend_on_a_half_of_the_batch():
    main, out = reshaped(lambda x: fluid.layers.reshape(x, [-1, 4]))
    for x, found in zip(*run(main, out, [4, 8, 6, 2, 20]), strict=True):
        assert np.array_equal(found, 2 * x.reshape(-1, 4))


def test_a_size_that_does_not_fit_is_refused_after_sizes_that_do():
    main, out = reshaped(lambda x: fluid.layers.reshape(x, [-1, 4]))
    with pytest.raises(EnforceNotMet, match="reshape"):
        run(main, out, [4, 8, 6, 7])


def test_the_first_rows_of_few_and_of_many():
    main, out = reshaped(lambda x: fluid.layers.slice(x, axes=[0], starts=[0], ends=[10]))
    for x, found in zip(*run(main, out, [20, 30, 25, 5, 3, 10, 11, 9]), strict=True):
        assert np.array_equal(found, 2 * x[:10])


def test_recorded_steps_of_many_sizes_are_whole():
    sizes = [12, 8, 9, 8, 30, 12, 9, 31]
    recorded = train(classifier(), feeds(sizes), 2, trace=True)
    assert_same_bits(recorded, train(classifier(), feeds(sizes), 2))
    trace = recorded.compiled.trace
    ran = [
        sorted(event.name for event in trace.events if event.step == step and event.node)
        for step in trace.steps
    ]
    assert len(ran) == len(sizes)
    assert ran[0]
    assert all(names == ran[0] for names in ran)


def test_another_number_of_rows_is_not_checked_again(monkeypatch):
    checked = []
    check = feed_module.check_array
    monkeypatch.setattr(feed_module, "check_array", lambda *a: checked.append(a[0]) or check(*a))
    train(classifier(), feeds([12, 7, 9, 30, 2, 8]), 2)
    assert len(checked) == 2  # two variables, once for both devices


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda feed: {**feed, "x": feed["x"][:, :5]}, "should have dimensions"),
        (lambda feed: {**feed, "x": feed["x"][:, 0]}, "should have 2 dimensions"),
        (lambda feed: {**feed, "x": feed["x"].astype("float64")}, "data type"),
        (lambda feed: {**feed, "y": feed["y"][:1]}, "cannot be split"),
        (lambda feed: {name: array[:0] for name, array in feed.items()}, "empty"),
    ],
)
def test_what_does_not_fit_is_refused_after_batches_that_do(change, wrong):
    right = feeds([12, 7, 9])
    with pytest.raises((ValueError, EnforceNotMet), match=wrong):
        train(classifier(), [*right, change(right[0])], 2)


def test_a_declared_number_of_rows_is_the_only_one():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        out = fluid.layers.scale(fluid.data("x", [6, 2], "float32"), 2.0)
    with pytest.raises(ValueError, match="should have dimensions"):
        run(main, out, [6, 6, 8])


def test_fewer_rows_than_devices_leave_some_idle():
    sizes = [12, 7, 2, 1, 9, 1, 5]
    trained = train(classifier(), feeds(sizes), 3)
    assert [len(loss) for loss in trained.losses] == [3, 3, 2, 1, 3, 1, 3]


def test_a_size_that_was_seen_is_not_asked_about_again(monkeypatch):
    told = []
    number = CodeStep.number
    monkeypatch.setattr(CodeStep, "number", lambda *a: told.append(1) or number(*a))
    sizes = [12, 7, 9, 12, 7, 9, 11]  # uneven ones are weighted
    trained = train(classifier(), feeds(sizes), 2)
    assert len(told) == 4
    closed(monkeypatch)
    assert_same_bits(trained, train(classifier(), feeds(sizes), 2))


MISTAKES = [ZeroDivisionError("of a lowering"), TypeError("of a lowering"), KeyError("X")]


def looped():
    """A loop whose rounds are code for open numbers of rows."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2], "float32")
        number, end = (fluid.layers.fill_constant([1], "int64", value) for value in (0, 3))
        _, out = fluid.layers.while_loop(
            lambda i, h: fluid.layers.less_than(i, end),
            lambda i, h: [fluid.layers.increment(i), fluid.layers.tanh(h) * 0.5],
            [number, x],
        )
    return main, out


def straight():
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        out = fluid.layers.tanh(fluid.data("x", [None, 2], "float32")) * 0.5
    return main, out


@pytest.mark.parametrize("make", [straight, looped])
@pytest.mark.parametrize("mistake", MISTAKES, ids=repr)
def test_mistakes_in_lowerings_are_errors(make, mistake, monkeypatch):
    """They are no reason to bind every size by itself, or to run on NumPy."""

    def lower(code, x, out):
        if isinstance(x.shape[0], Size):
            raise mistake
        return inner(code, x, out)

    tanh = implementations.find("tanh", "code")
    inner = tanh.function
    monkeypatch.setattr(tanh, "function", lambda code, x, out, **_: lower(code, x, out))
    with pytest.raises((type(mistake), EnforceNotMet)) as caught:  # a loop says where
        run(*make(), [6, 7, 9])
    assert str(mistake) in str(caught.value)


@pytest.mark.parametrize("make", [straight, looped])
def test_lowerings_that_need_numbers_get_them(make, monkeypatch):
    tanh, seen = implementations.find("tanh", "code"), []
    inner = tanh.function

    def lower(code, x, out, **_):
        seen.append(int(x.shape[0]))
        return inner(code, x, out)

    monkeypatch.setattr(tanh, "function", lower)
    run(*make(), [6, 7, 9])
    assert set(seen) == {6, 7, 9}


@pytest.mark.parametrize("make", [straight, looped])
def test_shape_rules_that_refuse_open_numbers_alone_are_mistakes(make, monkeypatch):
    tanh = opdef.get("tanh")
    infer = tanh.infer

    def strict(x):
        opdef.require(all(isinstance(size, int) for size in x.shape), "numbers, please")
        return infer(x)

    main, out = make()
    monkeypatch.setattr(tanh, "infer", strict)
    with pytest.raises((RuntimeError, EnforceNotMet), match="but not open ones"):
        run(main, out, [6, 7, 9])
