"""Measures of recorded steps: schedules, waits, critical paths, traffic, simulated machines."""
