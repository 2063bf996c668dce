"""``DataLoader`` of data sets whose samples have numbers: feeds are those of Paddle 1.8.5."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.io import BatchSampler, DataLoader, Dataset

ORDER = [5, 4, 1, 2, 9, 6, 7, 0, 3, 8, 10]
"""What seed 3 shuffles eleven numbers to, as recorded."""


class Numbers(Dataset):
    def __init__(self, count):
        self.count = count

    def __getitem__(self, index):
        return np.full((2,), index, "float32"), np.array([index], "int64")

    def __len__(self):
        return self.count


class Broken(Numbers):
    def __getitem__(self, index):
        raise KeyError(f"sample {index} is lost")


@pytest.fixture
def variables():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        yield [fluid.data("x", [None, 2]), fluid.data("y", [None, 1], dtype="int64")]


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("return_list", [False, True])
def test_feeds_are_those_of_the_original(variables, devices, workers, return_list):
    places = [fluid.CPUPlace()] * devices
    np.random.seed(3)  # noqa: NPY002  as scripts do
    loader = DataLoader(
        Numbers(11), variables, places, return_list, batch_size=2, shuffle=True,
        num_workers=workers,
    )  # fmt: skip
    feeds = list(loader())
    assert (len(loader), len(feeds)) == (6, 6 // devices)
    if return_list and workers and devices == 1:
        feeds = [[feed] for feed in feeds]
    parts = [part for feed in feeds for part in feed]
    fields = [part if return_list else [part["x"], part["y"]] for part in parts]
    assert [len(feed) for feed in feeds] == [devices] * len(feeds)
    for row, numbers in zip(fields, np.split(ORDER, [2, 4, 6, 8, 10]), strict=True):
        np.testing.assert_array_equal(np.array(row[0])[:, 1], numbers)
        np.testing.assert_array_equal(np.array(row[1]), numbers[:, None])


def test_a_program_is_fed(variables):
    total = fluid.layers.reduce_sum(variables[0])
    loader = DataLoader(Numbers(5), variables, fluid.CPUPlace(), batch_size=2, drop_last=True)
    exe = fluid.Executor(fluid.CPUPlace())
    program = variables[0].block.program
    for _ in range(2):
        sums = [exe.run(program, feed, [total])[0].item() for feed in loader]
        assert sums == [2.0, 10.0]


def test_batches_are_sampled_and_made_as_the_user_says(variables):
    def doubled(samples):
        return [np.stack([2 * row for row, _ in samples]), np.stack([y for _, y in samples])]

    sampler = BatchSampler(indices=(4, 1, 1), batch_size=2)
    loader = DataLoader(
        Numbers(5), variables, [fluid.CPUPlace()], batch_sampler=sampler, collate_fn=doubled
    )
    rows = [np.array(feed[0]["x"])[:, 0].tolist() for feed in loader]
    assert rows == [[8.0, 2.0], [2.0]]


def test_processes_begin_as_told_and_their_errors_arrive(variables, tmp_path):
    def begin(number):
        (tmp_path / str(number)).touch()

    loader = DataLoader(
        Broken(4), variables, [fluid.CPUPlace()], num_workers=2, worker_init_fn=begin
    )
    with pytest.raises(KeyError, match="is lost"):
        next(iter(loader))
    assert (tmp_path / "0").exists()


def test_who_waits_too_long_is_told(variables):
    class Slow(Numbers):
        def __getitem__(self, index):
            import time

            time.sleep(60)

    loader = DataLoader(Slow(2), variables, [fluid.CPUPlace()], num_workers=1, timeout=0.5)
    with pytest.raises(RuntimeError, match=r"gave nothing for 0\.5 seconds"):
        next(iter(loader))


@pytest.mark.parametrize(
    "options",
    [
        {"feed_list": None},
        {"places": None},
        {"batch_size": 0},
        {"num_workers": -1},
        {"timeout": -1},
        {"dataset": [1, 2]},
        {"batch_sampler": [[0]]},
        {"batch_sampler": BatchSampler(Numbers(3)), "shuffle": True},
    ],
)
def test_wrong_arguments_are_refused(variables, options):
    given = {"dataset": Numbers(3), "feed_list": variables, "places": [fluid.CPUPlace()]}
    with pytest.raises(AssertionError):
        DataLoader(**{**given, **options})


@pytest.mark.parametrize(
    "options",
    [{}, {"indices": 3}, {"dataset": Numbers(2), "indices": [0]}, {"dataset": [0]},
     {"indices": [0], "batch_size": 1.5}, {"indices": [0], "shuffle": 1}],
)  # fmt: skip
def test_wrong_samplers_are_refused(options):
    with pytest.raises(AssertionError):
        BatchSampler(**options)


def test_a_data_set_must_say_what_it_holds():
    for call in (lambda: Dataset()[0], lambda: len(Dataset())):
        with pytest.raises(NotImplementedError):
            call()
