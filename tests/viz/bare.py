"""Views with almost no content: one or none of everything."""

__all__ = ["views"]


def views():
    """One of every type."""
    return [_Bare(data) for data in _data()]


class _Bare:
    svg = "<svg/>"

    def __init__(self, data):
        self.title = data["type"]
        self.data = {"title": self.title, "notes": [], **data}

    def payload(self):
        return self.data


def _data():
    node = {
        "id": 7, "name": "relu", "kind": "compute", "device": 0, "role": "forward", "scope": "/",
        "layer": "", "line": None, "inputs": [], "outputs": [], "task": None,
    }  # fmt: skip
    columns = ("track", "depth", "start", "duration", "name", "role", "node", "step")
    slices = {name: [0] for name in columns} | {"node": [None]}
    graph = {"title": "", "mode": "all_reduce", "devices": [], "vars": [], "nodes": [node]}
    peak = {"time": 0, "bytes": 0, "parts": []}
    stage = {"name": "program", "note": "", "nodes": [], "links": []}
    stage |= {"added": [], "removed": [], "changed": []}
    axis = {"label": "devices", "unit": "count"}
    return [
        {"type": "graph", "graph": graph, "groups": [], "twins": [None], "fold_replicas": True},
        {
            "type": "timeline", "span": [0, 0], "names": ["relu"], "roles": ["forward"],
            "tracks": [{"name": "thread 0", "group": "device 0", "device": 0}],
            "slices": slices, "typical": 0, "flows": [], "critical": [], "counters": [],
        },
        {"type": "table", "columns": [{"label": "name", "unit": "text"}], "rows": []},
        {
            "type": "memory",
            "view": [0, 1], "looks": {"feed": "feed"},
            "devices": [{"name": "device 0", "times": [0], "kinds": {"feed": [0]}, "peak": peak}],
        },
        {"type": "passes", "nodes": [], "stages": [stage]},
        {
            "type": "compare", "causes": [], "rows": [], "unmatched": [[], []],
            "sides": [{"name": "a", "step": 0}, {"name": "b", "step": 0}],
        },
        {"type": "chart", "x": axis, "y": axis, "series": [{"name": "a", "x": [1], "y": [0]}]},
        {"type": "text", "sections": []},
        {"type": "stack", "views": []},
        {"type": "run", "views": []},
    ]  # fmt: skip
