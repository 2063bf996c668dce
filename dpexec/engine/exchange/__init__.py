"""Collectives inside of long tasks, one per worker: ``ExecutionStrategy.collectives = "gang"``."""
