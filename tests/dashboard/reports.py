"""Reports and boards made by hand."""

from __future__ import annotations

from typing import Any

from dpexec.dashboard.board import Board

BOXES = [
    *(
        {
            "keys": [f"forward_backward_dev{d}-{d}"],
            "label": "forward + backward",
            "device": d,
            "roles": {"forward": 3, "backward": 1},
            "row": 0,
            "ops": 7,
            "most": ["mul ×2", "relu ×1"],
            "bytes": 0,
        }
        for d in range(2)
    ),
    {
        "keys": ["all_reduce-2"],
        "label": "all-reduce",
        "device": None,
        "roles": {"collective": 1},
        "row": 1,
        "ops": 1,
        "most": ["all_reduce ×1"],
        "bytes": 4096,
    },
    *(
        {
            "keys": [f"optimizer_dev{d}-{3 + d}"],
            "label": "update",
            "device": d,
            "roles": {"optimize": 1},
            "row": 2,
            "ops": 1,
            "most": ["sgd ×1"],
            "bytes": 0,
        }
        for d in range(2)
    ),
]


def sample(step: int, slow: float = 1.0) -> dict[str, Any]:
    """A recorded step in which the task of device 1 takes so many times as long."""
    slices: list[list[Any]] = []
    start = 0.0
    for box in BOXES:
        took = 0.01 * (slow if box["device"] == 1 and box["row"] == 0 else 1.0)
        begin = 0.0 if box["row"] == 0 else start
        (key,) = box["keys"]
        slices.append([box["device"], "", "task", key, key, begin, begin + took])
        slices.append(
            [box["device"], next(iter(box["roles"])), "op", "relu", key, begin, begin + took / 2]
        )
        start = max(start, begin + took)
    return {"step": step, "seconds": start, "slices": slices, "left_out": 0}


def report(steps: int, time: float, run: str = "a", **changes: Any) -> dict[str, Any]:
    """A report after some steps."""
    return {
        "run": run,
        "time": time,
        "trains": True,
        "devices": ["CPUPlace", "CPUPlace"],
        "mode": "all_reduce",
        "graph": None,
        "loss_name": "mean_0.tmp_0",
        "steps": steps,
        "failed": 0,
        "samples": 32 * steps,
        "bytes": 4096 * steps,
        "seconds": 0.03 * steps,
        "loss": [],
        "sample": None,
        "current": None,
        **changes,
    }


def full_board() -> Board:
    """A board after some reports; the last step had a straggler."""
    board = Board()
    board.apply(report(1, 100.0, graph=BOXES))
    board.memory = {"process 1": (100 << 20, 1 << 30)}
    for step in range(2, 9):
        slow = 3.0 if step == 8 else 1.0
        losses = [[step, 1.0 / step]]
        board.apply(report(step, 100.0 + step, sample=sample(step, slow), loss=losses))
    return board
