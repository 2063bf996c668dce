"""Data types, places, scopes, tensors and random numbers."""
