"""Replicas on GPUs: streams, and the events for which they wait."""
