"""Processes that exchange values: how they meet, how they are connected, and how they add up."""
