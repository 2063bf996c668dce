"""``import paddle`` inside a script that dpexec runs."""

import collections
import fractions
import importlib
import inspect
import logging
import sys
import threading
import time

import numpy as np
import pytest
import yaml

import dpexec
from dpexec.commands.paddle_alias import paddle_is_dpexec
from dpexec.compat.old_numpy import REMOVED, old_numpy_names
from dpexec.compat.old_python import old_python_names


@pytest.fixture
def alias():
    with paddle_is_dpexec():
        yield


@pytest.mark.usefixtures("alias")
def test_fluid_is_dpexec():
    import paddle
    import paddle.fluid as fluid
    import paddle.fluid.core as core
    from paddle.fluid import core as again

    assert fluid is dpexec
    assert core is again is sys.modules["dpexec.core"]
    assert paddle.fluid is dpexec


@pytest.mark.usefixtures("alias")
def test_what_tools_take_from_inside_of_fluid():
    import paddle.fluid as fluid
    import paddle.fluid.proto.framework_pb2 as framework_pb2
    from paddle.fluid.framework import core

    assert core is fluid.core and framework_pb2.VarType.FP32 == core.VarDesc.VarType.FP32
    fluid.unique_name.generate("a")
    with fluid.unique_name.guard(fluid.unique_name.generator):
        assert fluid.unique_name.generate("a") == "a_1"


@pytest.mark.usefixtures("alias")
@pytest.mark.parametrize("library", ["core_avx", "core_noavx"])
def test_the_library_behind_core_is_core(library):
    module = importlib.import_module(f"paddle.fluid.{library}")
    assert module is dpexec.core
    assert module.AnalysisConfig is dpexec.core.AnalysisConfig


@pytest.mark.usefixtures("alias")
def test_paddle_itself_is_ours():
    import paddle
    import paddle.dataset.mnist as mnist
    from paddle.reader import shuffle

    assert list(paddle.batch(lambda: range(3), 2)()) == [[0, 1], [2]]
    assert importlib.import_module("paddle.batch").batch is paddle.batch  # stays a function
    assert shuffle is sys.modules["dpexec.paddle.reader"].shuffle
    assert paddle.__version__ == paddle.version.full_version == "1.8.5"
    assert mnist is sys.modules["dpexec.paddle.dataset.mnist"]


@pytest.mark.usefixtures("alias")
def test_who_writes_for_paddle_2_is_told_where_things_were_in_1():
    paddle = importlib.import_module("paddle")
    with pytest.raises(AttributeError, match=r"paddle.nn is not .* are in paddle.fluid$"):
        paddle.nn  # noqa: B018
    with pytest.raises(AttributeError, match=r"similar: batch$"):
        paddle.bach  # noqa: B018


@pytest.mark.usefixtures("alias")
def test_modules_keep_their_own_names():
    importlib.import_module("paddle.fluid.core")
    assert dpexec.__spec__.name == dpexec.__name__ == "dpexec"
    assert sys.modules["dpexec.core"].__spec__.name == "dpexec.core"


@pytest.mark.usefixtures("alias")
@pytest.mark.parametrize(
    ("name", "why"),
    {
        "paddle.nn": "dpexec answers paddle.fluid",
        "paddle.dataset.flowers": "data sets read local files",
        "paddle.fluid.nowhere": "dpexec has no such module of fluid",
        "paddle.fluid.incubate.fleet.parameter_server.pslib": "distribute_transpiler has",
    }.items(),
)
def test_what_is_missing_is_named(name, why):
    with pytest.raises(ModuleNotFoundError, match=f"{name} is not supported: .*{why}"):
        importlib.import_module(name)


@pytest.mark.usefixtures("alias")
def test_loggers_of_fluid_write_by_themselves(capsys):
    log_helper = importlib.import_module("paddle.fluid.log_helper")
    log_helper.get_logger("own", logging.INFO, fmt="%(levelname)s: %(message)s").info("here")
    assert capsys.readouterr().err == "INFO: here\n"


@pytest.mark.usefixtures("alias")
def test_launchers_are_there(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    launch = importlib.import_module("paddle.distributed.launch")
    assert launch.get_gpus("1,2") == ["1", "2"]


def test_nothing_stays_behind():
    before = list(sys.meta_path)
    with paddle_is_dpexec():
        pass
    assert sys.meta_path == before
    assert not any(name.split(".")[0] == "paddle" for name in sys.modules)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("paddle.fluid")


def test_a_real_paddle_is_not_replaced(monkeypatch):
    monkeypatch.setitem(sys.modules, "paddle", sys)
    with pytest.raises(RuntimeError, match="imported already"), paddle_is_dpexec():
        pass


@pytest.mark.usefixtures("alias")
def test_layers_are_found_in_fluids_modules():
    import paddle.fluid as fluid
    import paddle.fluid.layers.metric_op as metric_op
    from paddle.fluid.data_feeder import check_variable_and_dtype, convert_dtype
    from paddle.fluid.layers.nn import conv2d
    from paddle.fluid.layers.tensor import concat, fill_constant

    layers = fluid.layers
    assert (conv2d, concat, fill_constant) == (layers.conv2d, layers.concat, layers.fill_constant)
    assert layers.control_flow.increment is layers.increment
    assert metric_op.auc is layers.auc
    assert convert_dtype("float32") == "float32" and callable(check_variable_and_dtype)
    with pytest.raises(AttributeError, match=r"layers. has no attribute .nothing."):
        layers.nn.nothing  # noqa: B018


def test_removed_names_of_numpy_are_there_for_a_while():
    with old_numpy_names():
        assert {name for name in REMOVED if not hasattr(np, name)} == set()
        assert np.arange(2, dtype=int).tolist() == [0, 1]
        assert np.in1d([1, 4], [[4, 5]]).tolist() == [False, True]  # noqa: NPY201
        assert np.asscalar(np.ones(1)) == 1.0
        assert repr([np.float32(0.5), np.int64(3)]) == "[0.5, 3]"
    assert {"int", "asscalar", "Inf"}.isdisjoint(vars(np))


def test_functions_of_numpy_take_what_they_took_for_a_while():
    reshape = np.reshape
    with old_numpy_names():
        ragged = np.array([[1], [2, 3]])
        assert ragged.dtype == object and ragged[1] == [2, 3]
        assert np.array([[1], [2]], "float32").shape == (2, 1)
        assert np.array([1], copy=False).tolist() == [1]
        with pytest.raises(ValueError, match="inhomogeneous"):
            np.array([[1], [2, 3]], "float32")
        pixels = np.fromstring(b"\x01\x02", dtype="uint8")
        pixels += 1
        assert pixels.tolist() == [2, 3]
        assert np.fromstring("1 2", sep=" ").tolist() == [1.0, 2.0]
        assert np.reshape(pixels, newshape=[2, 1]).shape == (2, 1)
        assert np.reshape(pixels, (1, 2)).shape == np.reshape(pixels, shape=(1, 2)).shape
    assert np.reshape is reshape


@pytest.mark.usefixtures("alias")
def test_module_that_is_called_like_a_layer_does_not_take_its_name():
    import paddle.fluid.data
    import paddle.fluid.layers.rnn
    from paddle.fluid.layers.rnn import LSTMCell

    assert LSTMCell is dpexec.layers.LSTMCell
    assert paddle.fluid.layers.rnn is sys.modules["dpexec.layers.rnn"].rnn
    assert paddle.fluid.data is sys.modules["dpexec.data"].data


def test_removed_names_of_the_library_are_there_for_a_while():
    with old_python_names():
        from xml.etree.ElementTree import fromstring

        assert issubclass(list, collections.Iterable) and fractions.gcd(4, 6) == 2
        assert inspect.getargspec(lambda a, b=2, *c: 0).defaults == (2,)
        assert time.clock() <= time.process_time() and not threading.Thread().isAlive()
        assert fromstring("<size><width>3</width></size>").findtext("width") == "3"
        assert yaml.load("train: {epoch: 3}") == {"train": {"epoch": 3}}
    with pytest.raises(TypeError, match="Loader"):
        yaml.load("train: {epoch: 3}")
    assert not hasattr(collections, "Iterable") and not hasattr(time, "clock")
    assert "xml.etree.cElementTree" not in sys.modules
