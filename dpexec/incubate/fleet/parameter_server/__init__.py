"""Fleets with parameter servers: :mod:`distribute_transpiler`."""
