"""``PipelineOptimizer``: programs in sections."""

import numpy as np
import pytest

import dpexec as fluid

layers = fluid.layers
CPU = fluid.CPUPlace()


def trained(path, pipeline):
    """What a table holds after two batches of a file."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = layers.data("x", [1], dtype="int64")
        start = fluid.initializer.Constant(0.5)
        rows = layers.embedding(x, [10, 2], param_attr=fluid.ParamAttr("rows", start))
        loss = layers.reduce_mean(layers.square(layers.fc(rows, 1, param_attr=start)))
        optimizer = fluid.optimizer.SGD(0.5)
        if pipeline:
            cuts, places = [[rows], [loss]], [CPU] * 3
            optimizer = fluid.optimizer.PipelineOptimizer(optimizer, cuts, places, [1, 1, 4])
        optimizer.minimize(loss)
        dataset = fluid.DatasetFactory().create_dataset("FileInstantDataset")
        dataset.set_use_var([x])
        dataset.set_filelist([str(path)])
        dataset.set_batch_size(2)
        with fluid.scope_guard(fluid.Scope()):
            exe = fluid.Executor(CPU)
            exe.run(fluid.default_startup_program())
            exe.train_from_dataset(dataset=dataset)
            return np.array(fluid.global_scope().find_var("rows").get_tensor())


def test_sections_train_like_the_whole(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("1 3\n1 4\n1 3\n1 5\n")
    rows = trained(path, pipeline=True)
    assert (rows[3:6] != 0.5).all() and (rows[:3] == 0.5).all()
    np.testing.assert_array_equal(rows, trained(path, pipeline=False))


@pytest.mark.parametrize("lists", [([CPU], [1, 1, 1]), ([CPU] * 3, [1])])
def test_every_section_has_a_place(lists):
    with pytest.raises(ValueError, match=r"list has 1 entries, but a cut_list of 2 makes 3"):
        fluid.optimizer.PipelineOptimizer(fluid.optimizer.SGD(0.1), [[], []], *lists)


def test_data_sets_of_pipelines_are_not_shuffled():
    dataset = fluid.DatasetFactory().create_dataset("FileInstantDataset")
    for shuffle in (dataset.local_shuffle, dataset.global_shuffle):
        with pytest.raises(NotImplementedError, match="FileInstantDataset does not support"):
            shuffle()
