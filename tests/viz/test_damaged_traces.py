"""Trace files with values that no run has: one sentence, and no traceback."""

import json

import pytest

from dpexec import viz
from tests.viz.traces import event, trace, two_replicas

DAMAGES = {
    "processors": lambda data: data["meta"].update(processors=[[0.0, 1.0]]),
    "passes": lambda data: data["graph"].update(passes=[{"name": "fuse"}]),
    "NaN": lambda data: data["meta"].update(cpus=float("nan")),
    "event 0": lambda data: data["events"]["columns"].update(step=[-1]),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_trace_is_told_in_a_sentence(what, tmp_path):
    data = trace([event("mul", "op", 0, "a", 0, 1)], two_replicas()).to_json()
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(data))
    viz.analyse(path)
    DAMAGES[what](data)
    path.write_text(json.dumps(data))
    with pytest.raises(viz.FileError, match=what):
        viz.report(path)
