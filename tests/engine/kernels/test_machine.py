"""Typed kernels: signatures, argument passing, refusals and compiler errors."""

import re
import struct
import textwrap
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec import extend
from dpexec.engine.ir import opdef
from dpexec.engine.kernels import implementations

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.engine.kernels import code_store
from dpexec.engine.kernels.calls import run_call
from dpexec.engine.kernels.generate import compiled
from dpexec.engine.kernels.identity import identity
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.lowering import Code
from dpexec.engine.kernels.machine import (
    Count,
    Doubles,
    Floats,
    Integers,
    Kernel,
    Number,
    Octets,
    Rest,
    Words,
    as_word,
    count,
    kernel,
)


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch):
    monkeypatch.setattr(code_store, "keep", lambda *of: None)


def bits(number):
    return struct.unpack("<q", struct.pack("<d", number))[0]


def test_arguments_of_every_type_arrive():
    @kernel
    def spread(
        n: Count, x: Number, floats: Floats, doubles: Doubles, octets: Octets, words: Words,
        integers: Integers, more: Rest,
    ) -> int:  # fmt: skip
        for i in range(n):
            floats[i] = x
            doubles[i] = floats[i] * 2
            octets[i] = words[i] = integers[i] = count(more, i)
        integers[0] = as_word(floats)
        return 0

    arrays = [np.zeros(2, kind) for kind in ("f4", "f8", "u1", "i4", "i8")]
    run_call((spread, (2, bits(1.5), *map(address, arrays), 7, 9)))
    assert [array.tolist() for array in arrays] == [
        [1.5, 1.5], [3, 3], [7, 9], [7, 9], [address(arrays[0]), 9],
    ]  # fmt: skip


def test_a_kernel_may_have_many_arguments_and_refuse_them():
    names = [f"a{i}" for i in range(40)]
    typed = ", ".join(f"{name}: Count" for name in names)
    many = compiled("many", f"def many({typed}):\n    return {' + '.join(names)}\n")
    run_call((many, (1, -1, *[0] * 38)))
    with pytest.raises(RuntimeError, match="operator on sequences failed"):
        run_call((many, (1, *[0] * 39)))


def test_kernels_on_different_arrays_return_nothing():
    @kernel(apart=True)
    def copy(n: Count, x: Floats, out: Floats) -> None:
        for i in range(n):
            out[i] = x[i]

    x, out = np.arange(3, dtype="f4"), np.zeros(3, "f4")
    run_call((copy, (3, address(x), address(out))))
    assert out.tolist() == [0, 1, 2]


def test_signatures_that_say_nothing_are_errors_that_name_the_argument():
    def untyped(n: Count, x) -> int:
        return 0

    def of_python(n: int) -> int:
        return 0

    def behind_the_rest(more: Rest, n: Count) -> int:
        return 0

    for function, name in ((untyped, "x"), (of_python, "n"), (behind_the_rest, "more")):
        place = re.escape(f"{function.__module__}.{function.__qualname__}")
        with pytest.raises(TypeError, match=f"argument {name} of kernel {place} has no type"):
            Kernel(function)


@kernel
def _scale(n: Count, x: Floats) -> int:
    return 0


@kernel
def _add_up(n: Count, arrays: Rest) -> int:
    return 0


def test_wrong_numbers_of_arguments_are_errors_that_name_the_kernel():
    name = re.escape(str(_scale))
    for call in (lambda *a: Code().emit(*a), lambda k, *a: run_call((k, a))):
        with pytest.raises(TypeError, match=rf"kernel {name} takes 2 arguments \(n, x\), not 3"):
            call(_scale, 1, 2, 3)
        with pytest.raises(TypeError, match=r"_add_up takes 1 or more arguments \(n, arr.*not 0"):
            call(_add_up)
        with pytest.raises(TypeError, match=rf"argument x of kernel {name} is missing"):
            call(_scale, 1, None)
        with pytest.raises(TypeError, match=r"argument arrays of kernel .*_add_up is missing"):
            call(_add_up, 1, 2, None)


def test_what_cannot_be_compiled_is_told_with_file_and_line():
    @kernel
    def wrong(n: Count) -> int:
        return n.no_such_attribute

    with pytest.raises(Exception, match="no_such_attribute") as caught:
        _ = wrong.address
    line = wrong.function.__code__.co_firstlineno + 2
    assert re.search(rf"{Path(__file__).name}\W+line {line}\b", str(caught.value))


def test_another_type_of_an_argument_counts_as_another_kernel():
    def stamp(kind):
        made = compiled("first", f"def first(x: {kind}):\n    x[0] = 1\n    return 0\n")
        return identity(made.function, tuple(made.loads()))

    assert stamp("Floats") == stamp("Floats") != stamp("Integers")


def test_the_door_shows_an_operator_with_a_kernel_of_its_own(monkeypatch):
    monkeypatch.setattr(opdef, "_registry", {**opdef.registered()})
    implementations.load_all()
    monkeypatch.setattr(implementations, "_table", dict(implementations._table))
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", extend.__doc__)
    names = {"__name__": __name__}
    for block in (blocks[0], next(block for block in blocks if "@kernel" in block)):
        exec(compile(textwrap.dedent(block), "<cell>", "exec"), names)
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [-1, 3], "float32")
        x.stop_gradient = False
        out = main.global_block().create_var(name="out", dtype="float32")
        main.global_block().append_op("squared_relu", {"X": [x]}, {"Out": [out]})
        loss = fluid.layers.mean(out)
        (slope,) = fluid.gradients(loss, x)
    values = np.array([[-1, 2, 3]], "f4")
    exe, places = fluid.Executor(fluid.CPUPlace()), [fluid.CPUPlace()]
    made = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=places)
    with fluid.scope_guard(fluid.Scope()):
        for _ in range(2):
            found = exe.run(made, {"x": values}, [out, slope])
    np.testing.assert_allclose(found, [[[0, 4, 9]], [[0, 4 / 3, 2]]], rtol=1e-6)
    assert "address" in vars(names["square"])
