"""Threads that divide the work of kernels give the bits of one thread."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.engine.compile.regions.table import CodeTable
from dpexec.engine.kernels import divided, onednn
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.lowering import Code, Constant, Packed
from dpexec.engine.kernels.machine import Count, Integers, kernel
from dpexec.engine.kernels.tables import run
from tests.engine.kernels.test_lowerings import arrays, calls, run_code

pytestmark = pytest.mark.skipif(not onednn.available(), reason="the threads are those of oneDNN")

TYPES = (
    "affine_channel", "concat", "conv2d", "elementwise_add", "elementwise_div",
    "fused_elemwise_activation", "fusion_group", "gelu", "group_norm", "instance_norm",
    "layer_norm", "lookup_table_v2", "norm", "pool2d", "reduce_max", "reduce_mean", "relu",
    "smooth_l1_loss", "softmax", "softmax_with_cross_entropy", "transpose2",
)  # fmt: skip
"""One or more for each way to divide."""


@pytest.fixture
def always(monkeypatch):
    """All work is divided that can be; a list of the kernels."""
    for name in ("LEAST", "WORTH_WAKING", "BLOCK"):
        monkeypatch.setattr(divided, name, 1)
    found, whole = [], divided.divided_among

    def noted(packed, kernel, arguments):
        made = whole(packed, kernel, arguments)
        if made[0] is not kernel:
            found.append(kernel.function.__name__)
        return made

    monkeypatch.setattr(divided, "divided_among", noted)
    return found


@pytest.mark.parametrize("type", TYPES)
def test_any_number_of_threads_gives_the_bits_of_one(type, always):
    for op, before, after in calls(type):
        known = len(always)
        several = run_code([op], before, after, Packed({}, 3))
        if len(always) == known:
            continue
        one = run_code([op], before, after, Packed({}, 1))
        for name in one:
            for mine, theirs in zip(*map(arrays, (one[name], several[name])), strict=True):
                np.testing.assert_array_equal(theirs, mine)
    assert always


@kernel(parts="n:out")
def who(n: Count, out: Integers, number_of: Count) -> int:
    """The number of the thread that works on each element; it refuses to be thread 2."""
    for i in range(n):
        out[i] = divided.in_c(number_of)
    return 1 if divided.in_c(number_of) == 2 else 0


def threads_of(n, packed):
    """Who worked on ``n`` elements, and whether all were taken."""
    out, code = np.full(n, -1), Code(packed=packed)
    code.emit(who, n, Constant(out), onednn.entry_address("omp_get_thread_num"))
    table, memory = CodeTable(code.calls, {}, {}), np.zeros(64, np.int64)
    words = table.words((), [], address(memory), np.zeros(0, np.int64))
    rows = table.rows(address(words))
    taken = run(address(rows), 0, 1) == 1
    return out.tolist(), taken


def test_long_work_is_divided_and_short_work_only_among_threads_that_are_awake(monkeypatch):
    monkeypatch.setattr(divided, "LEAST", 256)
    monkeypatch.setattr(divided, "WORTH_WAKING", 1024)
    packed = Packed({}, 2)
    half = [*[0] * 128, *[1] * 128]
    assert threads_of(256, packed) == ([0] * 256, True)
    assert threads_of(1024, packed) == ([*[0] * 512, *[1] * 512], True)  # wakes the other one
    packed.awake.array[0] = 2**62  # in the far future, however slow this machine is
    assert threads_of(256, packed) == (half, True)
    assert threads_of(255, packed) == ([0] * 255, True)


def test_a_call_fails_if_a_part_does():
    packed = Packed({}, 3)
    packed.awake.array[0] = 2**62
    out, taken = threads_of(6144, packed)
    assert sorted(set(out)) == [0, 1, 2] and not taken
