"""Threads of this process, for kernels and for the tasks of a step."""
