"""Compatibility with old programs: old NumPy's behaviour, and explanations of absent names."""
