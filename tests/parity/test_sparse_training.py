"""Sparse gradients: optimizers that support them, and clear errors of the others.

Recorded by tests/fixtures/record_sparse.py. Where dpexec deviates on purpose:

- The original's sparse Adam corrects its means as if it were a step further; dpexec's does not, and
  gives the recorded numbers when the powers of its betas start a step further.
- The original moves the row of ``padding_idx``, which nothing reads, when gradients are sparse (and
  not when they are dense); dpexec leaves it.
"""

from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.fixtures import sparse_training

RECORDED = Path(__file__).parents[1] / "fixtures" / "sparse.npz"
BETAS = {"beta1_pow_acc_0": 0.9, "beta2_pow_acc_0": 0.999}


def recorded(name, padding):
    prefix = f"{name}/{padding}/"
    with np.load(RECORDED) as arrays:
        return {k.removeprefix(prefix): arrays[k] for k in arrays.files if k.startswith(prefix)}


def a_step_further(scope):
    """What makes a correct Adam compute what the original computes for the table."""
    for name, beta in BETAS.items():
        power = scope.find_var(f"{sparse_training.TABLE}_{name}").get_tensor()
        power.set(np.array([beta * beta], "float32"), fluid.CPUPlace())


@pytest.mark.parametrize(
    ("devices", "mode"),
    [(1, "AllReduce"), (2, "AllReduce"), (2, "Reduce"), (4, "AllReduce"), (4, "Reduce")],
)
@pytest.mark.parametrize(("name", "padding"), sparse_training.CASES)
def test_training_gives_recorded_losses_and_state(name, padding, devices, mode):
    make = sparse_training.OPTIMIZERS[name]
    sparse_adam = name.startswith("adam") and name not in ("adam_l1", "adam_l2")
    prepare = a_step_further if sparse_adam else None
    losses, state = sparse_training.train(fluid, make, padding, devices, mode, prepare)
    expected = recorded(name, padding)
    np.testing.assert_allclose(losses, expected.pop(f"loss/{devices}"), rtol=1e-5)
    for variable, value in state.items():
        wanted = expected[f"state/{variable}"]
        if padding is not None and len(value) == sparse_training.ROWS:
            value, wanted = (np.delete(rows, padding, axis=0) for rows in (value, wanted))
        if not (sparse_adam and variable.removeprefix(sparse_training.TABLE + "_") in BETAS):
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=2e-6, err_msg=variable)


@pytest.mark.parametrize("mode", ["AllReduce", "Reduce"])
@pytest.mark.parametrize("padding", [0, -2])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam_lazy"])
def test_row_of_the_padding_never_moves(name, padding, mode):
    seen = []

    def keep(scope):
        seen.append(np.array(scope.find_var(sparse_training.TABLE).get_tensor())[padding])

    make = sparse_training.OPTIMIZERS[name]
    _, state = sparse_training.train(fluid, make, padding, 2, mode, keep)
    np.testing.assert_array_equal(state[sparse_training.TABLE][padding], seen[0])


@pytest.mark.parametrize("mode", ["AllReduce", "Reduce"])
@pytest.mark.parametrize("lazy", [False, True])
def test_sparse_adam_is_dense_adam(lazy, mode):
    """Lazy or not where every row is touched; the original's sparse branch is a step ahead."""

    def train(is_sparse):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            words = fluid.data("words", [None], "int64")
            table = fluid.embedding(words, [4, 3], is_sparse=is_sparse, param_attr="table")
            loss = fluid.layers.mean(fluid.layers.square(table))
            fluid.optimizer.Adam(0.1, lazy_mode=lazy and is_sparse).minimize(loss)
        strategy, scope = fluid.BuildStrategy(), fluid.Scope()
        strategy.reduce_strategy = getattr(fluid.BuildStrategy.ReduceStrategy, mode)
        with fluid.scope_guard(scope):
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(startup)
            tensor = scope.find_var("table").get_tensor()
            tensor.set(np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3), fluid.CPUPlace())
            compiled = fluid.CompiledProgram(main).with_data_parallel(
                loss.name, strategy, places=[fluid.CPUPlace()] * 2
            )
            for _ in range(5):
                executor.run(compiled, {"words": np.array([0, 1, 1, 2, 3, 0])}, [loss])
            return np.array(tensor)

    np.testing.assert_allclose(train(True), train(False), rtol=1e-5)


@pytest.mark.parametrize("name", sparse_training.REFUSED)
def test_optimizer_without_sparse_kernel_is_refused_when_built(name):
    """The original says the same when it runs."""
    message = rf"operator {name}: input Grad must be a LoDTensor(.|\n)*Grad\(table@GRAD\)"
    with pytest.raises(fluid.core.EnforceNotMet, match=message):
        sparse_training.build(fluid, sparse_training.REFUSED[name])
