"""A plan bound to the shapes of a batch: its code, whole steps of it, and their notes."""
