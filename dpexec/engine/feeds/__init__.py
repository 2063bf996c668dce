"""Turns feeds of users and batches of loaders into arrays on every device."""
