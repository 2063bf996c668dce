"""Operators of a plan as machine code: what becomes code, in which memory, and how a step runs it."""
