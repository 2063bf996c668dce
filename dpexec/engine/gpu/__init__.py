"""Replicas on GPUs: what is enqueued on which stream, and what waits for which event."""
