"""The programs behind an estimator: training, prediction, and their variables."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import get_client

import dpexec as fluid
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.unique_name import BUILDING
from dpexec.sklearn.heads import Head
from dpexec.sklearn.inputs import LABEL, SOLE, WEIGHT, InputSpec
from dpexec.viz.report import report

__all__ = ["Network", "NetworkSpec", "three_layers"]

Net = Callable[..., Any]

_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    kind.lower(): getattr(fluid.optimizer, kind)
    for kind in ("Adagrad", "Adam", "Adamax", "RMSProp", "SGD")
}
_OPTIMIZERS["momentum"] = functools.partial(fluid.optimizer.Momentum, momentum=0.9)


def three_layers(x: Any, outputs: int) -> Any:
    """The default net of an estimator: one hidden layer of 100 units with relu."""
    return fluid.layers.fc(fluid.layers.fc(x, 100, act="relu"), outputs)


@dataclass(frozen=True)
class NetworkSpec:
    """The specification of a network.

    Args:
        net: function of the inputs (by name if there are several), and of ``outputs`` if it has
            that argument.
        head: the last layers.
        inputs: inputs of the net.
        outputs: number of outputs per sample.
        optimizer: a name, or a function from ``learning_rate`` to an optimizer.
        learning_rate: the initial learning rate.
        devices: number of replicas.
        scheduler: as in ``ExecutionStrategy``; None takes its default.
        seed: seed of the parameters' initial values and of dropout.
    """

    net: Net
    head: Head
    inputs: Mapping[str, InputSpec]
    outputs: int
    optimizer: str | Callable[..., Any]
    learning_rate: float
    devices: int
    scheduler: Any
    seed: int

    @property
    def fed(self) -> dict[str, InputSpec]:
        """Declarations of everything that a training step is fed."""
        target, weight = self.head.target(self.outputs), InputSpec((1,), "float32")
        return {**self.inputs, LABEL: target, WEIGHT: weight}


class Network:
    """Programs, variables and executor of a net.

    Args:
        spec: the network's specification.

    Raises:
        ValueError: the optimizer is unknown, or the net's result has the wrong width.
    """

    _pickled: Any = None  # program whose variables are pickled; None: the training program

    def __init__(self, spec: NetworkSpec) -> None:
        self.spec = spec
        self.main, startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        self.main.random_seed = startup.random_seed = spec.seed
        with BUILDING, fluid.unique_name.guard(), fluid.program_guard(self.main, startup):
            self._build()
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(startup, scope=self.scope)

    def _build(self) -> None:
        spec = self.spec
        variables = {name: given.variable(name) for name, given in spec.inputs.items()}
        found = _called(spec.net, variables, spec.outputs)
        self._predicted = spec.head.predict(found, spec.outputs)
        self._test = self.main.clone(for_test=True)
        label, weight = (spec.fed[name].variable(name) for name in (LABEL, WEIGHT))
        losses = spec.head.losses(found, label)
        weighted = losses * weight
        self.loss = fluid.layers.mean(weighted)
        self.total = fluid.layers.reduce_sum(weighted)  # sums of devices can be added, means cannot
        self._counted = fluid.layers.reduce_sum(weight)
        self._rate = fluid.layers.create_global_var(
            [1], spec.learning_rate, "float32", persistable=True, name="learning_rate"
        )
        _optimizer(spec.optimizer, self._rate).minimize(self.loss)

    @functools.cached_property
    def program(self) -> Any:
        """The compiled training program; created when needed, since workers only predict."""
        if self.spec.devices == 1 and self.spec.scheduler is None:
            return self.main
        return self._compiled()

    def _compiled(self, trace: bool = False) -> Any:
        """The training program, replicated.

        Args:
            trace: record the steps.
        """
        scheduler, execution = self.spec.scheduler, fluid.ExecutionStrategy()
        execution.scheduler = get_client() if scheduler == "distributed" else scheduler
        execution.trace = trace
        return fluid.CompiledProgram(self.main).with_data_parallel(
            self.loss.name, exec_strategy=execution, places=fluid.cpu_places(self.spec.devices)
        )

    def train(self, feed: Mapping[str, Any]) -> Any:
        """Run a step; returns the sum of its losses, a tensor that may not be computed yet."""
        (total,) = self.exe.run(
            self.program,
            feed=dict(feed),
            fetch_list=[self.total],
            scope=self.scope,
            return_numpy=False,
        )
        return total

    def report(self, feeds: Iterable[Mapping[str, Any]], path: str | None) -> Any:
        """Record steps of a copy of the network, and show all views of them.

        Args:
            feeds: feeds of the steps.
            path: where to write the page; None for nowhere.
        """
        twin = Network(self.spec)
        twin.restore(self.state())
        compiled = twin._compiled(trace=True)
        for feed in feeds:
            twin.exe.run(compiled, feed=dict(feed), fetch_list=[twin.total], scope=twin.scope)
        return report(compiled, path)

    def going_on(
        self, optimizer: str | Callable[..., Any], rate: float, devices: int, scheduler: Any
    ) -> Network:
        """The network with other settings, which goes on with these parameters.

        Args:
            optimizer: another one begins without memory of earlier steps.
            rate: learning rate; that of earlier steps stays if it is the one of the specification.
            devices: number of replicas.
            scheduler: see :class:`NetworkSpec`.
        """
        had = self.spec
        spec = replace(
            had, optimizer=optimizer, learning_rate=rate, devices=devices, scheduler=scheduler
        )
        if optimizer != had.optimizer:
            made = Network(spec)
            made.restore(self.state(self._test))
            return made
        if rate != had.learning_rate:
            self.set_learning_rate(rate)
        if (devices, scheduler) != (had.devices, had.scheduler):
            self.__dict__.pop("program", None)
        self.spec = spec
        return self

    @contextlib.contextmanager
    def restored_on_error(self, kind: type[BaseException]) -> Iterator[None]:
        """Restore variables and settings if steps fail."""
        spec, state = self.spec, self.state()
        try:
            yield
        except kind:
            if spec != self.spec:
                self.__dict__.pop("program", None)
                self.spec = spec
            self.restore(state)
            raise

    def predicting(self) -> Network:
        """The same network to be pickled for predictions, without the optimizer's variables."""
        found = Network.__new__(Network)
        found.__dict__.update(self.__dict__)
        found.__dict__.pop("program", None)
        found.spec = replace(self.spec, devices=1, scheduler=None)
        found._pickled = self._test
        return found

    def train_on(self, collections: Mapping[str, Any], epoch: int, **options: Any) -> float:
        """Run an epoch over Dask collections; returns the mean loss of its last step.

        Args:
            collections: collections by variable name, with equal partitions.
            epoch: number of the epoch.
            options: further arguments of ``Executor.train_from_dask``.
        """
        last = _Last({"total": self.total, "counted": self._counted}, period_secs=0)
        self.exe.train_from_dask(
            self.program,
            dict(collections),
            scope=self.scope,
            epochs=[epoch],
            fetch_handler=last,
            **options,
        )
        return last.loss

    def predict(self, feeds: Iterable[Mapping[str, Any]]) -> np.ndarray[Any, Any]:
        """The net's predictions for batches, concatenated."""
        names = [self._predicted.name]
        found = [
            self.exe.run(self._test, feed=dict(feed), fetch_list=names, scope=self.scope)[0]
            for feed in feeds
        ]
        return np.concatenate(found)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the following steps."""
        self._set(self._rate.name, np.array([rate], np.float32))

    def state(self, program: Any = None) -> dict[str, np.ndarray[Any, Any]]:
        """Copies of a program's persistable variables.

        Args:
            program: None takes the training program, which has the optimizer's variables, too.
        """
        variables = (self.main if program is None else program).list_vars()
        found = ((v.name, self.scope.find_var(v.name)) for v in variables if v.persistable)
        return {name: np.array(var.get_tensor()) for name, var in found if var is not None}

    def restore(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Set variables to the values returned by :meth:`state`."""
        for name, value in state.items():
            self._set(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {"spec": self.spec, "state": self.state(self._pickled)}

    def __setstate__(self, found: dict[str, Any]) -> None:
        self.__init__(found["spec"])  # type: ignore[misc]  # the programs are made anew
        self.restore(found["state"])

    def _set(self, name: str, value: np.ndarray[Any, Any]) -> None:
        self.scope.var(name).get_tensor().set(value, fluid.CPUPlace())


class _Last(fluid.executor.FetchHandler):
    """Keeps the mean loss of the latest step with weights, in the end an epoch's last one."""

    loss = float("nan")

    def handler(self, res_dict: dict[str, np.ndarray[Any, Any]]) -> None:
        if counted := float(res_dict["counted"].sum()):  # else all samples weigh nothing
            self.loss = float(res_dict["total"].sum()) / counted


def _called(net: Net, variables: Mapping[str, Any], outputs: int) -> Any:
    wants = "outputs" in inspect.signature(net).parameters
    more = {"outputs": outputs} if wants else {}
    if list(variables) == [SOLE]:
        found = net(variables[SOLE], **more)
    else:
        found = net(**variables, **more)
    if not isinstance(found, fluid.Variable):
        raise TypeError(f"net must return a Variable, but returned {found!r}")
    return found


def _optimizer(given: str | Callable[..., Any], rate: Any) -> Any:
    if callable(given):
        return given(learning_rate=rate)
    if given not in _OPTIMIZERS:
        known = ", ".join(_OPTIMIZERS)
        raise ValueError(
            f"optimizer must be one of {known}, or a function of learning_rate that returns an "
            f"optimizer, but is {given!r}"
        )
    return _OPTIMIZERS[given](learning_rate=rate)
