"""Bound operators, blocks, and regions of machine code, which run on the values of a device."""
