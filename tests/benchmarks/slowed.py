"""``python -m tests.benchmarks.slowed``: what-if, beside operators that are slower or faster.

Five networks have operators whose work is given: rounds of a loop, in Python, in NumPy or in
machine code. From a recording, the step with twice as many rounds and with half of them is
predicted, and compared with recordings of that. All three run in turns, so that they share the
moments of other load. Printed are medians over the turns: the recorded step, the part that the work
has of its critical path (of a small one every prediction is right), and for both changes the step
that was predicted, the one that was measured, and the error. Then comes the distance of two
recordings without any change (the median over the turns): no prediction can be better than that.
The last figure is the share of its threads' time for which a run had no processor: above a tenth,
errors are those of the machine.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
from dpexec.viz.measured.contention import Contention

import dpexec as fluid
from dpexec import layers, viz
from dpexec.extend import Count, Floats, kernel, lowering, op, same_as

ROWS = 32  # of a device
ROUNDS = {"python": 8000, "numpy": 20, "code": 2000}
"""About half a millisecond of each."""
NAME = "busy_work"
CHANGES = {"slower": 2.0, "faster": 0.5}


@kernel
def wander(n: Count, rounds: Count, x: Floats, out: Floats) -> int:
    """Compute up to 500 numbers again and again."""
    for i in range(n):
        out[i] = x[i]
    for _ in range(rounds):
        for i in range(min(n, 500)):
            out[i] = 0.999 * out[i] + 0.001 * x[i]
    return 0


@op(NAME, inputs="X", outputs="Out", infer=same_as("X"))
def busy_work(xp: Any, x: Any, *, rounds: int = 1, how: str = "code") -> Any:
    """What comes in, after rounds of work."""
    number = 0
    if how == "python":
        for at in range(rounds):
            number += at & 3
    else:
        wide = np.ones((256, 256), np.float32)
        for _ in range(rounds):
            wide = np.sqrt(wide)
    return x + xp.float32(number * 0.0)


@busy_work.grad("Out@GRAD")
def busy_work_grad(xp: Any, d_out: Any) -> Any:
    """The gradient passes; nothing is done again."""
    return d_out


@lowering(NAME)
def lowered(code: Any, x: Any, out: Any, *, rounds: int = 1, how: str = "code") -> Any:
    """Machine code, where it is asked for."""
    if how != "code":
        return False
    return code.emit(wander, x.size, rounds, x, out)


def worked(x: fluid.Variable, work: tuple[str, int]) -> fluid.Variable:
    """The layer of the operator."""
    helper = fluid.layer_helper.LayerHelper(NAME)
    out = helper.create_variable_for_type_inference(x.dtype)
    attrs = dict(zip(("how", "rounds"), work, strict=True))
    helper.append_op(NAME, inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    return out


def perceptron(x: fluid.Variable, work: tuple[str, int]) -> fluid.Variable:
    """The work in the middle of a chain."""
    hidden = layers.fc(x, 256, act="relu")
    return layers.fc(layers.fc(worked(hidden, work), 256, act="relu"), 10)


def convolutions(x: fluid.Variable, work: tuple[str, int]) -> fluid.Variable:
    """The work behind convolutions, which take most of the step."""
    image = layers.reshape(x, [-1, 1, 28, 28])
    for filters in (8, 16):
        image = fluid.nets.simple_img_conv_pool(image, filters, 5, 2, 2, act="relu")
    return layers.fc(worked(image, work), 10)


def branches(x: fluid.Variable, work: tuple[str, int]) -> fluid.Variable:
    """Two branches that both work, one of them twice."""
    one = layers.fc(worked(layers.fc(x, 64, act="tanh"), work), 64)
    two = layers.fc(x, 64, act="relu")
    for _ in range(2):
        two = worked(two, work)
    return layers.fc(layers.concat([one, two], 1), 10)


def experts(x: fluid.Variable, work: tuple[str, int]) -> fluid.Variable:
    """A mixture of four experts; the work is in the gate."""
    gate = layers.softmax(layers.fc(worked(layers.fc(x, 32), work), 4))
    made = [layers.fc(layers.fc(x, 64, act="relu"), 32) for _ in range(4)]
    mixed = layers.reduce_sum(layers.stack(made, 1) * layers.unsqueeze(gate, [2]), 1)
    return layers.fc(mixed, 10)


def recurrent(x: fluid.Variable, work: tuple[str, int]) -> fluid.Variable:
    """A recurrent net of seven steps over parts of the row, with work behind it."""
    parts = [layers.fc(part, 64) for part in layers.split(x, 7, dim=1)]
    state = parts[0]
    for part in parts[1:]:
        state = layers.fc(layers.tanh(state + part), 64)
    return layers.fc(worked(state, work), 10)


NETS = (perceptron, convolutions, branches, experts, recurrent)


class Training:
    """A network that trains, with so much work."""

    def __init__(self, net: Any, work: tuple[str, int], devices: int) -> None:
        main, startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x, y = fluid.data("x", [None, 784]), fluid.data("y", [None, 1], "int64")
            found = layers.softmax_with_cross_entropy(net(x, work), y)
            self.loss = layers.mean(found)
            fluid.optimizer.Momentum(0.001, 0.9).minimize(self.loss)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(startup, scope=self.scope)
        self.main, self.devices = main, devices
        random = np.random.default_rng(1)
        rows = ROWS * devices
        self.feed = {
            "x": random.random((rows, 784), dtype=np.float32),
            "y": random.integers(0, 10, (rows, 1)),
        }

    def record(self, steps: int) -> Any:
        """The analysis of some steps."""
        execution = fluid.ExecutionStrategy()
        execution.trace = True
        program = fluid.CompiledProgram(self.main).with_data_parallel(
            self.loss.name, exec_strategy=execution, places=fluid.cpu_places(self.devices)
        )
        for _ in range(steps):
            self.exe.run(program, feed=self.feed, fetch_list=[self.loss], scope=self.scope)
        return viz.analyse(program)


def compare(net: Any, how: str, devices: int, turns: int, steps: int) -> str:
    """A line of the table."""
    rounds = ROUNDS[how]
    before = Training(net, (how, rounds), devices)
    changed = {
        name: Training(net, (how, int(rounds * times)), devices) for name, times in CHANGES.items()
    }
    rows: dict[str, list[float]] = {}
    for _ in range(turns):
        recorded = before.record(steps)
        whole = recorded.analysis.median
        effect = next(e for e in recorded.analysis.effects if e.by == "type" and e.name == NAME)
        rows.setdefault("step", []).append(whole)
        rows.setdefault("part", []).append(effect.path / whole)
        rows.setdefault("waits", []).append(Contention(recorded.schedule).share)
        for name, training in changed.items():
            rows.setdefault(f"predicted {name}", []).append(
                recorded.what_if(NAME, 1 / CHANGES[name])
            )
            rows.setdefault(name, []).append(training.record(steps).analysis.median)
        again = before.record(steps).analysis.median
        rows.setdefault("again", []).append(abs(again / whole - 1))
    found = {name: statistics.median(values) for name, values in rows.items()}
    text = f"{net.__name__:13}{how:8}{devices:3}{found['step'] * 1e3:9.2f}{found['part']:7.0%}"
    for name in CHANGES:
        predicted, measured = found[f"predicted {name}"], found[name]
        error = predicted / measured - 1
        text += f"{predicted * 1e3:11.2f}{measured * 1e3:9.2f}{error:+8.1%}"
    return f"{text}{found['again']:8.1%}{found['waits']:7.0%}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    known = {net.__name__: net for net in NETS}
    parser.add_argument("nets", nargs="*", default=list(known), help=", ".join(known))
    parser.add_argument("--how", nargs="+", default=list(ROUNDS), choices=list(ROUNDS))
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of a recording")
    options = parser.parse_args()
    print(
        f"{'net':13}{'work':8}{'n':>3}{'ms':>9}{'part':>7}" + f"{'x2':>11}{'real':>9}{'error':>8}"
        f"{'x0.5':>11}{'real':>9}{'error':>8}{'again':>8}{'waits':>7}"
    )
    for name in options.nets:
        for how in options.how:
            for devices in options.devices:
                line = compare(known[name], how, devices, options.turns, options.steps)
                print(line, flush=True)


if __name__ == "__main__":
    main()
