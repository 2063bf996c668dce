"""Bytes of Paddle files: messages of programs, and tensors in streams."""
