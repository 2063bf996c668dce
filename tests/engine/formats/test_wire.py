"""Programs in Paddle 1.x's format.

Those of the real 1.8.5 are read, run, and written back byte by byte.

Recorded by tests/fixtures/record_saved.py.
"""

import os

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.formats import wire
from tests.fixtures import saved_cases
from tests.fixtures.saved_cases import recorded


@pytest.fixture(scope="module")
def losses():
    with np.load(os.path.join(saved_cases.SAVED, "losses.npz")) as arrays:
        return dict(arrays)


def parsed(name, part="main"):
    return fluid.Program.parse_from_string(recorded(name, part))


def content(data):
    """A message without the order of variables and attributes, which is a hash table's."""
    message = wire.decode("ProgramDesc", data)
    message.pop("version", None)
    for block in message["blocks"]:
        block.setdefault("vars", []).sort(key=lambda var: var["name"])
        block.pop("forward_block_idx", None)
        for var in block["vars"]:
            for field in ("lod_tensor", "tensor_array"):
                var["type"].get(field, {}).setdefault("lod_level", 0)
            var.setdefault("persistable", False)
            var.setdefault("need_check_feed", False)
        for op in block["ops"]:
            op.pop("is_target", None)
            op["attrs"].sort(key=lambda attr: attr["name"])
            for slot in (*op.get("inputs", []), *op.get("outputs", [])):
                slot.setdefault("arguments", [])
            for attr in op["attrs"]:
                values = [v for k, v in attr.items() if k not in ("name", "type")]
                attr["values"] = values[0] if values else []
    return message


@pytest.mark.parametrize("part", ["main", "startup"])
@pytest.mark.parametrize("name", saved_cases.CASES)
def test_a_real_program_is_written_back_as_it_was(name, part):
    written = parsed(name, part).desc.serialize_to_string()
    assert content(written) == content(recorded(name, part))


@pytest.mark.parametrize("name", saved_cases.CASES)
def test_a_real_program_trains_with_the_recorded_losses(name, losses, monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    found = saved_cases.train(fluid, *programs_of(name, losses))
    np.testing.assert_allclose(found, losses[name], rtol=1e-5)


def programs_of(name, losses):
    return parsed(name), parsed(name, "startup"), str(losses[name + "/loss"]), name


def test_two_real_programs_train_in_turn_on_shared_parameters(losses, monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    parts = [programs_of(name, losses) for name in saved_cases.GAN]
    for number, found in enumerate(saved_cases.train_in_turn(fluid, parts)):
        np.testing.assert_allclose(found, losses[f"dcgan/{number}"], rtol=1e-5)


@pytest.mark.parametrize("name", saved_cases.CASES)
def test_parameters_are_those_of_the_built_program(name):
    built, _, _ = saved_cases.build(fluid, name)
    assert parameters(parsed(name), name) == parameters(built, name)


def parameters(program, name):
    return {
        p.name: (p.shape, p.dtype, p.trainable or name in saved_cases.GAN)
        for p in program.all_parameters()
    }  # a serialised program does not say that others train what it does not


@pytest.mark.parametrize("name", saved_cases.CASES)
def test_own_programs_keep_their_bytes_and_text(name):
    for program in saved_cases.build(fluid, name)[:2]:
        data = program.desc.serialize_to_string()
        twin = fluid.Program.parse_from_string(data)
        assert twin.desc.serialize_to_string() == data
        assert str(twin) == str(program)


def test_a_parsed_operator_names_the_line_that_made_it():
    op = parsed("fit_a_line").global_block().ops[0]
    assert (op.callsite.filename, op.callsite.line) == ("train.py", 7)


def test_every_truncation_is_noticed():
    data = recorded("fit_a_line", "startup")
    version = wire.encode("ProgramDesc", {"version": {"version": 0}})
    for size in range(len(data) - len(version) - 2):
        with pytest.raises(fluid.core.EnforceNotMet, match="no valid ProgramDesc"):
            fluid.Program.parse_from_string(data[:size])


def test_strings_that_are_no_text_survive_and_print():
    data = recorded("fit_a_line", "startup").replace(b"fc_0.b_0", b"fc_0\xffb_0")
    program = fluid.Program.parse_from_string(data)
    assert b"fc_0\xffb_0" in program.desc.serialize_to_string()
    assert r'name: "fc_0\377b_0"' in str(program)


def test_unknown_operator_is_named():
    data = recorded("fit_a_line", "main")
    with pytest.raises(fluid.core.EnforceNotMet, match='"sxd" has not been'):
        fluid.Program.parse_from_string(data.replace(b"\x1a\x03sgd", b"\x1a\x03sxd"))


@pytest.mark.parametrize("value", [0, 1, 127, 128, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_integers_survive(value):
    message = {"name": "a", "type": 9, "l": value}
    assert wire.decode("Attr", wire.encode("Attr", message)) == message
