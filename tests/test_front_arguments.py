"""Wrong arguments of what is not a layer are refused at once, in words that say which."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import core

PLACE = fluid.CPUPlace()


def batches():
    yield (np.ones((2, 1), "float32"),)


def loader(**options):
    x = fluid.data("x", [None, 1])
    return fluid.io.DataLoader.from_generator(feed_list=[x], **options)


def compiled():
    return fluid.CompiledProgram(fluid.default_main_program())


REFUSED = {
    "a reader that was called": (
        lambda: loader(capacity=2).set_batch_generator(batches(), PLACE),
        "a function that returns an iterator, but is generator",
    ),
    "the same of samples": (
        lambda: loader(capacity=2).set_sample_generator(batches(), 2, places=PLACE),
        "give the function itself",
    ),
    "a decorator of a list": (lambda: fluid.io.batch([1, 2], 2), "but is list"),
    "a mapper that is none": (lambda: fluid.io.xmap_readers(3, batches, 1, 1), "but is int"),
    "a capacity in words": (lambda: loader(capacity="many"), "capacity is a number of batches"),
    "a scope that is a name": (lambda: fluid.scope_guard("x").__enter__(), "but received str"),
    "two CPUs in words": (lambda: fluid.cpu_places("2"), "number of devices is an integer"),
    "a GPU in words": (lambda: fluid.CUDAPlace("0"), "number of a GPU is an integer"),
    "variables of a program": (
        lambda: compiled().with_data_parallel(share_vars_from=fluid.default_main_program()),
        "share_vars_from takes a CompiledProgram",
    ),
    "a strategy in words": (
        lambda: fluid.ParallelExecutor(False, exec_strategy="fast"),
        "ExecutionStrategy is expected",
    ),
    "a number as initializer": (lambda: fluid.ParamAttr(initializer=0.1), "'initializer'"),
    "a number as regularizer": (lambda: fluid.ParamAttr(regularizer=0.1), "'regularizer'"),
    "a feeder of nothing": (
        lambda: fluid.DataFeeder(None, PLACE),
        "'feed_list' in DataFeeder must be a list of Variable or str",
    ),
    "no lengths": (
        lambda: fluid.create_lod_tensor(np.ones((2, 1)), None, PLACE),
        "'recursive_seq_lens' in create_lod_tensor",
    ),
    "no program": (lambda: fluid.framework.switch_main_program(None), "takes a Program"),
    "a predictor of a folder": (lambda: core.AnalysisPredictor("model"), "'config'"),
    "a kind as a data type": (lambda: core.size_of_dtype(7), "LOD_TENSOR is a kind of variables"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_types_are_refused_at_once(case):
    call, words = REFUSED[case]
    with pytest.raises(TypeError) as caught:
        call()
    assert words in str(caught.value)


def test_names_that_are_not_there_are_warned_of():
    loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
    with pytest.warns(
        UserWarning, match="'fc_0.w_1', which the program does not have; similar: fc_0.w_0"
    ):
        fluid.optimizer.SGD(0.1).minimize(loss, parameter_list=["fc_0.w_0", "fc_0.w_1"])
    with pytest.warns(UserWarning, match="loss_name 'mean_1.tmp_0' is no variable of the program"):
        compiled().with_data_parallel(loss_name="mean_1.tmp_0")
