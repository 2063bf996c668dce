"""cuBLASLt without GPUs: its functions, of products with a bias, relu, or a bias's gradient.

They take what ctypes gives the real ones, and refuse what those refuse: attributes that are not
there or have another size, operands that do not fit, addresses that are aligned worse than was
said.
"""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from tests.fakes.cublas import rounded

__all__ = ["Cublaslt"]

_INVALID, _NOT_SUPPORTED = 7, 15
_SIZES = {
    "MatmulDesc": {3: 4, 4: 4, 7: 4, 8: 8},
    "MatmulPreference": {1: 8, 5: 4, 6: 4, 7: 4, 8: 4},
}
_ROUNDS = {68: 0, 75: 16, 77: 13}  # by compute type, bits of the mantissa that go
_TYPES = {0: "f4", 2: "f2"}
_COMPUTES = {np.dtype("f4"): {68, 75, 77}, np.dtype("f2"): {68}}
_KINDS = {4: "bias", 6: "bias and relu", 256: "bias gradient"}


class _Function:
    """A function as ctypes has them: it knows its parameters when it is called."""

    argtypes = None

    def __init__(self, function):
        self._function = function

    def __call__(self, *arguments):
        assert len(self.argtypes) == len(arguments), self._function.__name__
        return self._function(*arguments) or 0


class Cublaslt:
    """The functions.

    Args:
        machine: the GPUs.

    Attributes:
        plans: products for which a plan was found.
        declines: whether it has no plan for anything.
    """

    def __init__(self, machine):
        self.machine, self.plans, self.declines = machine, [], False
        self._objects, self._numbers = {}, itertools.count(1)

    def __getattr__(self, name):
        found = _Function(getattr(self, "_" + name.removeprefix("cublasLt")))
        setattr(self, name, found)
        return found

    def _make(self, made, what):
        number = next(self._numbers)
        self._objects[number] = what
        made._obj.value = number

    def _Create(self, made):
        self._make(made, {"device": self.machine.current.device})

    def _MatmulDescCreate(self, made, compute, scale):
        assert compute in _ROUNDS and scale == 0
        self._make(made, {"kind": "MatmulDesc", "compute": compute})

    def _MatrixLayoutCreate(self, made, type, rows, columns, leading):
        assert type in _TYPES
        if leading < rows:
            return _INVALID
        return self._make(made, {"shape": (rows, columns), "leading": leading, "type": type})

    def _MatmulPreferenceCreate(self, made):
        self._make(made, {"kind": "MatmulPreference"})

    def _MatmulPreferenceDestroy(self, preference):
        del self._objects[preference]

    def _set(self, owner, attribute, value, size):
        owner = self._objects[owner]
        if _SIZES[owner["kind"]].get(attribute) != size or ctypes.sizeof(value._obj) != size:
            return _INVALID
        owner[attribute] = value._obj.value
        return 0

    _MatmulDescSetAttribute = _MatmulPreferenceSetAttribute = _set

    def _MatmulAlgoGetHeuristic(
        self, handle, operation, a, b, c, d, preference, asked, made, count
    ):
        known = [self._objects[number] for number in (operation, a, b, d)]
        if not _fit(*known) or c != d:
            return _INVALID
        count._obj.value = 0
        if self.declines:
            return _NOT_SUPPORTED
        promised = self._objects[preference]
        self.plans.append(_KINDS[known[0][7]])
        made._obj.workspace = 1024
        made._obj.data[0] = next(self._numbers)
        self._objects[made._obj.data[0]] = {
            "promised": [promised[5], promised[6], promised[8], _alignment(known[0][8])]
        }
        count._obj.value = 1
        return 0

    def _Matmul(
        self, handle, operation, alpha, a, a_form, b, b_form, beta, c, c_form, d, d_form,
        algorithm, workspace, size, stream,
    ):  # fmt: skip
        machine, how = self.machine, self._objects[operation]
        assert (alpha._obj.value, beta._obj.value) == (1, 0) and (c, c_form) == (d, d_form)
        assert self._objects[handle]["device"] == machine.current.device
        assert machine.stream_at(stream) is machine.stream()
        promised = self._objects[algorithm._obj.data[0]]["promised"]
        assert all(at % by == 0 for at, by in zip((a, b, d, how[8]), promised, strict=True))
        assert size == algorithm._obj.workspace
        (left, one), (right, two), (out, made) = (
            self._matrix(at, self._objects[form])
            for at, form in ((a, a_form), (b, b_form), (d, d_form))
        )
        assert left.dtype == right.dtype == out.dtype and how["compute"] in _COMPUTES[left.dtype]
        vector, beside = machine.array_at(how[8], out.shape[0], out.dtype)
        _, scratch = machine.array_at(workspace, size, np.dtype("u1"))
        right = right.T if how[4] else right
        gradient, bits = how[7] == 256, _ROUNDS[how["compute"]]

        def multiply():
            factors = [rounded(matrix.astype("f4"), bits) for matrix in (left, right)]
            total = factors[0] @ factors[1]
            if gradient:
                vector[...] = factors[0].sum(axis=1)
            else:
                total += vector[:, None]
            out[...] = np.maximum(total, 0) if how[7] == 6 else total

        reads, writes = [one, two], [made, scratch]
        (writes if gradient else reads).append(beside)
        machine.perform(f"matmul with {_KINDS[how[7]]}", reads, writes, multiply)

    def _matrix(self, address, form):
        (rows, columns), leading = form["shape"], form["leading"]
        kind = np.dtype(_TYPES[form["type"]])
        size, step = (columns - 1) * leading + rows, kind.itemsize
        flat, memory = self.machine.array_at(address, size, kind)
        return np.lib.stride_tricks.as_strided(
            flat, (rows, columns), (step, step * leading)
        ), memory


def _alignment(address):
    return min(address & -address, 256)


def _fit(how, a, b, d):
    """Whether the shapes are those of a product."""
    (rows, depth), right = a["shape"], b["shape"][:: -1 if how[4] else 1]
    assert not how[3]
    return right[0] == depth and d["shape"] == (rows, right[1])
