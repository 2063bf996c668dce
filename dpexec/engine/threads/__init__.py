"""Threads of this process: those of kernels, and those that help with the tasks of a step."""
