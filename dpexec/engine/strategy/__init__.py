"""Strategies: how a program is to be compiled and run, and on which devices."""
