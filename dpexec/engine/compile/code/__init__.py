"""Operators of a plan as machine code: which, in which memory, and how a step runs them."""
