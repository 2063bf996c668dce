"""Whole models: what onnxruntime predicts is what dpexec predicts."""

import itertools

import numpy as np
import pytest

import dpexec as fluid
from dpexec.commands.paddle_alias import paddle_is_dpexec
from dpexec.engine.core.dtypes import to_numpy
from dpexec.onnx.exporter import model_of
from tests.fixtures import detection_programs, networks, programs
from tests.fixtures.sequence_programs import PROGRAMS, Net
from tests.guides import ROOT
from tests.onnx.exporting.running import run
from tests.onnx.exporting.zoo import MODELS


def with_lengths(name, tensor):
    """A tensor as an ONNX model takes and gives it."""
    if not hasattr(tensor, "recursive_sequence_lengths"):
        return {name: np.asarray(tensor)}
    levels = tensor.recursive_sequence_lengths()
    names = [f"{name}.lengths.{k}" for k in range(len(levels))]
    names = [f"{name}.lengths"] if len(levels) == 1 else names
    found = {n: np.array(level, np.int64) for n, level in zip(names, levels, strict=True)}
    return {name: np.asarray(tensor.numpy() if hasattr(tensor, "numpy") else tensor), **found}


def compare(program, feed, targets, opset=17):
    """Predict with both; parameters are in the current scope."""
    exe, names = fluid.Executor(fluid.CPUPlace()), [target.name for target in targets]
    program = program._prune_with_input(list(feed), names)
    read = {n for block in program.blocks for op in block.ops for n in op.input_arg_names}
    feed = {name: value for name, value in feed.items() if name in read}
    values = exe.run(program, feed=feed, fetch_list=names, return_numpy=False)
    model = model_of(program, list(feed), names, opset=opset)
    given = {k: v for name, value in feed.items() for k, v in with_lengths(name, value).items()}
    found = run(model, given, optimized=True)
    for name, value in zip(names, values, strict=True):
        for key, expected in with_lengths(name, value).items():
            assert found[key].shape == expected.shape, key
            assert found[key].dtype == expected.dtype, key
            np.testing.assert_allclose(found[key], expected, rtol=1e-3, atol=1e-4, err_msg=key)
    return model


def built(build):
    """The program of a model in test mode, with parameters, and what ``build`` returns."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup):
        made = build()
    test = main.clone(for_test=True)
    if startup.global_block().ops:
        fluid.Executor(fluid.CPUPlace()).run(startup)
    return test, made


def made_up(program):
    """A feed for all data of a program."""
    rng, feed = np.random.RandomState(0), {}
    for var in program.global_block().vars.values():
        if not var.is_data:
            continue
        rows, lengths = (5, [[3, 2]]) if var.lod_level else (2, [])
        shape = [{0: rows}.get(i, 8) if dim < 0 else dim for i, dim in enumerate(var.shape)]
        dtype = to_numpy(var.dtype)
        value = rng.uniform(-1, 1, shape) if dtype.kind == "f" else rng.randint(0, 2, shape)
        if var.name == "regions":
            value = np.sort(rng.uniform(0, 16, (rows, 2, 2)), 1).reshape(rows, 4)
        value = value.astype(dtype)
        if lengths:
            value = fluid.create_lod_tensor(value, lengths, fluid.CPUPlace())
        feed[var.name] = value
    return feed


OPSETS = dict(zip(MODELS, itertools.cycle((13, 17, 22))))
OPSETS |= {"array_loop": 14, "spatial_transformer": 16, "mask_head": 16}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_the_zoo(name):
    program, targets = built(MODELS[name])
    compare(program, made_up(program), targets, OPSETS[name])


CASES = {**networks.CASES, **programs.CASES}
NETS = {case.network: name for name, case in CASES.items() if name != "wgan_critic"}
"""Without a net whose loss has gradients in it, which ONNX cannot say."""


@pytest.mark.parametrize("name", NETS.values())
def test_networks_of_the_book(name):
    case = CASES[name]
    program, loss = built(lambda: case.network(fluid))
    feed = case.batch(np.random.RandomState(0), 3)
    compare(program, feed, [loss])


OVER_SEQUENCES = [(f, n) for f, names in PROGRAMS.items() for n in names]


@pytest.mark.parametrize(("file", "name"), OVER_SEQUENCES)
def test_nets_over_sequences(file, name):
    with paddle_is_dpexec():
        net = Net(fluid, file, name)
    fluid.Executor(fluid.CPUPlace()).run(net.startup)
    targets = net.predictions[:1] if file == "sequence_labelling" else net.predictions
    compare(net.test, net.batch(np.random.RandomState(0), 3), targets)


DECODERS = [("encoder_decoder", "translation"), ("recurrent", "sequence_to_sequence")]
"""Nets with a beam search: over sequences that grow in a loop, and over padded ones."""


@pytest.mark.parametrize(("file", "name"), DECODERS)
@pytest.mark.parametrize("opset", [17, 22])
def test_beam_searches(file, name, opset):
    with paddle_is_dpexec():
        net = Net(fluid, file, name)
    fluid.Executor(fluid.CPUPlace()).run(net.startup)
    for seed in range(3):
        feed = net.decoder_feed(np.random.RandomState(seed))
        compare(net.decoder, feed, net.decoded, opset)


@pytest.mark.parametrize("name", detection_programs.PROGRAMS)
def test_detectors(name):
    program, (_, found) = built(lambda: detection_programs.PROGRAMS[name](fluid))
    feed = detection_programs.feeds()
    compare(program, {n: v for n, v in feed.items() if program.global_block().has_var(n)}, [found])


def test_there_are_as_many_models_as_the_guide_says():
    parts = (MODELS, NETS, OVER_SEQUENCES, DECODERS, detection_programs.PROGRAMS)
    count = sum(map(len, parts))
    guide = (ROOT / "docs" / "onnx.md").read_text("utf-8")
    assert f"{count} whole models of Paddle's model zoo" in " ".join(guide.split())
