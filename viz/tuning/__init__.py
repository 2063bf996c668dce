"""Advice that is tried: strategies, what they should be worth, and short runs that tell."""
