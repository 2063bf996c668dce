"""Declarations of operators: repeated, conflicting and wrong ones."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec, find, op, same_as


@pytest.fixture(autouse=True)
def own_operators(monkeypatch):
    """What a test declares is gone afterwards."""
    monkeypatch.setattr(opdef, "_registry", {**opdef.registered()})


def declare(type, qualname, module="__main__"):
    """What a cell does that declares an operator."""

    def kernel(xp, x):
        return x

    kernel.__qualname__, kernel.__module__ = qualname, module
    return op(type, inputs="X", outputs="Out", infer=same_as("X"))(kernel)


def test_a_declaration_may_run_again():
    declare("of_a_cell", "of_a_cell")
    again = declare("of_a_cell", "of_a_cell")
    assert find("of_a_cell") is again


@pytest.mark.parametrize(
    ("qualname", "module"),
    [("other", "__main__"), ("of_a_room", "elsewhere"), ("make.<locals>.of_a_room", "__main__")],
)
def test_two_declarations_of_a_type_are_refused(qualname, module):
    first = qualname if "<locals>" in qualname else "of_a_room"
    type = f"of_a_room_{qualname}_{module}"
    declare(type, first)
    with pytest.raises(ValueError, match="declared twice"):
        declare(type, qualname, module)


def test_same_as_finds_its_input_by_name():
    made = op("of_two", inputs="X Y", infer=same_as("Y"))(lambda xp, x, y: y)
    specs = {"X": [Spec((2, 3))], "Y": [Spec((4,))]}
    assert made.infer_specs(specs, {})["Out"] == [Spec((4,))]
    with pytest.raises(ValueError, match=r"of_none has no input 'Z'.*its inputs are X, Y"):
        op("of_none", inputs="X Y", infer=same_as("Z"))(lambda xp, x, y: y)


@pytest.mark.parametrize(
    ("outputs", "infer"), [("Out Two", same_as("X")), ("Out", lambda x: x.shape)]
)
def test_infer_that_gives_no_spec_for_each_output_is_told(outputs, infer):
    made = op("of_wrong", inputs="X", outputs=outputs, infer=infer)(lambda xp, x: x)
    with pytest.raises(InvalidOp, match="infer must return a Spec for each output"):
        made.infer_specs({"X": [Spec((2, 3))]}, {})


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_kernel_with_too_few_results_is_told(scheduler):
    op("of_pairs", inputs="X", outputs="Out Two", infer=lambda x: (x, x))(lambda xp, x: x)
    x = fluid.data("x", [None, 2])
    helper = fluid.layer_helper.LayerHelper("of_pairs")
    one, two = (helper.create_variable_for_type_inference("float32") for _ in range(2))
    helper.append_op("of_pairs", inputs={"X": x}, outputs={"Out": one, "Two": two})
    execution = fluid.ExecutionStrategy()
    execution.scheduler = scheduler
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        exec_strategy=execution, places=fluid.cpu_places(1)
    )
    with pytest.raises(fluid.core.EnforceNotMet, match=r"must return 2 results.* but returned 1"):
        fluid.Executor().run(compiled, feed={"x": np.ones((3, 2), "float32")}, fetch_list=[one])
