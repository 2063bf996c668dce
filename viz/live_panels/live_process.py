"""The process that draws the live view of a notebook cell, to relieve the training process.

`dpexec.viz.live` starts it: `python -m dpexec.viz.live_process PID`.
"""

from __future__ import annotations

from dpexec.viz.live_panels.live_view import overview

from dpexec.dashboard.board import Boards
from dpexec.dashboard.child import Parent, stand_back

__all__: list[str] = []


def main() -> None:
    """Draw reports, one after another, until the process that sends them has ended."""
    parent, boards, shown = Parent(), Boards(), ""
    stand_back()
    while True:
        report = parent.receive()
        board = boards.latest if report is None else boards.take(report)
        board.memory = parent.memory
        content = overview(board)
        parent.send(None if content == shown else content)
        shown = content


if __name__ == "__main__":
    main()
