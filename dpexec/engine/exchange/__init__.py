"""Processes that exchange values: how they meet, what connects them, and how they add up."""
