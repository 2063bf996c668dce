"""The names of the parts of a device's time."""

from __future__ import annotations

PARTS = {
    "compute": "computing",
    "communication": "communication",
    "data": "feed and fetch",
    "overhead": "between operators",
    "turn": "waiting for Python of another thread",
    "dependency": "waiting for a result",
    "straggler": "waiting for a straggler",
    "no_free_thread": "waiting for a thread",
    "scheduler": "waiting for the scheduler",
    "unknown": "waiting",
}
