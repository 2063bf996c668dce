"""Data sets of files, and ``train_from_dataset``."""

import itertools
import json
import random
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from tests.fixtures import dataset_programs
from tests.guides import programs

RECORDED = json.loads((Path(__file__).parent / "fixtures" / "datasets.json").read_text())
NUMBERS = re.compile(r"data: \[(.*)\]")


@pytest.fixture
def model():
    return dataset_programs.build(fluid)


def numbers_in(printed):
    return [float(number) for found in NUMBERS.findall(printed) for number in found.split()]


def in_memory(tmp_path, use_vars):
    dataset = dataset_programs.dataset_of(fluid, "InMemoryDataset", tmp_path, use_vars)
    dataset.load_into_memory()
    return dataset


def ids_of(dataset, threads=1):
    """The ids of every sample, in order."""
    return [
        tuple(feed["ids"].numpy()[first:last].ravel().tolist())
        for feed in dataset._feeds(threads)
        for first, last in itertools.pairwise(feed["ids"].lod()[0])
    ]


@pytest.mark.parametrize("name", sorted(dataset_programs.CASES))
def test_batches_and_training_are_those_of_the_original(name, tmp_path, capsys):
    found = dataset_programs.train(name, fluid, tmp_path)
    printed, expected = capsys.readouterr().out, RECORDED[name]
    assert NUMBERS.sub("", printed) == NUMBERS.sub("", expected["printed"])
    np.testing.assert_allclose(
        numbers_in(printed), numbers_in(expected["printed"]), rtol=1e-5, atol=1e-5
    )
    assert found["desc"] == expected["desc"]
    for param, values in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][param], values, atol=1e-5)


def test_the_number_of_threads_changes_no_batch(tmp_path, model):
    dataset = dataset_programs.dataset_of(fluid, "QueueDataset", tmp_path, model[2])
    expected = ids_of(dataset)
    assert expected[2:5] == [(17,), (0, 0), (7, 11, 1, 15)]
    dataset.set_pipe_command('read -r first; [[ $first != 3* ]] || sleep 0.2; echo "$first"; cat')
    assert ids_of(dataset, 2) == ids_of(dataset, 9) == expected  # though part-0 comes last


def test_replicas_divide_batches_as_run_does(tmp_path, model):
    main, startup, use_vars, loss = model
    dataset = dataset_programs.dataset_of(fluid, "QueueDataset", tmp_path, use_vars)
    exe = fluid.Executor(fluid.CPUPlace())

    def train(go_through):
        scope = fluid.Scope()
        with fluid.scope_guard(scope):
            exe.run(startup)
            compiled = fluid.CompiledProgram(main).with_data_parallel(
                loss.name, places=fluid.cpu_places(2)
            )
            go_through(compiled)
            return [
                np.array(scope.find_var(p.name).get_tensor()).tobytes()
                for p in main.all_parameters()
            ]

    def by_hand(compiled):
        for feed in dataset._feeds(1):
            exe.run(compiled, feed)

    assert train(lambda compiled: exe.train_from_dataset(compiled, dataset)) == train(by_hand)


@pytest.mark.parametrize("kind", ["QueueDataset", "InMemoryDataset"])
def test_no_files_are_no_batches(tmp_path, model, kind):
    main, startup, use_vars, loss = model
    dataset = dataset_programs.dataset_of(fluid, kind, tmp_path, use_vars)
    dataset.set_filelist([])
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    exe.train_from_dataset(main, dataset, fetch_list=[loss], fetch_info=["loss"])
    assert ids_of(dataset) == []


def test_variables_that_a_program_lacks_are_not_fed(tmp_path, model, capsys):
    dataset = dataset_programs.dataset_of(fluid, "QueueDataset", tmp_path, model[2])
    with fluid.program_guard(fluid.Program()):
        ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
        last = fluid.layers.sequence_pool(fluid.layers.cast(ids, "float32"), "last")
        fluid.Executor().infer_from_dataset(
            None, dataset, fetch_list=[last], fetch_info=["last"], print_period=4
        )
    assert numbers_in(capsys.readouterr().out) == [5]


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [2, 2, 2]), (False, [2, 2, 2, 1])])
def test_loaders_hand_out_batches_as_feeds(tmp_path, model, drop_last, sizes):
    main, startup, use_vars, loss = model
    dataset = dataset_programs.dataset_of(fluid, "QueueDataset", tmp_path, use_vars)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    loader = fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(1), drop_last)
    for _ in range(2):
        feeds = list(loader())
        assert [[len(feed["label"].numpy()) for feed in step] for step in feeds] == [
            [size] for size in sizes
        ]
    assert exe.run(main, feed=feeds[0], fetch_list=[loss])[0].shape == (1,)
    two = fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(2), drop_last)
    assert [len(step) for step in two] == [2] * (len(sizes) // 2)
    with pytest.raises(AssertionError, match="type of DatasetBase"):
        fluid.io.DataLoader.from_dataset(tmp_path, fluid.cpu_places(1))


def test_handlers_see_arrays_and_pace_is_printed(tmp_path, model, capsys):
    main, startup, use_vars, loss = model
    seen = []

    class Keep(fluid.executor.FetchHandler):
        def handler(self, res_dict):
            seen.append(res_dict["cost"])

    exe = fluid.Executor()
    exe.run(startup)
    dataset = dataset_programs.dataset_of(fluid, "QueueDataset", tmp_path, use_vars)
    exe.train_from_dataset(
        main, dataset, debug=True, print_period=2, fetch_handler=Keep({"cost": loss}, 0)
    )
    assert [value.shape for value in seen] == [(1,)] * 4
    paces = re.findall(r"batch (\d+): [\d.]+ batches per second", capsys.readouterr().out)
    assert paces == ["2", "4"]
    with pytest.raises(RuntimeError, match="'ids' holds sequences"):
        exe.train_from_dataset(main, dataset, fetch_handler=Keep({"ids": use_vars[0]}, 0))


def test_a_failing_command_is_named_with_file_and_code(tmp_path, model):
    main, startup, use_vars, _ = model
    dataset = dataset_programs.dataset_of(fluid, "QueueDataset", tmp_path, use_vars)
    exe = fluid.Executor()
    exe.run(startup)
    for command, code in {"cat; exit 3": 3, "false | cat": 1}.items():
        dataset.set_pipe_command(command)
        message = rf"{re.escape(command)}' failed on .*part-0 with exit code {code}"
        with pytest.raises(EnforceNotMet, match=message):
            exe.train_from_dataset(main, dataset)
    dataset.set_filelist([str(tmp_path / "missing")])
    with pytest.raises(FileNotFoundError, match="missing"):
        exe.train_from_dataset(main, dataset)


def test_a_line_that_does_not_fit_is_named(tmp_path, model):
    dataset = dataset_programs.dataset_of(fluid, "InMemoryDataset", tmp_path, model[2])
    dataset.set_pipe_command("sed s/17/seventeen/")
    with pytest.raises(EnforceNotMet, match=r"part-0, line 3 .*slot 'ids': .*seventeen"):
        dataset.load_into_memory()


def test_who_wants_no_more_ends_threads_and_commands(tmp_path, model):
    dataset = dataset_programs.dataset_of(fluid, "QueueDataset", tmp_path, model[2])
    dataset.set_pipe_command("yes 1 5 3 0 0 0 1 1")
    feeds = dataset._feeds(2)
    next(feeds)
    feeds.close()
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"dpexec-dataset", "dpexec-batches"}


def test_loading_in_the_background(tmp_path, model):
    dataset = dataset_programs.dataset_of(fluid, "InMemoryDataset", tmp_path, model[2])
    with pytest.raises(RuntimeError, match="call preload_into_memory first"):
        dataset.wait_preload_done()
    dataset.preload_into_memory(thread_num=2)
    dataset.wait_preload_done()
    assert dataset.get_memory_data_size() == 7
    assert ids_of(dataset) == ids_of(in_memory(tmp_path, model[2]))
    dataset.set_pipe_command("false")
    dataset.preload_into_memory()
    with pytest.raises(EnforceNotMet, match="exit code 1"):
        dataset.wait_preload_done()


def test_shuffling_keeps_samples_and_repeats_with_a_seed(tmp_path, model):
    dataset, again = in_memory(tmp_path, model[2]), in_memory(tmp_path, model[2])
    before = ids_of(dataset)
    assert dataset.get_shuffle_data_size() == 0
    random.seed(3)
    dataset.local_shuffle()
    random.seed(3)
    again.global_shuffle()
    assert ids_of(dataset) == ids_of(again) != before
    assert sorted(ids_of(dataset)) == sorted(before)
    assert dataset.get_shuffle_data_size() == 7
    dataset.release_memory()
    assert (dataset.get_memory_data_size(), dataset.get_shuffle_data_size()) == (0, 0)
    with pytest.raises(RuntimeError, match="call load_into_memory"):
        dataset.local_shuffle()


def test_slots_shuffle_moves_the_values_of_some_slots(tmp_path, model):
    dataset = in_memory(tmp_path, model[2])
    with pytest.raises(RuntimeError, match="set_fea_eval"):
        dataset.slots_shuffle(["ids"])
    before = [tuple(map(tuple, sample)) for sample in dataset._memory]
    dataset.set_fea_eval(1, True)
    with pytest.raises(ValueError, match="no slot 'id'"):
        dataset.slots_shuffle(["id"])
    dataset.slots_shuffle(["ids"])
    after = [tuple(map(tuple, sample)) for sample in dataset._memory]
    assert [sample[1:] for sample in after] == [sample[1:] for sample in before]
    assert {sample[0] for sample in after} < {sample[0] for sample in before}
    dataset.slots_shuffle(["label"])
    assert [tuple(map(tuple, sample[:2])) for sample in dataset._memory] == [
        sample[:2] for sample in before
    ]


class SeveralTrainers:
    """A fleet."""

    def worker_num(self):
        return 2


@pytest.mark.parametrize(
    "method", ["global_shuffle", "get_memory_data_size", "get_shuffle_data_size"]
)
def test_trainers_exchange_no_samples(tmp_path, model, method):
    with pytest.raises(NotImplementedError, match=f"{method} over 2 trainers"):
        getattr(in_memory(tmp_path, model[2]), method)(SeveralTrainers())


def test_what_is_wrong_is_said(model):
    main, _, use_vars, loss = model
    with pytest.raises(ValueError, match="datafeed class Other does not exist"):
        fluid.DatasetFactory().create_dataset("Other")
    dataset = fluid.DatasetFactory().create_dataset()
    with pytest.raises(NotImplementedError, match="InMemoryDataset"):
        dataset.local_shuffle()
    with pytest.raises(NotImplementedError, match="hadoop fs -cat"):
        dataset.set_hdfs_config("name", "ugi")
    with pytest.raises(TypeError, match="list of files"):
        dataset.set_filelist("file")
    run = fluid.Executor().train_from_dataset
    with pytest.raises(RuntimeError, match="dataset is need"):
        run(main)
    with pytest.raises(TypeError, match=r"one of fluid\.DatasetFactory, but received list"):
        run(main, [{"x": 1}])
    with pytest.raises(ValueError, match="set_use_var"):
        run(main, dataset)
    dataset.set_use_var(use_vars)
    with pytest.raises(ValueError, match="set_filelist"):
        run(main, dataset)
    with pytest.raises(AssertionError, match="0 for 1"):
        run(main, dataset, fetch_list=[loss])
    dataset.set_thread(0)
    with pytest.raises(RuntimeError, match="set thread num"):
        run(main, dataset)


def test_the_guide_runs(tmp_path, monkeypatch, capsys):
    generator, training, *_ = programs("docs/datasets.md")
    (tmp_path / "clicks.py").write_text(generator)
    for day in (1, 2):
        (tmp_path / f"day-{day}.txt").write_text("3 1 4 1\n5 9 0\n")
    monkeypatch.chdir(tmp_path)
    exec(training.replace("python clicks.py", f"'{sys.executable}' clicks.py"), {})
    assert NUMBERS.findall(capsys.readouterr().out) != []


def test_the_guides_samples_by_number_train():
    *_, program = programs("docs/datasets.md")
    names = {}
    exec(program, names)
    assert len(names["losses"]) == 2 and np.isfinite(names["losses"]).all()


def test_methods_of_pslib_say_what_to_do():
    made = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    with pytest.raises(AttributeError, match=r"InMemoryDataset\.set_feed_type .* the pipe command"):
        made.set_feed_type("SlotRecordInMemoryDataFeed")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        made.nothing()


def sequences_read(name, layers, single, several):
    """A number that depends on the sequences of dense slots of one and of two numbers a row."""
    if name == "softmax":
        return layers.sequence_softmax(layers.cast(single, "float32"))
    if name == "reshape":
        start = fluid.initializer.Constant(0.1)
        rows = layers.embedding(single, [9, 3], param_attr=start)
        return layers.sequence_reshape(rows, 1)
    return layers.sequence_reverse(several)


def fed_by_files(tmp_path, kind, name):
    layers, lines = fluid.layers, "1 1 2 0.5 1.5\n1 0 2 2.5 3.5\n1 1 2 1 2\n"
    (tmp_path / "part").write_text(lines)
    single, several = fluid.data("single", [None, 1], "int64"), fluid.data("several", [None, 2])
    total = layers.create_global_var([1], 0.0, "float32", persistable=True, name="total")
    made = layers.reduce_sum(sequences_read(name, layers, single, several))
    layers.assign(total * 10.0 + made, total)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    dataset = fluid.DatasetFactory().create_dataset(kind)
    dataset.set_use_var([single, several])
    dataset.set_batch_size(2)
    dataset.set_filelist([str(tmp_path / "part")])
    dataset.set_pipe_command("cat")
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
    executor.train_from_dataset(fluid.default_main_program(), dataset)
    return fluid.global_scope().find_var("total").get_tensor().numpy().tolist()


@pytest.mark.parametrize("kind", ["QueueDataset", "InMemoryDataset"])
@pytest.mark.parametrize(("name", "recorded"), [("softmax", 21.0), ("reshape", 6.3)])
def test_rows_of_dense_slots_are_sequences_for_operators_that_read_them(
    tmp_path, kind, name, recorded
):
    """Recorded from Paddle 1.8.5, which gives every dense slot offsets."""
    assert fed_by_files(tmp_path, kind, name) == pytest.approx([recorded], rel=1e-6)


def test_dense_slots_of_several_numbers_have_no_sequences(tmp_path):
    """Paddle's offsets count their numbers, and lead beyond the rows."""
    with pytest.raises(EnforceNotMet, match=r"X\(several\) holds no sequences"):
        fed_by_files(tmp_path, "QueueDataset", "reverse")
