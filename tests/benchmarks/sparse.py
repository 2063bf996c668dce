"""``python -m tests.benchmarks.sparse``: what a sparse embedding saves between workers.

Workload W4, a language model whose table of 100,000 words takes 12.8 MB, trains on two workers
that exchange gradients through sockets, as if they were two hosts: once with ``is_sparse``, where
only the rows of words in the batch travel, each once, and once without. Both give the same losses
up to rounding.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from distributed import Client

import dpexec as fluid
from tests.benchmarks.gangs import use_sockets
from tests.benchmarks.peers.workloads import WORKLOADS

_SPEC: Any = WORKLOADS["W4"]
_STEPS = 10  # per run


class Variant:
    """W4 on the workers of a cluster.

    Args:
        client: of the cluster.
        is_sparse: whether the gradient of the table is.
        trace: whether to record, which takes time.
    """

    def __init__(self, client: Any, is_sparse: bool, trace: bool = False) -> None:
        self._scope, self._exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        main, startup, self._loss = _program(is_sparse)
        with fluid.scope_guard(self._scope):
            self._exe.run(startup)
        execution = fluid.ExecutionStrategy()
        execution.scheduler, execution.collectives = client, "gang"
        execution.num_iteration_per_run, execution.trace = _STEPS, trace
        self._program = fluid.CompiledProgram(main).with_data_parallel(
            self._loss.name, exec_strategy=execution, places=fluid.cpu_places(2)
        )
        rng, shape = np.random.default_rng(0), (_SPEC["batch"], _SPEC["context"])
        words = np.minimum(rng.zipf(1.3, shape), _SPEC["words"]) - 1
        following = rng.integers(0, _SPEC["classes"], (_SPEC["batch"], 1))
        self._feed = {"words": words, "next": following}
        self.loss = self._run()

    def _run(self) -> float:
        with fluid.scope_guard(self._scope):
            (loss,) = self._exe.run(self._program, self._feed, [self._loss])
        return float(np.mean(loss))

    def milliseconds(self, seconds: float) -> float:
        """What a step takes, in the fastest of several runs."""
        best, until = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            self._run()
            best = min(best, (time.perf_counter() - began) * 1e3 / _STEPS)
        return best

    @property
    def bytes_per_step(self) -> float:
        """What goes through the sockets between both workers, if it was traced."""
        trace = self._program.trace
        moved = (e.args.get("sent", 0) + e.args.get("received", 0) for e in trace)
        return sum(moved) / len(trace.steps)

    def close(self) -> None:
        """Free what the workers hold."""
        self._exe.close()


def _program(is_sparse: bool) -> tuple[Any, Any, Any]:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        words = fluid.data("words", [None, _SPEC["context"]], "int64")
        following = fluid.data("next", [None, 1], "int64")
        rows = fluid.embedding(words, [_SPEC["words"], _SPEC["width"]], is_sparse=is_sparse)
        hidden = fluid.layers.reshape(rows, [-1, _SPEC["context"] * _SPEC["width"]])
        hidden = fluid.layers.fc(hidden, _SPEC["hidden"], act="sigmoid")
        scores = fluid.layers.fc(hidden, _SPEC["classes"])
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, following))
        fluid.optimizer.SGD(_SPEC["rate"]).minimize(loss)
    return main, startup, loss


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="per variant")
    options = parser.parse_args()
    moved: dict[bool, float] = {}
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        client.run(use_sockets)
        for is_sparse in (True, False):
            traced = Variant(client, is_sparse, trace=True)
            moved[is_sparse] = traced.bytes_per_step
            traced.close()
            variant = Variant(client, is_sparse)
            print(
                f"{'sparse' if is_sparse else 'dense':>8} {moved[is_sparse] / 1e6:10.3f} MB/step "
                f"{variant.milliseconds(options.seconds):10.2f} ms/step   loss {variant.loss:.6f}",
                flush=True,
            )
            variant.close()
    print(f"dense gradients move {moved[False] / moved[True]:.1f} times as many bytes")


if __name__ == "__main__":
    main()
