"""Declarations of operators: repeated and conflicting ones."""

import pytest

from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import find, op, same_as


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
