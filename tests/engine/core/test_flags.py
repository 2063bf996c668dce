"""Flags: values from the environment, types, and refused names."""

import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.flags import Flags


@pytest.mark.parametrize("text", ["1", "true", "True", "yes", "y", "t"])
def test_environment_switches_a_flag_on(text):
    assert Flags({"FLAGS_check_nan_inf": text, "PATH": "/"})["FLAGS_check_nan_inf"] is True


@pytest.mark.parametrize("text", ["0", "false", "no", "n", "f"])
def test_environment_switches_a_flag_off(text):
    assert Flags({"FLAGS_check_nan_inf": text})["FLAGS_check_nan_inf"] is False


@pytest.mark.parametrize("text", ["", "abc"])
def test_environment_with_another_text_is_refused(text):
    with pytest.raises(RuntimeError, match="FLAGS_check_nan_inf"):
        Flags({"FLAGS_check_nan_inf": text})


def test_environment_sets_numbers():
    with pytest.warns(UserWarning, match="no effect"):
        flags = Flags({"FLAGS_eager_delete_tensor_gb": "2.5"})
    assert flags["FLAGS_eager_delete_tensor_gb"] == 2.5


@pytest.mark.parametrize("name", ["FLAGS_nope", "FLAGS_use_mkldnn"])
def test_unknown_and_private_flags_are_refused(name):
    with pytest.raises(ValueError, match=f"Flag {name} cannot set its value"):
        fluid.set_flags({name: True})
    with pytest.raises(ValueError, match=f"Flag {name} cannot get its value"):
        fluid.get_flags(name)


def test_flags_that_there_are_not():
    flags = Flags()
    assert flags.get("FLAGS_eager_delete_tensor", 7) == 7
    assert flags.get("FLAGS_eager_delete_tensor_gb") == 0.0
    for mistake in (lambda: flags["FLAGS_check_nan"], lambda: flags.__setitem__("FLAGS_check", 1)):
        with pytest.raises(EnforceNotMet, match="there is no flag FLAGS_check"):
            mistake()
