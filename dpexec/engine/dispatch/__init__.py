"""Finds the binding of a batch and the runner for it."""
