"""``delete_var`` and ``fake_init``: variables without a value."""

import numpy as np
import pytest

import dpexec as fluid


def program_of(*ops):
    """A program of operators (type, inputs, outputs, attrs) on persistable variables of (2,)."""
    program = fluid.Program()
    block = program.global_block()
    for type, inputs, outputs, attrs in ops:
        for name in (n for names in [*inputs.values(), *outputs.values()] for n in names):
            if not block.has_var(name):
                block.create_var(name=name, shape=[2], dtype="float32", persistable=name != "t")
        block.append_op(type, inputs, outputs, attrs)
    return program


def made(name, value):
    return ("fill_constant", {}, {"Out": [name]}, {"shape": [2], "value": value, "dtype": 5})


def deleted(*names):
    return ("delete_var", {"X": list(names)}, {}, {})


@pytest.mark.parametrize("places", [None, 2])
def test_the_scope_forgets_what_is_deleted(places):
    program = program_of(made("a", 1.0), made("b", 2.0), made("t", 3.0), deleted("a", "t"))
    executor = fluid.Executor(fluid.CPUPlace())
    if places:
        program = fluid.CompiledProgram(program).with_data_parallel(places=fluid.cpu_places(places))
    executor.run(program)
    scope = fluid.global_scope()
    assert scope.find_var("a") is None
    assert np.array(scope.find_var("b").get_tensor()).tolist() == [2.0, 2.0]
    executor.run(program)
    assert scope.find_var("a") is None


def test_what_is_written_again_stays():
    program = program_of(made("a", 1.0), deleted("a"), made("a", 5.0))
    fluid.Executor(fluid.CPUPlace()).run(program)
    assert np.array(fluid.global_scope().find_var("a").get_tensor()).tolist() == [5.0, 5.0]


def test_a_deleted_variable_cannot_be_read():
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(program_of(made("a", 1.0)))
    reader = program_of(("scale", {"X": ["a"]}, {"Out": ["b"]}, {"scale": 2.0}))
    executor.run(reader)
    executor.run(program_of(deleted("a")))
    with pytest.raises(fluid.core.EnforceNotMet, match=r"variable a has not been initialized"):
        executor.run(reader)


def test_fake_init_leaves_a_variable_without_value():
    executor = fluid.Executor(fluid.CPUPlace())
    faked = ("fake_init", {}, {"Out": ["table"]}, {"shape": [2]})
    executor.run(program_of(faked, made("b", 2.0)))
    reader = program_of(("scale", {"X": ["table"]}, {"Out": ["b"]}, {"scale": 2.0}))
    with pytest.raises(fluid.core.EnforceNotMet, match=r"table has not been initialized"):
        executor.run(reader)
    assert np.array(fluid.global_scope().find_var("b").get_tensor()).tolist() == [2.0, 2.0]
