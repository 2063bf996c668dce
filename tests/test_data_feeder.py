"""DataFeeder: the expected values and errors are those of Paddle 1.8.5, unless said otherwise."""

import numpy as np
import pytest

import dpexec as fluid


@pytest.fixture(autouse=True)
def variables():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        fluid.data("x", [None, 2, 2])
        fluid.data("y", [None, 1], "int64")
        fluid.layers.data("u", [3])
        fluid.data("w", [None, None, 2])
        fluid.data("s", [None])
        yield


def feeder(*names):
    return fluid.DataFeeder(list(names), fluid.CPUPlace())


def values(feed):
    return {name: np.array(tensor).tolist() for name, tensor in feed.items()}


@pytest.mark.parametrize(
    ("name", "samples", "expected"),
    [
        ("x", [([1, 2, 3, 4],), ([5, 6, 7, 8],)], [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
        ("x", [([[1, 2], [3, 4]],)], [[[1, 2], [3, 4]]]),
        ("x", [(np.ones((3, 2, 2)),)], np.ones((3, 2, 2)).tolist()),
        ("y", [(1,), (2,)], [[1], [2]]),
        ("y", [(7.9,), (np.float32(3.5),)], [[7], [3]]),
        ("y", np.arange(3).reshape(3, 1), [[0], [1], [2]]),
        ("y", iter([(1,), (2,)]), [[1], [2]]),
        ("u", [([1, 2],)], [[1, 2]]),  # the number of dimensions fits: left to the executor
        ("w", [([1, 2, 3, 4],)], [[1, 2, 3, 4]]),  # two unknown dimensions: never reshaped
        ("s", [(1,), (2,)], [1, 2]),
        ("s", [([1],), ([2],)], [1, 2]),
    ],
)
def test_fields_become_tensors_of_the_variable(name, samples, expected):
    tensor = feeder(name).feed(samples)[name]
    array = np.array(tensor)
    assert array.tolist() == expected
    assert array.dtype == ("int64" if name == "y" else "float32")


def test_empty_batch_has_the_shape_of_the_variable():
    assert feeder("x").feed([])["x"].shape() == [0, 2, 2]


@pytest.mark.parametrize(
    ("names", "samples", "error", "message"),
    [
        ("x", [([1, 2, 3],)], ValueError, r"'x' is \(-1, 2, 2\), but receive \(1, 3\)"),
        ("xy", [([1, 2, 3, 4], 1), ([1, 2, 3, 4],)], AssertionError, r"data \(1\).*sample 1"),
        (
            "w",
            [([[1, 2]],), ([[1, 2], [3, 4]],)],
            ValueError,
            r"'w': sample 1 .*\(2, 2\).*\(1, 2\)",
        ),
        ("y", [(1,), ("a",)], ValueError, "'y', sample 1: no int64: .*'a'"),
    ],
)
def test_errors_name_variable_and_sample(names, samples, error, message):
    with pytest.raises(error, match=message):
        feeder(*names).feed(samples)


def test_what_cannot_be_fed():
    with pytest.raises(TypeError, match="list of variable, but has a int"):
        feeder(3)
    with pytest.raises(ValueError, match="var zz not in this block"):
        feeder("zz")
    sequence = fluid.data("l", [None, 1], "int64", lod_level=1)
    with pytest.raises(TypeError, match=r"'l' holds sequences .* sample has a int at level 0"):
        feeder(sequence).feed([([1, 2],), (3,)])


@pytest.mark.parametrize(
    ("level", "shape", "samples", "lod", "dims"),  # from the real Paddle
    [
        (1, [None, 1], [([1, 2, 3],), ([4],)], [[0, 3, 4]], [4, 1]),
        (1, [None, 1], [([],), ([3],)], [[0, 0, 1]], [1, 1]),
        (2, [None, 1], [([[1, 2], [3]],), ([[4, 5, 6]],)], [[0, 2, 3], [0, 2, 3, 6]], [6, 1]),
        (1, [None, 3], [([[1, 2, 3], [4, 5, 6]],), ([[7, 8, 9]],)], [[0, 2, 3]], [3, 3]),
    ],
)
def test_sequences_come_with_their_lengths(level, shape, samples, lod, dims):
    words = fluid.data("words", shape, "int64", lod_level=level)
    made = fluid.DataFeeder([words], fluid.CPUPlace()).feed(samples)["words"]
    assert (made.lod(), made.shape()) == (lod, dims)


def test_names_are_looked_up_in_the_given_program():
    program = fluid.Program()
    program.global_block().create_var(name="other", shape=[-1, 1])
    made = fluid.DataFeeder(["other"], fluid.CPUPlace(), program).feed([(1,)])
    assert values(made) == {"other": [[1.0]]}


def test_one_batch_for_each_device(monkeypatch):
    batches = [[(1,), (2,)], [(3,)]]
    expected = [{"y": [[1], [2]]}, {"y": [[3]]}]
    assert [values(f) for f in feeder("y").feed_parallel(batches, 2)] == expected
    monkeypatch.setenv("CPU_NUM", "2")
    assert [values(f) for f in feeder("y").feed_parallel(batches)] == expected
    with pytest.raises(ValueError, match=r"devices \(2\) and of mini-batches \(1\)"):
        list(feeder("y").feed_parallel(batches[:1], 2))


def five():
    return ([(i,)] for i in range(5))


def test_decorated_reader():
    feeds = feeder("y").decorate_reader(five, False)
    assert [values(f) for f in feeds()] == [{"y": [[i]]} for i in range(5)]
    assert len(list(feeds())) == 5
    rounds = list(feeder("y").decorate_reader(five, True, 2)())
    assert [[values(f) for f in feeds] for feeds in rounds] == [
        [{"y": [[0]]}, {"y": [[1]]}],
        [{"y": [[2]]}, {"y": [[3]]}],
    ]
    with pytest.raises(ValueError, match="last round has 1 batches for 2 devices"):
        list(feeder("y").decorate_reader(five, True, 2, drop_last=False)())


def test_feeds_run_on_devices():
    out = fluid.layers.scale(fluid.layers.data("v", [1]), 2.0)
    exe = fluid.Executor(fluid.CPUPlace())
    assert exe.run(feed=feeder("v").feed([(1,), (2,)]), fetch_list=[out])[0].tolist() == [[2], [4]]
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        places=fluid.cpu_places(2)
    )
    feeds = list(feeder("v").feed_parallel([[(1,), (2,)], [(3,)]], 2))
    assert exe.run(program, feed=feeds, fetch_list=[out])[0].tolist() == [[2], [4], [6]]
