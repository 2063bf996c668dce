"""Batches that a loader has read ahead are sent to workers during the step before."""

import _thread
import pickle
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.cluster.gang_messages import Batch, Order
from tests.distributed.faults import die
from tests.distributed.traffic import Repeat, what_members_are_told
from tests.engine.run.nets import (
    batches,
    classifier,
    persistables,
    sequence_batches,
    sequences,
    strategies,
)
from tests.waiting import until

STEPS, DEVICES = 6, 2
DENSE = batches(STEPS * DEVICES, rows=6)


@dataclass
class Loop:
    """A program that is trained with what a loader gives.

    Args:
        step: makes a step with a feed, and returns the loss.
        loader: gives batches.
        read: whether it has read all of them.
        net: the program.
        scope: of the variables.
        exe: runs the compiled program.
    """

    step: Any
    loader: Any
    read: threading.Event
    net: Any
    scope: Any
    exe: Any
    compiled: Any


def prepared(scheduler, net=None, given=DENSE, iterable=True, devices=DEVICES, **options):
    """A program, and a loader that has batches for it; ``return_list`` is an option of that."""
    net, scope, exe = net or classifier(), fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup, scope=scope)
    read = threading.Event()

    def generate():
        for feed in given:
            yield [feed["x"], feed["y"]]
        read.set()

    how = {name: options.pop(name) for name in ("return_list",) if name in options}
    with fluid.program_guard(net.main):
        found = [net.main.global_block().var(name) for name in ("x", "y")]
        loader = fluid.io.DataLoader.from_generator(found, 2 * len(given), iterable=iterable, **how)
    loader.set_batch_generator(generate, fluid.cpu_places(devices) if iterable else None)
    build, execution = strategies(scheduler=scheduler, collectives="gang", **options)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=fluid.cpu_places(DEVICES)
    )

    def step(feed):
        assert read.wait(30)
        (loss,) = exe.run(compiled, feed, [net.loss], scope=scope)
        return loss.tolist()

    return Loop(step, loader, read, net, scope, exe, compiled)


def ended(loop, losses):
    """What training left behind."""
    state = persistables(loop.net.main, loop.scope)
    loop.exe.close()
    return losses, {name: value.tobytes() for name, value in state.items()}


# ---- loops as programs write them


def with_dicts(scheduler, **options):
    loop = prepared(scheduler, **options)
    return ended(loop, [loop.step(feed) for feed in loop.loader()])


def with_lists(scheduler):
    loop = prepared(scheduler, return_list=True)
    lists = ([{"x": x, "y": y} for x, y in found] for found in loop.loader())
    return ended(loop, [loop.step(feed) for feed in lists])


def with_one_dict(scheduler):
    loop = prepared(scheduler, devices=1)
    return ended(loop, [loop.step({"y": feed["y"], "x": feed["x"]}) for (feed,) in loop.loader()])


def with_sequences(scheduler):
    return with_dicts(scheduler, net=sequences(), given=sequence_batches(range(20, 32)))


def epoch(loop, feed=None):
    """The losses of an epoch of a loader that is started."""
    losses = []
    try:
        while True:
            losses.append(loop.step(feed))
    except fluid.core.EOFException:
        return losses


def started(scheduler, **options):
    loop = prepared(scheduler, iterable=False, **options)
    losses = []
    for _ in range(2):
        loop.read.clear()
        loop.loader.start()
        losses += epoch(loop)
        loop.loader.reset()
    return ended(loop, losses)


def with_several_steps(scheduler):
    return started(scheduler, num_iteration_per_run=2)


def with_two_loaders(scheduler):
    """In turn, as adversarial nets take samples and noise."""
    loop = prepared(scheduler)
    other = prepared(scheduler, given=batches(STEPS * DEVICES, rows=4))
    losses = []
    for feeds in zip(loop.loader(), other.loader(), strict=True):
        losses += [loop.step(feed) for feed in feeds]
    other.exe.close()
    return ended(loop, losses)


@pytest.fixture(scope="module")
def expected():
    """What threads make of a loop."""
    known = {}

    def find(loop):
        if loop not in known:
            known[loop] = loop("threads")
        return known[loop]

    return find


@pytest.fixture
def told(monkeypatch):
    """What went to members; of steps like those before, the batches that these name."""
    return what_members_are_told(monkeypatch)


def steps_of(told):
    """How many steps came with their values, and without."""
    orders = [order for order in told if isinstance(order, Order)]
    found = [batch for order in orders for alike in order.steps for batch in alike.values]
    found += [each.batch or None for each in told if isinstance(each, Repeat)]
    return Counter("ahead" if isinstance(batch, int) else "late" for batch in found)


@pytest.mark.parametrize(
    ("loop", "late"),
    [
        (with_dicts, 1),
        (with_lists, 1),
        (with_one_dict, 1),
        (with_sequences, 1),
        (started, 2),
        (with_several_steps, 4),
        (with_two_loaders, 2),
    ],
)
def test_batches_go_ahead_with_the_same_bits(pair, told, expected, loop, late):
    """All but the first ones, which nobody knew before."""
    assert loop(pair) == expected(loop)
    found = steps_of(told)
    assert found["late"] == late * DEVICES
    assert found["ahead"] > 0
    assert sum(isinstance(each, Batch) for each in told) == found["ahead"]
    repeated = [each for each in told if isinstance(each, Repeat)]
    assert bool(repeated) == (loop is not with_several_steps)


def test_data_sets_of_files_go_ahead(pair, told, tmp_path, monkeypatch):
    path = tmp_path / "lines"
    lines = [
        f"8 {' '.join(map(str, x))} 1 {y[0]}"
        for f in DENSE
        for x, y in zip(f["x"], f["y"], strict=True)
    ]
    path.write_text("\n".join(lines))
    found = []
    for scheduler in "threads", pair:
        loop = prepared(scheduler)
        dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
        dataset.set_use_var([loop.net.main.global_block().var(name) for name in ("x", "y")])
        dataset.set_batch_size(12)
        dataset.set_filelist([str(path)])
        dataset.set_thread(1)
        loop.exe.train_from_dataset(loop.compiled, dataset, scope=loop.scope)
        found.append(ended(loop, []))
    assert found[0] == found[1]
    assert steps_of(told)["ahead"] >= 2  # as far as the file was read in time


def test_members_forget_batches_that_nobody_is_fed(pair, told):
    """Some were sent ahead of steps that never came."""
    loop = prepared(pair)
    for number, feed in enumerate(loop.loader()):
        loop.step(feed)
        if number == 2:
            break
    losses = [loop.step(feed) for feed in loop.loader()]

    def kept():
        from dpexec.engine.cluster.worker import gang

        return [len(seat.batches) for seat in gang._seats.values()]

    assert all(max(found) <= 2 for found in pair.run(kept).values())
    assert len(losses) == STEPS
    over = {number for order in told if isinstance(order, Order | Repeat) for number in order.over}
    sent = {batch.number for batch in told if isinstance(batch, Batch)}
    assert len(sent - over) <= 1
    loop.exe.close()


def test_a_batch_that_was_changed_is_sent_again(pair):
    """Whatever way it was changed; who sees a tensor may write to its memory."""

    def change(number, tensor):
        if number == 1:
            tensor.set(np.array(tensor) * 2, fluid.CPUPlace())
        elif number == 2:
            tensor.numpy()[:] *= 2
        elif number == 3:
            tensor._set_float_element(3, 0.5)

    found = []
    for scheduler in "threads", pair:
        loop, losses = prepared(scheduler), []
        for number, feed in enumerate(loop.loader()):
            change(number, feed[1]["x"])
            losses.append(loop.step(feed))
        found.append(ended(loop, losses))
    assert found[0] == found[1]


@pytest.mark.parametrize("net", [classifier, sequences], ids=["dense", "sequences"])
def test_a_wrong_batch_fails_in_its_own_run(pair, net):
    given = DENSE if net is classifier else sequence_batches(range(20, 32))
    wrong = {"x": np.zeros((6, 5), "float32"), "y": given[0]["y"]}
    given = [*given[:5], wrong, *given[6:]]
    found = []
    for scheduler in "threads", pair:
        loop = prepared(scheduler, net(), given, iterable=False)
        loop.loader.start()
        losses = [loop.step(None) for _ in range(2)]
        with pytest.raises((ValueError, fluid.core.EnforceNotMet)) as failed:
            loop.step(None)
        losses += epoch(loop)
        found.append((str(failed.value), ended(loop, losses)))
    assert found[0] == found[1]


@pytest.mark.parametrize("call", [2, 3])
def test_a_worker_is_killed_while_a_batch_is_ahead(mortals, expected, call):
    address = mortals.addresses()[1]
    die(mortals, address, "dpexec.engine.cluster.worker.gang_step:GangSteps.make", call)
    assert started(mortals.client) == expected(started)
    assert address not in mortals.addresses()


def test_an_operator_fails_while_a_batch_is_ahead(pair):
    """What lies on members is gone with the gang; the batch itself is not."""

    def fail(array):
        if array[0, 0] == DENSE[4]["x"][0, 0]:
            raise ZeroDivisionError("wrong on purpose")
        return array

    found = []
    for scheduler in "threads", pair:
        main, startup = fluid.Program(), fluid.Program()
        net = classifier()
        with fluid.program_guard(net.main, net.startup):
            out = net.main.current_block().create_var(name="seen", shape=[-1, 8], dtype="float32")
            fluid.layers.py_func(fail, net.main.global_block().var("x"), out)
        loop = prepared(scheduler, net, iterable=False)
        loop.loader.start()
        losses = [loop.step(None) for _ in range(2)]
        with pytest.raises(Exception, match="wrong on purpose"):
            loop.step(None)
        found.append(ended(loop, losses + epoch(loop)))
        del main, startup
    assert found[0] == found[1]


def test_an_interrupt_loses_no_batch(pair):
    """Steps that were made count, and the next one takes the batch behind theirs."""
    loop = prepared(pair, given=DENSE * 40, iterable=False)
    loop.loader.start()
    loop.step(None)

    def interrupt():
        while loop.scope.run_count(loop.net.main) < 10:
            time.sleep(1e-3)
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        epoch(loop)
    steps, left = loop.scope.run_count(loop.net.main), loop.loader.queue.size()
    assert steps * DEVICES + left in (len(DENSE) * 40, len(DENSE) * 40 - DEVICES)
    state = {n: v.tobytes() for n, v in persistables(loop.net.main, loop.scope).items()}
    loop.exe.close()
    other = prepared("threads", given=DENSE * 40, iterable=False)
    other.loader.start()
    for _ in range(steps):
        other.step(None)
    assert ended(other, [])[1] == state


def test_large_batches_travel_while_a_step_is_made(pair, tmp_path):
    """The step ends when the batch has come that is much more than sockets keep."""
    path = tmp_path / "sent"
    path.write_text("")
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()

    def hold(array):
        end = time.monotonic() + 20
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.01)
        return np.full((1, 1), path.exists(), "float32")

    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 1 << 20], "float32")
        seen = main.current_block().create_var(name="seen", shape=[1, 1], dtype="float32")
        fluid.layers.py_func(hold, x, seen)
        loader = fluid.io.DataLoader.from_generator([x], 8)
    read = threading.Event()

    def generate():
        for _ in range(8):
            yield [np.ones((2, 1 << 20), "float32")]
        read.set()

    loader.set_batch_generator(generate, fluid.cpu_places(2))
    build, execution = strategies(scheduler=pair, collectives="gang")
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        None, build, execution, places=fluid.cpu_places(2)
    )
    exe, found = fluid.Executor(fluid.CPUPlace()), []
    for step, feed in enumerate(loader()):
        assert read.wait(30)
        if step == 2:
            path.unlink()
        (value,) = exe.run(compiled, feed, [seen], scope=scope, return_numpy=False)
        if step == 2:
            lines = compiled._engine._cluster._runner._open

            def sent(lines=lines):
                for line in lines:
                    line.move()
                return not any(line.is_sending for line in lines)

            until(sent, 15)
            path.write_text("")
        found.append(np.array(value).tolist())
    assert found == [[[1.0], [1.0]]] * 4
    exe.close()


def test_copies_of_tensors_are_plain():
    loader = prepared("threads").loader
    for feed in loader():
        copy = pickle.loads(pickle.dumps(feed[0]["x"]))
        assert np.array_equal(np.array(copy), np.array(feed[0]["x"]))
        assert copy.origin is None
        break
