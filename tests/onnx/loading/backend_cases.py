"""The node tests of the ``onnx`` package: ``python -m tests.onnx.loading.backend_cases``.

Runs them as programs. Prints how many give the expected results, and why others cannot be loaded.
"""

import sys
import warnings
from collections import defaultdict

import numpy as np
import onnx

import dpexec as fluid
from dpexec.onnx import NotConstantError, UnsupportedError, load

BFLOAT = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
DIFFERENT = {
    "test_training_dropout_default": "other random numbers",
    "test_training_dropout_default_mask": "other random numbers",
    "test_training_dropout": "other random numbers",
    "test_training_dropout_mask": "other random numbers",
    **{
        f"test_bernoulli{kind}": "other random numbers"
        for kind in ("", "_expanded", "_double", "_double_expanded", "_seed", "_seed_expanded")
    },
    "test_reduce_max_empty_set_bool": "the largest of no booleans is an integer's least",
}
"""Cases that load and give something else, with the reason."""

REASONS = {
    "element type": "element types that fluid does not have",
    "has no kernel": "element types for which fluid's operator has no kernel",
    "no such operator": "operators without a mapping",
    "programs do not have": "operators without a mapping",
    "is no tensor": "inputs that are no tensors",
    "version": "versions of operators before 7",
}


def cases():
    """All node tests."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the numbers that the package computes
        return sorted(collect_testcases(None), key=lambda case: case.name)


def arrays(values):
    """Test data as arrays; some are stored as tensors of the format."""
    tensors = (onnx.TensorProto,)
    return [onnx.numpy_helper.to_array(v) if isinstance(v, tensors) else v for v in values]


def single(array):
    """Numbers in single precision if they are in the half of it that NumPy lacks."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype == BFLOAT else array


def loaded(model, names, inputs):
    """The program; inputs that must be known are given their numbers when it is loaded."""
    constants = {}
    while True:
        try:
            return load(model, constants=constants), bool(constants)
        except NotConstantError as error:
            if error.name not in names or error.name in constants:
                raise
            constants[error.name] = inputs[names.index(error.name)]


def mismatch(case, made, wanted):
    """What is wrong with a result; None if nothing is."""
    wanted, brief = single(wanted), np.asarray(wanted).dtype == BFLOAT
    made = made.reshape(()) if wanted.ndim == 0 and made.size == 1 else made
    if (made.shape, made.dtype) != (wanted.shape, wanted.dtype):
        return f"{made.dtype}{made.shape} instead of {wanted.dtype}{wanted.shape}"
    half = wanted.dtype == np.float16  # its last place is 1e-3
    tolerance = {"rtol": 3e-3 if half else case.rtol, "atol": max(case.atol, 1e-5)}
    if brief:  # its last place is 1e-2, and programs do not round to it
        tolerance = {"rtol": 2e-2, "atol": 2e-2}
    if wanted.dtype.kind == "f":
        return None if np.allclose(made, wanted, **tolerance, equal_nan=True) else "other numbers"
    return None if np.array_equal(made, wanted) else "other numbers"


def outcome(case, executor):
    """How a case ends: passed, passed with known inputs, unsupported or wrong; and why."""
    inputs, outputs = map(arrays, case.data_sets[0])
    inputs = [single(i) if isinstance(i, np.ndarray) else i for i in inputs]
    names = [info.name for info in case.model.graph.input]
    with fluid.scope_guard(fluid.Scope()):
        try:
            (program, feeds, fetches), known = loaded(case.model, names, inputs)
        except UnsupportedError as error:
            return "unsupported", str(error)
        given = dict(zip(names, inputs, strict=True))
        feed = {name: np.asarray(given[name]).reshape(np.shape(given[name]) or 1) for name in feeds}
        try:
            made = executor.run(program, feed=feed, fetch_list=fetches)
        except fluid.core.EnforceNotMet as error:
            return "wrong", str(error).strip().splitlines()[0]
    found = (mismatch(case, m, w) for m, w in zip(made, outputs, strict=True))
    problem = next((problem for problem in found if problem), None)
    if problem:
        return "wrong", problem
    return "passed, inputs known when loaded" if known else "passed", ""


def outcomes(chosen):
    """Names of cases and reasons, by how they end."""
    found = defaultdict(dict)
    executor = fluid.Executor(fluid.CPUPlace())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # logarithms of 0 are wanted
        for case in chosen:
            how, why = outcome(case, executor)
            found[how][case.name] = why
    return found


def main():
    """Print counts."""
    found = outcomes(cases())
    for how, names in sorted(found.items()):
        print(f"{len(names):5} {how}")
    reasons = defaultdict(int)
    for why in found["unsupported"].values():
        known = (text for key, text in REASONS.items() if key in why)
        reasons[next(known, "settings of operators, sizes that only a run tells")] += 1
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        print(f"      {count:5} {reason}")
    for name, why in found["wrong"].items():
        print(f"      {name}: {DIFFERENT.get(name, 'NOT EXPECTED: ' + why)}")


if __name__ == "__main__":
    sys.exit(main())
