"""Callbacks that write to TensorBoard and MLflow."""

from __future__ import annotations

import time
from typing import Any

from dpexec.sklearn.callbacks import Callback, Record

__all__ = ["MLflow", "TensorBoard"]


class TensorBoard(Callback):
    """Writes the metrics of each epoch and the graph of the net to a TensorBoard log directory.

    Needs ``pip install tensorboard``.

    Args:
        log_dir: directory of the run; TensorBoard shows one run per directory.
        graph: also write the training program, an operator per node.

    Raises:
        ImportError: tensorboard is not installed.

    Example:
        >>> from dpexec.sklearn import Regressor, TensorBoard
        >>> Regressor(callbacks=[TensorBoard("runs/first")]).fit(x, y)  # doctest: +SKIP
    """

    def __init__(self, log_dir: str, graph: bool = True) -> None:
        self.log_dir, self.graph = log_dir, graph
        _tensorboard()

    def on_fit_begin(self, estimator: Any) -> None:
        """Open an event file, and write the graph."""
        self._writer = _tensorboard()(self.log_dir)
        if self.graph:
            from tensorboard.compat.proto.event_pb2 import Event

            graph = _graph_of(estimator.graph).SerializeToString()
            self._writer.add_event(Event(wall_time=time.time(), graph_def=graph))

    def on_epoch_end(self, estimator: Any, record: Record) -> None:
        """Write the metrics of an epoch; its number is TensorBoard's step."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=k, simple_value=v) for k, v in _metrics(record).items()]
        event = Event(wall_time=time.time(), step=record["epoch"], summary=Summary(value=values))
        self._writer.add_event(event)
        self._writer.flush()

    def on_fit_end(self, estimator: Any) -> None:
        """Close the event file."""
        self._writer.close()
        del self._writer


def _tensorboard() -> Any:
    try:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise ImportError("TensorBoard needs tensorboard: pip install tensorboard") from error
    return EventFileWriter


def _graph_of(program: Any) -> Any:
    """The operators of a program's first block as TensorBoard's graph.

    An operator reads from the last operator that wrote a variable; variables that no operator
    wrote before, such as inputs and parameters, are nodes of their own.
    """
    from tensorboard.compat.proto.graph_pb2 import GraphDef
    from tensorboard.compat.proto.node_def_pb2 import NodeDef

    nodes: list[Any] = []
    writer: dict[str, str] = {}
    for number, op in enumerate(program.global_block().ops):
        reads = dict.fromkeys(op.input_arg_names)
        for name in reads.keys() - writer.keys():
            writer[name] = f"variables/{_plain(name)}"
            nodes.append(NodeDef(name=writer[name], op="Variable"))
        title = f"{number:04}_{op.type}"
        sources = dict.fromkeys(writer[name] for name in reads)
        nodes.append(NodeDef(name=title, op=op.type, input=sources))
        writer |= dict.fromkeys(op.output_arg_names, title)
    return GraphDef(node=nodes)


def _plain(name: str) -> str:
    """A variable's name in TensorBoard's alphabet, where ``@`` does not occur."""
    return "".join(letter if letter.isalnum() or letter in "_./-" else "_" for letter in name)


class MLflow(Callback):
    """Logs the estimator's parameters and the metrics of each epoch to MLflow's active run.

    If no run is active, a fit starts one and ends it. Needs ``pip install mlflow``.

    Raises:
        ImportError: mlflow is not installed.

    Example:
        >>> import mlflow  # doctest: +SKIP
        >>> from dpexec.sklearn import MLflow, Regressor
        >>> with mlflow.start_run():  # doctest: +SKIP
        ...     Regressor(callbacks=[MLflow()]).fit(x, y)
    """

    def __init__(self) -> None:
        _mlflow()

    def on_fit_begin(self, estimator: Any) -> None:
        """Start a run if none is active; log parameters that are numbers or texts."""
        mlflow = _mlflow()
        self._started = mlflow.active_run() is None
        if self._started:
            mlflow.start_run()
        given = estimator.get_params(deep=False)
        mlflow.log_params({k: v for k, v in given.items() if isinstance(v, str | int | float)})

    def on_epoch_end(self, estimator: Any, record: Record) -> None:
        """Log the metrics of an epoch; its number is MLflow's step."""
        _mlflow().log_metrics(_metrics(record), step=record["epoch"])

    def on_fit_end(self, estimator: Any) -> None:
        """End the run if this callback started it."""
        if self._started:
            _mlflow().end_run()


def _mlflow() -> Any:
    try:
        import mlflow
    except ImportError as error:
        raise ImportError("MLflow needs mlflow: pip install mlflow") from error
    return mlflow


def _metrics(record: Record) -> dict[str, float]:
    return {name: float(value) for name, value in record.items() if name != "epoch"}
