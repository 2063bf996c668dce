"""The output of callbacks for TensorBoard and MLflow."""

import sys

import pytest
from sklearn.datasets import make_regression

from dpexec.sklearn import MLflow, Regressor, TensorBoard


def fit(*callbacks, epochs=2):
    X, y = make_regression(100, 3, random_state=0)
    estimator = Regressor(
        epochs=epochs, random_state=0, callbacks=callbacks, validation_fraction=0.2
    )
    return estimator.fit(X, y / y.std())


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = fit(TensorBoard(str(tmp_path)))
    written = EventAccumulator(str(tmp_path)).Reload()
    assert sorted(written.Tags()["scalars"]) == ["loss", "seconds", "valid_loss", "valid_score"]
    losses = written.Scalars("valid_loss")
    assert [event.step for event in losses] == [0, 1]
    assert [event.value for event in losses] == pytest.approx(list(found.history.valid_loss))
    nodes = {node.name: node for node in written.Graph().node}
    types = [op.type for op in found.graph.global_block().ops]
    assert [node.op for node in nodes.values() if node.op != "Variable"] == types
    assert all(source in nodes for node in nodes.values() for source in node.input)


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("nets")
    found = fit(MLflow())
    assert mlflow.active_run() is None
    (run,) = mlflow.search_runs(experiment_names=["nets"], output_format="list")
    assert run.data.metrics["loss"] == pytest.approx(found.history.loss.iloc[-1])
    assert run.data.params["epochs"] == "2"
    with mlflow.start_run() as mine:
        fit(MLflow(), epochs=3)
        assert mlflow.active_run().info.run_id == mine.info.run_id


@pytest.mark.parametrize(
    ("callback", "package"), [(TensorBoard, "tensorboard"), (MLflow, "mlflow")]
)
def test_a_missing_package_is_named(monkeypatch, callback, package):
    for name in [package, "tensorboard.summary.writer.event_file_writer"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        callback("runs") if callback is TensorBoard else callback()
