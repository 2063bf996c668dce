"""``memory_optimize`` and ``release_memory``, which warn and change nothing."""

import pytest

import dpexec as fluid


@pytest.mark.parametrize("name", ["memory_optimize", "release_memory"])
def test_program_is_left_as_it_is_with_a_warning(name, caplog):
    program = fluid.Program()
    with fluid.program_guard(program):
        fluid.layers.fc(fluid.data("x", [None, 4]), 3)
    before = str(program)
    assert getattr(fluid, name)(program, skip_opt_set={"x"}) is None
    assert str(program) == before
    assert f"{name}() is deprecated" in caplog.text
