"""What the parts of a device's time are called, and the roles whose colours they have."""

from __future__ import annotations

PARTS = {
    "compute": "computing",
    "communication": "communication",
    "data": "feed and fetch",
    "overhead": "between operators",
    "dependency": "waiting for a result",
    "straggler": "waiting for a straggler",
    "no_free_thread": "waiting for a thread",
    "scheduler": "waiting for the scheduler",
    "unknown": "waiting",
}

COLOURS = {
    "compute": "forward",
    "communication": "collective",
    "data": "feed",
    "overhead": "lr_sched",
    "dependency": "fetch",
    "straggler": "backward",
    "no_free_thread": "optimize",
    "scheduler": "idle",
    "unknown": "idle",
}
